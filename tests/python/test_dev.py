"""millrace.dev(): a server in one call, what it leaves behind, and what it says when it cannot start."""
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

import numpy as np
import pytest
from waits import process_runs, wait_until

import millrace
from millrace.progress import Bar
from millrace.top import TopSample, sample_rates, short

TOOL = os.environ["MILLRACE_TOOL"]
LIMIT_S = 60


def wait_for_end(pid):
    wait_until(lambda: not process_runs(pid), "the server ends")


@pytest.fixture(scope="module")
def server():
    with millrace.dev() as server:
        yield server


def test_three_lines(server):
    with server.client() as client:
        table = client.table("three", dim=4, optimizer=millrace.optim.SGD(lr=1.0))
        before = table.lookup([1, 2])
        table.push_gradients([1, 2], np.ones((2, 4), np.float32))
        assert np.allclose(table.lookup([1, 2]), before - 1)


def test_two_at_a_time(server):
    with millrace.dev(cores=2) as other:
        assert other.address != server.address
        with other.client() as client:
            assert client.core_count == 2


def test_it_says_what_it_is(server):
    assert server.address in repr(server) and "running" in repr(server)
    assert server.log in server._repr_html_() and pathlib.Path(server.log).read_text(encoding="utf-8")


def test_others_have_no_key(server, monkeypatch):
    assert os.stat(server.key_file).st_mode & 0o777 == 0o600
    monkeypatch.delenv("MILLRACE_KEY_FILE", raising=False)
    with pytest.raises(millrace.Error):
        millrace.Client(server.address, connect_s=0.5)
    other = subprocess.run(
        [TOOL, "ctl", "list", "--server", server.address, "--deadline-ms", "1000"],
        capture_output=True,
        check=False,
    )
    assert other.returncode != 0


def test_a_key_of_ones_own(tmp_path, monkeypatch):
    own = tmp_path / "own.key"
    own.write_text("ab" * 32, encoding="ascii")
    with millrace.dev(tmp_path / "kept", settings=[f"node.key_file={own}"]) as server:
        assert server.key_file == str(own) and len(server.client().heartbeat()) == 1
    monkeypatch.setenv("MILLRACE_KEY_FILE", str(own))
    with millrace.dev(tmp_path / "kept") as server:
        assert server.key_file == str(own) and len(server.client().heartbeat()) == 1
    monkeypatch.setenv("MILLRACE_KEY_FILE", "")  # names none
    with millrace.dev(tmp_path / "kept") as server:
        assert server.key_file == str(tmp_path / "kept" / "dev.key")
        assert len(server.client().heartbeat()) == 1
    with millrace.dev(tmp_path / "kept", settings=["node.key_file="]) as server:
        assert server.key_file is None and len(server.client().heartbeat()) == 1
    assert own.exists() and not (tmp_path / "kept" / "dev.key").exists()


def test_stop_leaves_nothing(tmp_path):
    server = millrace.dev()
    client = server.client()
    server.stop()
    server.stop()
    assert client.closed and not os.path.exists(server.directory)
    wait_for_end(server.pid)
    assert "stopped" in repr(server) and not server.is_running
    with pytest.raises(millrace.DevServerError, match="is stopped"):
        server.client()


def test_a_client_holds_its_server():
    client = millrace.dev().client()
    assert len(client.heartbeat()) == 1
    (server,) = client._held
    server.stop()


def test_a_directory_is_kept_and_restored(tmp_path):
    with millrace.dev(tmp_path / "model") as server:
        table = server.client().table("kept", dim=2)
        table.push_gradients([7], np.ones((1, 2), np.float32))
        row = table.lookup([7])
    with millrace.dev(tmp_path / "model") as server:
        assert np.array_equal(server.client().table("kept").lookup([7]), row)


@pytest.mark.parametrize(
    "arguments, says",
    [({"settings": ["port.nope=1"]}, "has no key"), ({"cores": 65}, "--cores"), ({"port": 0}, "--port")],
)
def test_a_start_that_fails_says_why(arguments, says):
    with pytest.raises(millrace.DevServerError, match=says):
        millrace.dev(**arguments)


def test_a_client_without_an_address(server, monkeypatch):
    monkeypatch.setenv("MILLRACE_SERVER", server.address)
    monkeypatch.setenv("MILLRACE_KEY_FILE", server.key_file)
    with millrace.Client() as client:
        assert client.server == server.address
    monkeypatch.delenv("MILLRACE_SERVER")
    for kind, says in ((millrace.Client, "MILLRACE_SERVER"), (millrace.Hub, "10.0.0.1:7800")):
        for server_argument in ((), ("",), (None,)):
            with pytest.raises(ValueError, match=says):
                kind(*server_argument)


def test_ports_that_are_taken():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(millrace.DevServerError, match=f"UDP port {port} is taken"):
            millrace.dev(port=port)
        with pytest.raises(millrace.DevServerError, match="not all UDP ports from .* are free"):
            millrace.dev(port=port - 1, cores=2)


def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(millrace.DevServerError, match="file is no directory; name another"):
        millrace.dev(tmp_path / "file")


def test_programs_that_are_not_there(monkeypatch):
    monkeypatch.setenv("MILLRACED", "/nowhere/millraced")
    with pytest.raises(millrace.DevServerError, match="/nowhere/millraced.*MILLRACED"):
        millrace.dev()
    monkeypatch.setenv("MILLRACE_TOOL", "/nowhere/millrace")
    with pytest.raises(millrace.DevServerError, match="MILLRACE_TOOL"):
        millrace.dev()
    monkeypatch.delenv("MILLRACE_TOOL")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(millrace.DevServerError, match="not in .PATH"):
        millrace.dev()


SCRIPT = """
import os, signal, sys, millrace
server = millrace.dev()
print(server.pid, server.directory, flush=True)
if sys.argv[1] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "interrupt":
    try:
        os.killpg(os.getpgid(0), signal.SIGINT)
        signal.pause()
    except KeyboardInterrupt:
        print(len(server.client().heartbeat()))
if sys.argv[1] == "fork":
    if os.fork() == 0:
        assert not server.is_running
        os._exit(0)
    os.wait()
    print(len(server.client().heartbeat()))
"""


@pytest.mark.parametrize("how, code", [("exit", 0), ("kill", -signal.SIGKILL), ("interrupt", 0), ("fork", 0)])
def test_it_ends_with_its_process(how, code):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, how],
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stderr) == (code, "")
    pid, directory, *more = done.stdout.split()
    assert more == (["1"] if how in ("interrupt", "fork") else [])
    wait_for_end(pid)
    wait_until(lambda: not os.path.exists(directory), "its directory is removed")


def test_the_server_ends_with_a_tool_that_is_killed():
    with subprocess.Popen([TOOL, "dev", "--json"], stdout=subprocess.PIPE, text=True) as tool:
        said = json.loads(tool.stdout.readline())
        tool.kill()
    wait_for_end(said["pid"])
    shutil.rmtree(said["directory"])  # which only the tool removes


def test_a_command_has_the_server_and_gives_its_exit_code():
    script = (
        "import os, millrace; print(len(millrace.Client(os.environ['MILLRACE_SERVER']).heartbeat())); exit(7)"
    )
    words = [TOOL, "dev", "--cores", "2", "--", sys.executable, "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "2\n", "")
    assert subprocess.run([TOOL, "dev", "--", "sh", "-c", "kill -9 $$"], check=False).returncode == 128 + 9
    done = subprocess.run([TOOL, "dev", "--", "/nowhere"], capture_output=True, text=True, check=False)
    assert done.returncode == 127 and "/nowhere" in done.stderr


def test_without_root(tmp_path):
    """As nobody, without hugepages or HOME, with /run and /dev/shm read only."""
    if os.geteuid() != 0:
        pytest.skip("this is an ordinary user already")
    place = pathlib.Path(tempfile.mkdtemp(prefix="millrace-test-"))
    try:
        for program in (TOOL, os.environ["MILLRACED"]):
            shutil.copy(program, place)
        shutil.copy(os.environ["MILLRACE_LIBRARY"], place / "libmillrace.so.0.4")
        place.chmod(0o777)
        script = (
            "mount -t tmpfs -o ro none /run && mount -t tmpfs -o ro none /dev/shm && ip link set lo up && "
            f"exec setpriv --reuid=65534 --regid=65534 --clear-groups env -i "
            f"PATH=/usr/bin:/bin TMPDIR={place} LD_LIBRARY_PATH={place} "
            f"{place}/millrace dev -- sh -c '{place}/millrace ctl heartbeat; id -u'"
        )
        done = subprocess.run(
            ["unshare", "--mount", "--net", "sh", "-c", script], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 and "serving" in done.stdout, done.stderr
        assert done.stdout.split()[-1] == "65534"
    finally:
        shutil.rmtree(place)


# ---- top and progress ----


def test_top(server):
    with server.client() as client:
        table = client.table("topped", dim=4)
        first = client.top()
        table.lookup([1, 2, 3])
        second = client.top()
    assert first.interval_s == 0 and "next call has rates" in repr(first)
    assert second.rates[0]["calls/s"] > 0 and second.rates[0]["keys/s"] > 0
    for shown in (repr(second), second._repr_html_()):
        assert "topped" in shown and "serving" in shown and "keys/s" in shown


def test_top_of_a_node_that_serves_nothing(server, monkeypatch):
    why = "its part of checkpoint 4 of the cluster cannot be loaded <missing>"

    def refuse(**_):
        raise millrace.Error(f"list: the node serves nothing: {why}")

    with server.client() as client:
        cores = [
            dataclasses.replace(core, state="failed", why=why, node="n1") for core in client.heartbeat() * 2
        ]
        monkeypatch.setattr(client, "features", refuse)
        with pytest.raises(millrace.Error, match="serves nothing"):
            client.top()  # a node that serves, and lists nothing
        monkeypatch.setattr(client, "heartbeat", lambda **_: cores)
        monkeypatch.setattr(client, "stats", lambda *_, **__: {})
        shown = client.top()
    assert repr(shown).splitlines()[1:3] == [f"n1: serves nothing: {why}", ""]
    assert "n1: serves nothing: its part" in shown._repr_html_() and "&lt;missing&gt;" in shown._repr_html_()


def test_rates():
    before = TopSample(1.0, 5, [{"wire.calls_served": 10, "table.keys_pushed": 4}])
    now = TopSample(3.0, 5, [{"wire.calls_served": 30, "table.keys_pushed": 5, "table.keys_looked_up": 1}])
    interval_s, rates = sample_rates(before, now)
    assert interval_s == 2 and (rates[0]["calls/s"], rates[0]["keys/s"]) == (10, 1)
    assert sample_rates(None, now) == (0, [{}])
    assert sample_rates(TopSample(1.0, 6, before.counters), now) == (0, [{}])
    assert sample_rates(TopSample(1.0, 5, []), now) == (0, [{}])
    assert [short(n) for n in (0, 999, 1234567, 99e9)] == ["0", "999", "1.23M", "99.0G"]


def test_progress(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)  # not installed
    with Bar("save 1") as bar:  # not a terminal
        bar.show(1, 2)
    assert capsys.readouterr().err == ""
    with Bar("save 1", True) as bar:
        bar.show(1, 0)
        bar.show(1 << 20, 2 << 20)
    assert capsys.readouterr().err == f"\rsave 1:  50% [{'#' * 12}{'.' * 12}] 1.0 of 2.0 MiB\n"


def test_progress_of_a_save_and_a_restore(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with millrace.dev(tmp_path / "saved") as server:
        client = server.client()
        client.table("saved", dim=4).push_gradients(range(1000), np.ones((1000, 4), np.float32))
        info = client.wait_for_save(client.save(), progress=True)
        assert info.status == "OK" and "100%" in capsys.readouterr().err
        assert client.restore(progress=True).tables == 1
        client.wait_for_save(client.save())
        capsys.readouterr()


# ---- reprs and errors ----


def test_reprs():
    spec = millrace.TableSpec("t", 4, initializer=millrace.init.normal(0, 0.01, seed=1))
    assert "dim=4" in repr(spec) and "initializer=init.normal(0, 0.01, seed=1)" in repr(spec)
    assert "clip_norm" not in repr(spec)
    made = [millrace.init.constant(0.5), millrace.init.uniform(-1, 1), millrace.init.truncated_normal()]
    made += [millrace.admission.observations(3), millrace.admission.always(), millrace.eviction.age(60)]
    assert [eval(repr(value), vars(millrace)) for value in made] == made
    assert repr(millrace.eviction.lru()) == "eviction.lru()"


def test_errors_say_how_to_go_on(server):
    with server.client() as client:
        table = client.table("items", 4)
        assert "SGD" in repr(client.table("sgd", 4, optimizer=millrace.optim.SGD(lr=1.0))) and table.dim == 4
        with pytest.raises(millrace.UnknownTable, match="no table 'itms'; did you mean 'items'"):
            client.table("itms")
        with pytest.raises(millrace.UnknownVariable, match=r"variable\('qqqq', shape\) makes it"):
            client.variable("qqqq")
        with pytest.raises(millrace.FeatureMismatch, match=r"not 8.*table\('items'\) takes it as it is"):
            client.table("items", 8)
        with pytest.raises(millrace.FeatureMismatch, match="not variable.*choose another name"):
            client.variable("items", 8)
        with pytest.raises(TypeError, match="no option 'optimiser'; did you mean 'optimizer'"):
            client.table("items", 4, optimiser=None)
        with pytest.raises(TypeError, match="it has optimizer"):
            client.variable("v", 4, qqqq=None)
    with pytest.raises(millrace.Unreachable, match=r"millrace.dev\(\) starts one"):
        millrace.Client("127.0.0.1:9", connect_s=0.1)


def test_settings_are_a_list():
    with pytest.raises(TypeError, match=r"settings=\['memory.limit_mib=512'\]"):
        millrace.dev(settings="memory.limit_mib=512")
