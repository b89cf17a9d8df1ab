"""Checkpoints in a real HDFS and a real S3: docs/stores.md. Skipped where these servers cannot be had."""
from __future__ import annotations

import contextlib
import functools
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from typing import Iterator

import numpy as np
import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "stores"))

from cable import environment  # noqa: E402
from conftest import NO_STORE  # noqa: E402
from fault_proxy import BUSY, CUT, LOSE, PASS, FaultProxy  # noqa: E402
from stores import (  # noqa: E402
    S3,
    Certificate,
    Hdfs,
    Http2,
    S3Proxy,
    SecureHdfs,
    Store,
    find_classes,
    why_no_swift,
)
from waits import wait_until  # noqa: E402

import millrace  # noqa: E402
from millrace import init, optim  # noqa: E402

WAIT_S = 120.0
KEYS = np.arange(3000)
FATES = (BUSY, CUT, LOSE)
# Every fault at every request, in every store: minutes. Otherwise a fault at every ninth request, and an end
# of the node at others; test_copy.c has faults at all of them, with stores in memory.
SWEEPS_ALL = os.environ.get("MILLRACE_SWEEP") == "all"
STRIDE = 1 if SWEEPS_ALL else 9


@pytest.fixture(scope="session", autouse=True)
def classes() -> dict[str, tuple[str, str]]:
    """Before `cable`, which is a session's, too: in the test's namespace there is no Maven Central."""
    return {name: find_classes(name) for name in ("hadoop", "s3proxy")}


@pytest.fixture(scope="module")
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="millrace-test-", ignore_cleanup_errors=True) as folder:
        yield folder


@pytest.fixture(scope="module")
def s3(cable, folder) -> Iterator[S3]:
    if why := why_no_swift(folder):
        pytest.skip(f"{NO_STORE}Swift: {why}")
    store = S3(folder)
    yield store
    store.close()


@pytest.fixture(scope="module")
def certificate(folder) -> Certificate:
    return Certificate(folder)


def started(
    kind: type[Hdfs] | type[SecureHdfs] | type[S3Proxy],
    name: str,
    request: pytest.FixtureRequest,
    folder: str = "",
) -> Iterator[Store]:
    """One of those that Maven has."""
    classes, why = request.getfixturevalue("classes")[name]
    request.getfixturevalue("cable")
    if why:
        pytest.skip(f"{NO_STORE}{name}: {why}")
    directory = os.path.join(request.getfixturevalue("folder"), folder or name)
    os.makedirs(directory)
    store = kind(directory, classes, request.getfixturevalue("certificate"))
    yield store
    store.close()


@pytest.fixture(scope="module")
def s3proxy(request) -> Iterator[Store]:
    yield from started(S3Proxy, "s3proxy", request)


@pytest.fixture(scope="module")
def hdfs(request) -> Iterator[Store]:
    yield from started(Hdfs, "hadoop", request)


@pytest.fixture(scope="module")
def secure_hdfs(request) -> Iterator[Store]:
    yield from started(SecureHdfs, "hadoop", request, "secure")


@pytest.fixture(params=["s3", "s3proxy", "hdfs"])
def store(request) -> Store:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def saved(folder) -> str:
    """A directory with a checkpoint of one file, that goes to S3 in two parts."""
    directory = os.path.join(folder, "saved")
    os.makedirs(directory)
    rows = np.random.default_rng(1).random((70000, 32), np.float32)
    keys, values = os.path.join(directory, "keys.npy"), os.path.join(directory, "values.npy")
    np.save(keys, np.arange(len(rows), dtype=np.uint64))
    np.save(values, rows)
    ckpt("import", "--keys", keys, "--values", values, "--table", "t", "--out", directory)
    assert 8 << 20 < os.path.getsize(os.path.join(directory, "ckpt-1", "core-000.mrc")) < 16 << 20
    return directory


def start_ckpt(*arguments: str) -> subprocess.Popen[str]:
    """millrace ckpt, started."""
    return subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", os.environ["MILLRACE_TOOL"], "ckpt", *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ckpt(*arguments: str, code: int = 0) -> str:
    """Runs millrace ckpt; returns what it wrote."""
    process = start_ckpt(*arguments)
    says, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == code, f"ckpt {' '.join(arguments)}: {process.returncode}, {says}"
    return says


def same_files(a: str, b: str) -> bool:
    """Whether both directories have the same files, bit by bit."""
    names = sorted(os.listdir(a))
    return names == sorted(os.listdir(b)) and all(
        open(os.path.join(a, name), "rb").read() == open(os.path.join(b, name), "rb").read() for name in names
    )


def below(url: str, name: str) -> str:
    """The URL of what is in the directory of another one."""
    path, query = url.split("?")
    return f"{path}/{name}?{query}"


def wait_copied(client: millrace.Client, number: int) -> None:
    """Waits until the store has this checkpoint, and nothing is left to copy."""

    def is_there() -> bool:
        stats = client.stats()
        return stats["remote.last_id"] == number and stats["remote.state"] == 1

    wait_until(is_there, f"checkpoint {number} is in the store")


def test_a_checkpoint_goes_there_and_comes_back(store, saved, folder):
    url, back = store.url("there"), os.path.join(folder, f"back-{type(store).__name__}")
    assert "copied" in ckpt("push", saved, url)
    assert "0 B copied" in ckpt("push", saved, url)
    assert "full" in ckpt("list", url) and "ok" in ckpt("verify", url)
    assert "70000" in ckpt("info", below(url, "ckpt-1"))
    ckpt("pull", url, back)
    assert same_files(os.path.join(saved, "ckpt-1"), os.path.join(back, "ckpt-1"))


class Trained:
    """A table and a variable, saved as a full checkpoint and then as a delta; what they hold then."""

    def __init__(self, client: millrace.Client, second: str = "delta") -> None:
        table = client.table("t", 8, optimizer=optim.Adagrad(lr=0.1), initializer=init.uniform(0, 1, seed=1))
        bias = client.variable("bias", 3)
        gradients = np.random.default_rng(2).random((len(KEYS), 8), np.float32)
        table.lookup(KEYS)
        table.push_gradients(KEYS, gradients, step=1)
        self.first_rows = table.lookup(KEYS)
        self.first = client.wait_for_save(client.save(kind="full"), timeout_s=WAIT_S).id
        table.push_gradients(KEYS[::3], gradients[::3], step=2)
        table.lookup(KEYS + 10000)
        bias.push([1, 2, 3])
        self.last = client.wait_for_save(client.save(kind=second), timeout_s=WAIT_S).id
        self.rows, self.late = table.lookup(KEYS), table.lookup(KEYS + 10000)

    def check(self, client: millrace.Client) -> None:
        """All of it is there, bit by bit."""
        table = client.table("t")
        assert np.array_equal(table.lookup(KEYS), self.rows)
        assert np.array_equal(table.lookup(KEYS + 10000), self.late)
        assert client.variable("bias").pull().tolist() == [1, 2, 3]


def tool(*arguments: str) -> str:
    """Runs millrace; returns what it wrote to stdout."""
    command = [os.environ["MILLRACE_TOOL"], *arguments]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=WAIT_S, check=True
    )
    return done.stdout


def top(node) -> str:
    """What millrace top shows."""
    return tool("top", "--server", node.address, "--interval", "0.05", "--count", "1")


def test_a_node_comes_back_from_the_store_on_other_cores(store, new_node):
    url = store.url("node")
    node = new_node(2, (f"checkpoint.remote={url}", "checkpoint.deltas=4"), near=True)
    with connected(node) as client:
        trained = Trained(client)
        wait_copied(client, trained.last)
        assert f"store: all is there, up to checkpoint {trained.last}" in top(node)
    node.kill()
    shutil.rmtree(node.checkpoints)
    node.start(cores=3)
    with connected(node) as client:
        trained.check(client)
        after = client.wait_for_save(client.save(kind="full"), timeout_s=WAIT_S).id
        wait_copied(client, after)
        tool("ctl", "restore", "--server", node.address, "--directory", url, "--id", str(trained.first))
        assert np.array_equal(client.table("t").lookup(KEYS), trained.first_rows)
    assert ckpt("list", url).count("delta") == 1
    ckpt("verify", url)
    there = below(url, f"ckpt-{trained.last}")
    ckpt("diff", there, os.path.join(node.checkpoints, f"ckpt-{after}"))  # optimizers' state, too
    ckpt("diff", there, below(url, f"ckpt-{after}"))


def test_a_node_without_a_disk_goes_on(store, new_node):
    """It saves straight to the store and comes back on other cores; what it saved is served, read only."""
    url = store.url("no-disk")
    node = new_node(2, (f"checkpoint.directory={url}", "checkpoint.deltas=4"), near=True)
    with connected(node) as client:
        trained = Trained(client)
        client.table("t").push_gradients(KEYS, np.ones((len(KEYS), 8), np.float32), step=3)
    node.kill()
    node.start(cores=3)
    with connected(node) as client:
        trained.check(client)
        after = client.wait_for_save(client.save(kind="full"), timeout_s=WAIT_S).id
    node.kill()
    assert ckpt("list", url).count("delta") == 1
    ckpt("verify", url)
    ckpt("diff", below(url, f"ckpt-{trained.last}"), below(url, f"ckpt-{after}"))
    served = new_node(1, (f"checkpoint.serve={below(url, f'ckpt-{trained.first}')}",), near=True)
    with connected(served) as client:
        assert np.array_equal(client.table("t").lookup(KEYS), trained.first_rows)
        with pytest.raises(millrace.Frozen, match="read only"):
            client.save()


def test_a_wrong_secret_is_refused(s3, saved, monkeypatch):
    url = s3.url("secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    says = ckpt("push", saved, url, code=1) + ckpt("list", url, code=1)
    assert "the secret key is wrong" in says and "hunter2" not in says
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test:nobody")
    assert len(ckpt("list", url, code=1).splitlines()) == 1
    monkeypatch.undo()
    assert "make the bucket" in ckpt("list", url.replace("models", "no-bucket"), code=1)


SERVERS = {"S3": "efuses If-None-Match", "S3Proxy": "honours If-None-Match", "Hdfs": "Hadoop 3."}


def doctor(url: str) -> list[dict[str, str]]:
    """What millrace doctor finds about a store."""
    command = [os.environ["MILLRACE_TOOL"], "doctor", "--json", "--store", url]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    return [found for found in json.loads(done.stdout) if found["check"].startswith("store")]


def test_doctor_checks_a_store(store, saved, monkeypatch):
    url = store.url("doctor")
    found = doctor(url)
    kind = {"S3": "advice", "S3Proxy": "ok", "Hdfs": "ok"}[type(store).__name__]
    assert [f["level"] for f in found] == ["ok", kind, "ok"] and "no checkpoint" in found[0]["what"], found
    assert SERVERS[type(store).__name__] in found[1]["what"], found
    ckpt("push", saved, url)
    found = doctor(url)
    assert "1 checkpoint, the newest is 1" in found[0]["what"] and "clock" in found[2]["check"], found
    ckpt("verify", url)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    found = doctor(url.replace("user.name=root", "user.name=nobody"))
    assert found[0]["level"] == "problem" and found[0]["mend"], found
    assert "hunter2" not in str(found)


@pytest.fixture
def proxy(store) -> Iterator[FaultProxy]:
    """In front of the store."""
    proxy = FaultProxy(store.port)
    yield proxy
    proxy.close()


only = functools.partial(pytest.mark.parametrize, "store", indirect=True)
swept = only(["s3", "s3proxy", "hdfs"] if SWEEPS_ALL else ["s3proxy", "hdfs"])


@only(["s3proxy", "hdfs"])
def test_https_trusts_the_ca_that_is_named_and_no_other(store, saved):
    url = store.secure_url("secure")
    ckpt("push", saved, url)
    assert "ok" in ckpt("verify", url)
    says = ckpt("list", url.split("&ca=")[0], code=1)
    assert len(says.splitlines()) == 1 and "name the file of its CA: ca=/FILE" in says


@only(["s3proxy"])
def test_http_2_is_spoken_where_it_is_offered(store, certificate, saved, folder):
    if shutil.which("nghttpx") is None:
        pytest.skip(f"{NO_STORE}nghttpx is not installed: run scripts/setup.sh test")
    directory, back = os.path.join(folder, "http2"), os.path.join(folder, "back-http2")
    os.makedirs(directory)
    server = Http2(directory, store.port, certificate)
    url = f"s3://models/http2?endpoint=https://127.0.0.1:{server.port}&ca={certificate.ca}"
    try:
        wait_until(lambda: "no checkpoint" in doctor(url)[0]["what"], "it serves")
        assert "copied" in ckpt("push", saved, url)
        ckpt("pull", url, back)
        lines = server.requests()
    finally:
        server.close()
    assert same_files(os.path.join(saved, "ckpt-1"), os.path.join(back, "ckpt-1"))
    assert "ckpt-1: ok" in ckpt("verify", store.url("http2"))
    assert any(line.startswith("PUT") for line in lines) and all(
        line.endswith("HTTP/2") for line in lines
    ), lines


@only(["s3proxy"])
def test_a_server_refuses_to_replace_a_manifest(store, proxy, saved, folder):
    """Another node's checkpoint of the same number comes first, after this one has seen none."""
    other = os.path.join(folder, "other")
    os.makedirs(other)
    np.save(os.path.join(other, "keys.npy"), np.arange(3, dtype=np.uint64))
    np.save(os.path.join(other, "values.npy"), np.ones((3, 4), np.float32))
    arrays = [
        word for name in ("keys", "values") for word in (f"--{name}", os.path.join(other, f"{name}.npy"))
    ]
    ckpt("import", *arrays, "--table", "other", "--out", other)
    proxy.start(lambda i: PASS)
    ckpt("push", saved, store.url("first", proxy.port))
    put = [method == "PUT" and path.endswith("/MANIFEST") for method, path, _ in proxy.seen].index(True)

    def plan(i: int) -> str:
        if i == put:
            ckpt("push", other, store.url("taken"))
        return PASS

    proxy.start(plan)
    says = ckpt("push", saved, store.url("taken", proxy.port), code=1)
    assert ("PUT", "/models/taken/ckpt-1/MANIFEST", 412) in proxy.seen
    assert len(says.splitlines()) == 1 and "another checkpoint of this number is there" in says


@only(["s3"])
def test_no_push_is_lost_with_the_machine(store, proxy, new_node):
    """What the disk had and the store had not comes from the client again."""
    settings = (f"checkpoint.remote={store.url('machine', proxy.port)}", "checkpoint.durable=remote")
    node = new_node(2, settings, near=True)
    with millrace.Client(node.address, deadline_s=WAIT_S, connect_s=60, replay=True) as client:
        table = client.table("t", 2, optimizer=optim.SGD(lr=1))

        def push(first: int, last: int) -> None:
            for step in range(first, last + 1):
                table.push_gradients(KEYS, -np.ones((len(KEYS), 2), np.float32), step=step)

        proxy.start(lambda i: PASS)
        push(1, 5)
        wait_copied(client, client.wait_for_save(client.save(), timeout_s=WAIT_S).id)
        proxy.start(lambda i: BUSY)
        push(6, 9)
        assert client.wait_for_save(client.save(), timeout_s=WAIT_S).id == 2
        push(10, 10)
        assert client.replay_info().kept >= 5
        node.kill()
        shutil.rmtree(node.checkpoints)
        proxy.start(lambda i: PASS)
        node.start(cores=1)
        assert np.all(table.lookup(KEYS) == 10)
        assert client.checkpoint_info().restored_id == 1 and client.replay_info().replayed >= 5


def copying_node(new_node, store: Store, proxy: FaultProxy, name: str, *settings: str):
    """A node with a table, whose saves go to the store through the proxy, one kept; one is there."""
    remote = (f"checkpoint.remote={store.url(name, proxy.port)}", "checkpoint.keep=1", *settings)
    proxy.start(lambda i: PASS)
    node = new_node(1, remote, near=True)
    with connected(node) as client:
        client.table("t", 8).lookup(KEYS)
        save_and_copy(client)
    return node


def connected(node) -> millrace.Client:
    return millrace.Client(node.address, deadline_s=WAIT_S, connect_s=60)


def save_and_copy(client: millrace.Client) -> int:
    number = client.wait_for_save(client.save(kind="full"), timeout_s=WAIT_S).id
    wait_copied(client, number)
    return number


def requests_of_a_save(client: millrace.Client, proxy: FaultProxy) -> int:
    """How many there are for the copy of one, and to remove the one before."""
    proxy.start(lambda i: PASS)
    save_and_copy(client)
    return proxy.count


@only(["s3proxy", "hdfs"])
def test_a_store_that_stalls_holds_up_no_other_call(store, proxy, new_node):
    """A trainer saves to a store that a list allows, and that says nothing; others go on meanwhile."""
    url = store.url("stalls", proxy.port)
    node = new_node(1, (f"checkpoint.allow={url}",), near=True)
    asked, released = threading.Event(), threading.Event()

    def plan(_i: int) -> str:
        asked.set()
        assert released.wait(WAIT_S)
        return PASS

    with connected(node) as client, connected(node) as other:
        table = client.table("t", 8)
        table.lookup(KEYS)
        proxy.start(plan)
        save = client.save_async(url)
        try:
            assert asked.wait(WAIT_S)
            other.table("u", 8).lookup(KEYS)
            table.push_gradients(KEYS, np.ones((len(KEYS), 8), np.float32), step=1)
            other.wait_for_save(other.save(), timeout_s=WAIT_S)
            assert "u" in tool("ctl", "list", "--server", node.address)
            assert not save.done()
        finally:
            released.set()
        client.wait_for_save(save.result(), timeout_s=WAIT_S)
    assert "ckpt-1: ok" in ckpt("verify", store.url("stalls"))


@swept
def test_any_request_of_a_save_may_fail(store, proxy, new_node):
    """Once, by turns as an overloaded server fails, cut, or done without an answer."""
    node = copying_node(new_node, store, proxy, "fails")
    with connected(node) as client:
        count = requests_of_a_save(client, proxy)
        assert count >= 10
        for turn in range(len(FATES) if SWEEPS_ALL else 1):
            for index in range(STRIDE - 1, count, STRIDE):
                fate = FATES[(index // STRIDE + turn) % len(FATES)]
                proxy.start(lambda i, at=index, fate=fate: fate if i == at else PASS)
                number = save_and_copy(client)
                says = ckpt("verify", store.url("fails"))
                assert f"ckpt-{number}: ok" in says, f"request {index} failed: {says}"


@swept
def test_a_node_killed_at_any_request_of_a_save_leaves_whole_checkpoints(store, proxy, new_node):
    """The request is lost with it, or done and nobody is there for the answer."""
    node = copying_node(new_node, store, proxy, "killed")
    with connected(node) as client:
        count = requests_of_a_save(client, proxy)
    for index in range(0, count, STRIDE):
        saved, killed = threading.Event(), threading.Event()

        def plan(i: int, at: int = index, saved=saved, killed=killed) -> str:
            if i != at:
                return PASS
            assert saved.wait(WAIT_S)
            node.kill()
            killed.set()
            return (CUT, LOSE)[at // STRIDE % 2]

        with connected(node) as client:
            proxy.start(plan)
            number = client.wait_for_save(client.save(kind="full"), timeout_s=WAIT_S).id
            saved.set()
            assert killed.wait(WAIT_S), f"a save made fewer than {index + 1} requests"
        says = ckpt("verify", store.url("killed"))
        assert f"ckpt-{number}: ok" in says or f"ckpt-{number - 1}: ok" in says, f"at {index}: {says}"
        proxy.start(lambda i: PASS)
        node.start()
        with connected(node) as client:
            wait_copied(client, number)
    with connected(node) as client:
        number = save_and_copy(client)
    assert f"ckpt-{number}: ok" in ckpt("verify", store.url("killed"))


@contextlib.contextmanager
def refused(store: Store) -> Iterator[str]:
    """For that long the store takes nothing: HDFS has no room, S3 no bucket. Yields what is said of it."""
    if isinstance(store, Hdfs):
        store.tell("quota /refused 1000000", "quota")
        try:
            yield "space quota is used up"
        finally:
            store.tell("quota /refused -1", "quota")
    else:
        bucket = os.path.join(store.buckets, "models")
        os.rename(bucket, bucket + "-deleted")
        try:
            yield "NoSuchBucket; make the bucket"
        finally:
            os.rename(bucket + "-deleted", bucket)


@only(["s3proxy", "hdfs"])
def test_a_store_that_refuses_is_reported_and_costs_nothing(store, new_node):
    """Training and saves go on, and what was saved meanwhile is copied."""
    node = new_node(1, (f"checkpoint.remote={store.url('refused')}",), near=True)
    with connected(node) as client:
        table = client.table("t", 64, initializer=init.uniform(0, 1, seed=4))
        table.lookup(KEYS)
        save_and_copy(client)
        with refused(store) as says:
            client.wait_for_save(client.save(kind="full"), timeout_s=WAIT_S)
            wait_until(lambda: client.stats()["remote.copies_failed"] >= 2, "the second try fails")
            number = client.wait_for_save(client.save(kind="full"), timeout_s=WAIT_S).id
            assert client.stats()["remote.last_status"] != 0
            lines = [line for line in node.said().splitlines() if "checkpoints are not copied" in line]
            assert len(lines) == 1 and says in lines[0], lines
            assert "(see the log)" in top(node)
            rows = table.lookup(KEYS)
        wait_copied(client, number)
        assert np.array_equal(table.lookup(KEYS), rows)
    assert "succeed again" in node.said()
    assert f"ckpt-{number}: ok" in ckpt("verify", store.url("refused"))


def test_a_link_of_hdfs_is_refused(hdfs, saved):
    ckpt("push", saved, hdfs.url("linked"))
    hdfs.tell("link /linked /link", "link")
    hdfs.tell("link /linked/ckpt-1/MANIFEST /linked/ckpt-2/MANIFEST", "link")
    for says in (
        ckpt("verify", hdfs.url("link"), code=1),
        ckpt("push", saved, hdfs.url("link"), code=1),
        ckpt("info", below(hdfs.url("linked"), "ckpt-2"), code=1),
    ):
        assert len(says.splitlines()) == 1 and "link of HDFS" in says, says


def test_httpfs_does_as_webhdfs(hdfs, saved, folder, new_node):
    """All goes through one server, which is no NameNode."""
    port = int(hdfs.tell("httpfs", "httpfs").split()[1])
    url, back = hdfs.url("httpfs", port), os.path.join(folder, "back-httpfs")
    assert "copied" in ckpt("push", saved, url)
    assert "ckpt-1: ok" in ckpt("verify", url)
    assert "ckpt-1: ok" in ckpt("verify", hdfs.url("httpfs"))
    ckpt("pull", url, back)
    assert same_files(os.path.join(saved, "ckpt-1"), os.path.join(back, "ckpt-1"))
    found = doctor(url)
    assert all(f["level"] != "problem" for f in found) and "1 checkpoint" in found[0]["what"], found
    assert "there is no checkpoint" in ckpt("pull", hdfs.url("nothing", port), back, code=1)
    node = new_node(
        2, (f"checkpoint.directory={hdfs.url('httpfs-node', port)}", "checkpoint.deltas=4"), near=True
    )
    with connected(node) as client:
        trained = Trained(client)
    node.kill()
    node.start(cores=3)
    with connected(node) as client:
        trained.check(client)


def test_what_was_appended_to_a_file_is_found(hdfs, saved, folder):
    """HDFS lets anybody who may write append to a file that is there."""
    url = hdfs.url("appended")
    ckpt("push", saved, url)
    hdfs.tell("append /appended/ckpt-1/core-000.mrc", "append")
    for command in (["verify", url], ["pull", url, os.path.join(folder, "appended")]):
        assert "core-000.mrc" in ckpt(*command, code=1)


def test_a_delegation_token_is_taken_until_it_expires(secure_hdfs, saved, monkeypatch):
    url = secure_hdfs.url("token").replace("auth=negotiate&", "")
    monkeypatch.setenv("MILLRACE_HDFS_TOKEN", secure_hdfs.tell("token 86400000", "token").split()[1])
    assert "copied" in ckpt("push", saved, url)
    monkeypatch.setenv("MILLRACE_HDFS_TOKEN", secure_hdfs.tell("token 1", "token").split()[1])
    says = ckpt("list", url, code=1) + ckpt("push", saved, url, code=1)
    assert (
        len(says.splitlines()) == 2 and says.count("the delegation token has expired: get another one") == 2
    )
    assert os.environ["MILLRACE_HDFS_TOKEN"] not in says


def test_kerberos_lets_in_whom_it_knows(secure_hdfs, saved, new_node, monkeypatch):
    """A keytab is enough: libkrb5 gets the tickets."""
    url = secure_hdfs.url("known")
    monkeypatch.setenv("KRB5_CONFIG", secure_hdfs.known["KRB5_CONFIG"])
    says = ckpt("push", saved, url, code=1)
    assert len(says.splitlines()) == 1 and "Kerberos ticket" in says, says
    for name, value in secure_hdfs.known.items():
        monkeypatch.setenv(name, value)
    assert "copied" in ckpt("push", saved, url)
    assert "ckpt-1: ok" in ckpt("verify", url)
    assert doctor(url)[0]["level"] == "ok"
    node = new_node(1, (f"checkpoint.directory={secure_hdfs.url('node')}",), near=True)
    with connected(node) as client:
        trained = Trained(client, "full")
    node.kill()
    node.start(cores=2)
    with connected(node) as client:
        trained.check(client)


def test_a_key_that_may_only_read_does_so(s3, saved, monkeypatch):
    s3.make_bucket("shared", Container_Read="test:reader")
    url = s3.url("ads").replace("models", "shared")
    ckpt("push", saved, url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test:reader")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "reading")
    assert "ckpt-1: ok" in ckpt("verify", url)
    says = ckpt("push", saved, url.replace("/ads", "/other"), code=1) + ckpt("list", s3.url("there"), code=1)
    assert len(says.splitlines()) == 2 and says.count("AccessDenied; allow this key") == 2, says
    found = doctor(url)[0]
    assert "cannot write" in found["what"] and "PutObject" in found["mend"], found


def test_a_bucket_that_is_full_is_reported(s3, saved):
    s3.make_bucket("small", Container_Meta_Quota_Bytes="1")
    says = ckpt("push", saved, s3.url("ads").replace("models", "small"), code=1)
    assert len(says.splitlines()) == 1 and "quota" in says, says


def test_a_wrong_clock_is_named(s3, folder, monkeypatch):
    library = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
    if not library:
        pytest.skip("faketime is not installed: run scripts/setup.sh test")
    late = os.path.join(folder, "late")
    with open(late, "w", encoding="utf-8") as script:
        tool_path = os.environ["MILLRACE_TOOL"]
        script.write(f'#!/bin/sh\nLD_PRELOAD={library[0]} FAKETIME=-1h exec {tool_path} "$@"\n')
    os.chmod(late, 0o755)
    monkeypatch.setenv("MILLRACE_TOOL", late)
    says = ckpt("list", s3.url("clock"), code=1)
    assert len(says.splitlines()) == 1 and "the clocks of this machine and of the store differ" in says, says
    found = doctor(s3.url("clock"))
    assert "timedatectl" in found[0]["mend"], found
    assert re.search(r"the store's clock is 3[56]\d\d s ahead of this machine's", found[1]["what"]), found


def test_hdfs_in_safe_mode_takes_nothing(hdfs, saved):
    url = hdfs.url("safe")
    hdfs.tell("safemode on", "safemode on")
    says = ckpt("push", saved, url, code=1)
    assert len(says.splitlines()) == 1 and "HDFS is in safe mode" in says
    hdfs.tell("safemode off", "safemode off")
    ckpt("push", saved, url)
    assert "ok" in ckpt("verify", url)


def test_a_datanode_dies_in_the_middle_of_a_save(hdfs, new_node):
    url = hdfs.url("dies")
    settings = (f"checkpoint.remote={url}", "checkpoint.remote_rate_mib_s=4")
    node = new_node(2, settings, near=True)
    with millrace.Client(node.address, deadline_s=WAIT_S, connect_s=60) as client:
        client.table("t", 64, initializer=init.uniform(0, 1, seed=3)).lookup(np.arange(50000))
        number = client.wait_for_save(client.save(), timeout_s=WAIT_S).id
        wait_until(lambda: client.stats()["remote.bytes"] >= 4 << 20, "a part of it is there")
        hdfs.tell("kill", "killed")
        wait_copied(client, number)
        assert "ok" in ckpt("verify", url)  # the NameNode goes on naming it
        hdfs.tell("revive", "revived")
        number = client.wait_for_save(client.save(), timeout_s=WAIT_S).id
        wait_copied(client, number)
    path = f"/dies/ckpt-{number}/core-000.mrc"
    wait_until(lambda: hdfs.tell(f"copies {path}", "copies of").startswith("2"), f"HDFS has {path} twice")


MEMORY_BYTES = 64 << 20  # a node's for copies to a store, from there, or saves there, beside its own


def settle(node) -> int:
    """Waits until a node's memory grows no more, and returns what it has."""
    most, since = node.own_bytes(), time.monotonic()
    while time.monotonic() - since < 0.3:
        now = node.own_bytes()
        if now > most:
            most, since = now, time.monotonic()
        time.sleep(0.01)
    return most


def large_table(client: millrace.Client) -> None:
    """Its rows are 24 MiB in each of three cores."""
    table = client.table("t", 256, initializer=init.uniform(0, 1, seed=5))
    for first in range(0, 72 << 10, 4096):
        table.lookup(np.arange(first, first + 4096))


def filled(proxy: FaultProxy, node, contents: int = 3) -> int:
    """The memory of a node once so many contents are on their way, through a link that is full. What a
    starved node has given up meanwhile, and sent again, is held as well."""
    wait_until(lambda: proxy.held >= contents, f"{contents} contents are on their way")
    return settle(node)


@only(["s3proxy", "hdfs"])
def test_a_slow_store_costs_little_memory(store, proxy, new_node):
    saved = threading.Event()
    proxy.start(lambda i: PASS)
    node = new_node(3, (f"checkpoint.remote={store.url('memory', proxy.port)}",), near=True)
    with connected(node) as client:
        large_table(client)
        proxy.start(lambda i: PASS if saved.wait(WAIT_S) else CUT)
        number = client.wait_for_save(client.save(kind="full"), timeout_s=WAIT_S).id
        before = settle(node)
        proxy.hold()
        saved.set()
        assert 3 << 20 < filled(proxy, node) - before < MEMORY_BYTES, "the copy of a save"
        proxy.go()
        wait_copied(client, number)
        assert node.own_bytes() - before < MEMORY_BYTES, "after it"
    node.kill()
    shutil.rmtree(node.checkpoints)
    proxy.hold()
    node.launch()
    assert filled(proxy, node, 6) < MEMORY_BYTES, "a restore, with all that a node has before it"
    proxy.go()
    node.wait_ready()


@only(["s3proxy", "hdfs"])
def test_nothing_of_a_store_shares_the_data_cores_cpu(store, proxy, new_node):
    """A copy, a restore by a call and at a start, and a save straight there: the data core alone is there."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("there is one processor")
    cpu, url = cpus[-1], store.url("cpu", proxy.port)
    proxy.start(lambda i: PASS)
    node = new_node(
        1, (f"checkpoint.remote={url}", f"checkpoint.allow={url}", f"cores.cpus={cpu}"), near=True
    )

    def check(what: str) -> None:
        """While contents are held up."""
        wait_until(lambda: proxy.held > 0, f"{what} has begun")
        assert node.threads_on(cpu) == 1, what
        proxy.go()

    with connected(node) as client:
        large_table(client)
        proxy.hold()
        number = client.wait_for_save(client.save(kind="full"), timeout_s=WAIT_S).id
        check("a copy")
        wait_copied(client, number)
        proxy.hold()
        save = client.save(url.replace("/cpu", "/cpu/straight"))
        check("a save")
        client.wait_for_save(save, timeout_s=WAIT_S)
        proxy.hold()
        command = ["ctl", "restore", "--server", node.address, "--directory", url]
        restore = threading.Thread(target=tool, args=command)
        restore.start()
        check("a restore")
        restore.join()
    node.kill()
    shutil.rmtree(node.checkpoints)
    proxy.hold()
    node.launch()
    check("a restore at the start")
    node.wait_ready()
    assert node.threads_on(cpu) == 1


@only(["s3proxy", "hdfs"])
def test_a_save_to_a_slow_store_costs_little_memory(store, proxy, new_node):
    proxy.start(lambda i: PASS)
    node = new_node(3, (f"checkpoint.directory={store.url('straight', proxy.port)}",), near=True)
    with connected(node) as client:
        large_table(client)
        before = settle(node)
        proxy.hold()
        number = client.save(kind="full")
        assert 3 << 20 < filled(proxy, node) - before < MEMORY_BYTES
        proxy.go()
        client.wait_for_save(number, timeout_s=WAIT_S)


def recorded(node) -> list[tuple[str, int]]:
    """How far the copy is, by the node's own record: of each file, what there is, and how many bytes."""
    path = os.path.join(node.checkpoints, "copying")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as record:
        lines = [line.split() for line in record]
    return sorted((words[0], int(words[2])) for words in lines if words[0] in ("whole", "part"))


def test_a_killed_copy_goes_on(store, proxy, new_node):
    """S3 has parts of each file then, HDFS two files."""
    part = 8 << 20
    wanted = ("core-002",) if isinstance(store, Hdfs) else ("partNumber=3",)
    proxy.start(lambda i: PASS)
    url = store.url("goes-on")
    node = new_node(3, (f"checkpoint.remote={store.url('goes-on', proxy.port)}",), near=True)
    killed = threading.Event()

    def plan(i: int) -> str:
        method, target = proxy.now.request
        if method == "PUT" and any(word in target for word in wanted):
            killed.wait(WAIT_S)
            return CUT
        return PASS

    with connected(node) as client:
        large_table(client)
        proxy.start(plan)
        number = client.wait_for_save(client.save(kind="full"), timeout_s=WAIT_S).id
    files = 2 if isinstance(store, Hdfs) else 3

    def is_there() -> bool:
        return len([size for _, size in recorded(node) if size >= part]) == files

    wait_until(is_there, f"the store has something of {files} files")
    node.kill()
    kept = sum(size for _, size in recorded(node))
    names = [f"core-{core:03}.mrc" for core in range(3)]
    sizes = [os.path.getsize(os.path.join(node.checkpoints, f"ckpt-{number}", name)) for name in names]
    assert min(sizes) > 2 * part
    killed.set()
    proxy.start(lambda i: PASS)
    node.start()
    with connected(node) as client:
        wait_copied(client, number)
        stats = client.stats()
    if stats["remote.copies_failed"] == 0:
        assert (stats["remote.bytes_kept"], stats["remote.bytes"]) == (kept, sum(sizes) - kept)
    else:  # the store was too slow for a try: the next one keeps what is there then
        assert stats["remote.bytes_kept"] >= kept and stats["remote.bytes"] >= sum(sizes) - kept
    assert recorded(node) == []
    assert f"ckpt-{number}: ok" in ckpt("verify", url)
