"""The fixtures themselves: a node that is started, killed and started again, and a hub beside it, by the bare
library; and programs with torch."""
import os
import signal

from torch_programs import TorchProgram, skip_without_torch

import millrace._base.library as library
from millrace._base.library import ffi, lib


def connect(address):
    name = ffi.new("char[]", address.encode())
    options = ffi.new(
        "struct mr_client_options *", {"server": name, "connect_ms": 60000, "deadline_ms": 60000}
    )
    client, error = ffi.new("struct mr_client **"), ffi.new("char[512]")
    status = lib.mr_client_create(options, client, error, 512)
    assert status == lib.MR_OK, library.text(error)
    return client[0]


def test_a_node_answers(node):
    client = connect(node.address)
    assert lib.mr_client_core_count(client) == node.cores
    assert lib.mr_echo(client, library.NULL, 0, library.NULL, 0, library.NULL) == lib.MR_OK
    lib.mr_client_destroy(client)


def test_a_node_is_killed_and_comes_back_with_other_cores(new_node):
    node = new_node(cores=1)
    client = connect(node.address)
    before = lib.mr_client_incarnation(client)
    node.kill()
    node.restart(cores=2)
    assert lib.mr_echo(client, library.NULL, 0, library.NULL, 0, library.NULL) == lib.MR_OK
    assert lib.mr_client_incarnation(client) != before
    assert lib.mr_client_core_count(client) == 2
    lib.mr_client_destroy(client)


def test_a_hub_feeds_a_node(new_node, new_hub):
    hub = new_hub(new_node())
    client = connect(hub.address)
    status = ffi.new("struct mr_hub_status *")
    assert lib.mr_hub_status(client, library.NULL, status) == lib.MR_OK
    assert status.batches_fed == 0
    lib.mr_client_destroy(client)


# ---- forks of a process that has imported torch ----


def ends(source, together=False, limit_s=60):
    """Runs it; returns its exit code and what it said."""
    program = TorchProgram(["-c", source], dict(os.environ), together)
    said = program.communicate(timeout=limit_s)
    return program.returncode, *said


def test_a_torch_program_is_started_like_any_other(cable, tmp_path):
    skip_without_torch()
    (tmp_path / "beside.py").write_text("value = 7\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\nbefore = set(sys.modules)\nimport beside\n"
        "def here(): pass\n"
        "fds = [f for f in os.scandir('/proc/self/fd') if 'libffi.so' not in os.path.realpath(f.path)]\n"
        "print(sys.argv[1:], beside.value, os.environ['PLACE'], sys.modules[here.__module__].here is here)\n"
        "print(os.getppid(), os.readlink('/proc/self/ns/net'), len(fds))\n"
        "print('torch' in before, 'millrace' in before, len(os.listdir('/proc/self/task')))\n"
    )
    program = TorchProgram([str(script), "a", "b c"], {**os.environ, "PLACE": "x"})
    out, error = program.communicate(timeout=60)
    assert (program.returncode, error) == (0, "")
    assert out.splitlines() == [
        "['a', 'b c'] 7 x True",
        f"{os.getpid()} {os.readlink('/proc/self/ns/net')} 4",  # one lists them; libffi 3.5 has its file open
        "True False 1",
    ]


def test_a_torch_program_ends_like_any_other():
    skip_without_torch()
    at_the_end = "import atexit, sys\natexit.register(print, 'end')\n"
    assert ends(at_the_end) == (0, "end\n", "")
    assert ends(at_the_end + "sys.exit(3)") == (3, "end\n", "")
    assert ends(at_the_end + "sys.exit('why')") == (1, "end\n", "why\n")
    assert ends("import os; os._exit(4)") == (4, "", "")
    assert ends("import sys; sys.stderr.write('b')", together=True) == (0, "b", "")
    code, out, error = ends(at_the_end + "1 / 0")
    assert (code, out) == (1, "end\n") and error.endswith("\nZeroDivisionError: division by zero\n")
    program = TorchProgram(["-c", "import time\nprint(1, flush=True)\ntime.sleep(600)"], dict(os.environ))
    assert program.stdout.readline() == "1\n" and program.poll() is None
    program.kill()
    assert program.communicate() == ("", "") and program.poll() == -signal.SIGKILL
    assert ends("import time; time.sleep(600)", limit_s=0.1)[0] == -signal.SIGKILL


def test_a_paced_program_waits_for_its_reader(tmp_path):
    skip_without_torch()
    count = "for i in range(100):\n    print(i, flush=True)\n    log.write('.')\n    log.flush()\n"
    log = tmp_path / "log"
    program = TorchProgram(["-c", f"log = open({str(log)!r}, 'w')\n{count}"], dict(os.environ), paced=True)
    for i in range(50):
        assert program.stdout.readline() == f"{i}\n" and log.stat().st_size <= i + 2
    assert program.communicate() == ("".join(f"{i}\n" for i in range(50, 100)), "")
    assert (program.returncode, log.stat().st_size) == (0, 100)
