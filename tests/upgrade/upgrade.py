#!/usr/bin/env python3
"""Programs of older versions beside today's: nodes, clients, hubs, tools and checkpoints, in both directions.

usage: upgrade.py BUILD [NAME]...     BUILD: today's build directory; NAME: of tests/upgrade/versions
       $MILLRACE_UPGRADE_ONLY: the end of a test's name, as "rolling"

Each pair gives the same rows, bit for bit, or is refused with a text that names versions. Nodes serve on
loopback in a network namespace of the test's own; those of versions without `driver = socket` on a veth pair,
by af_packet.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
import build as builds  # noqa: E402
from rolling import Rolling  # noqa: E402
from zookeeper_server import ZooKeeperServer  # noqa: E402

PROGRAM = Path(__file__).resolve().parent / "program.py"
# The network of the test: where nodes without sockets have their end of a cable, and clients theirs.
NETWORK = """ip link set lo up && ip link add node0 type veth peer name client0 &&
ip addr add 10.99.0.2/24 dev client0 &&
ethtool -K client0 tx off sg off tso off gso off gro off > /dev/null &&
ethtool -K node0 tx off sg off tso off gso off gro off > /dev/null &&
ip link set node0 up && ip link set client0 up && exec "$0" "$@\""""
SOCKETS = "driver = socket\nipv4 = 127.0.0.1/8\n"
CABLE = "driver = af_packet\ndevice = node0\nipv4 = 10.99.0.1/24\n"
CONFIG = """[cores]
count = 2
poll_mode = adaptive
[memory]
packets_mib = 128
limit_mib = 512
messages_mib = 128
hugepages = never
[checkpoint]
every_s = 0
save_on_stop = no
keep = 1
"""
START_S = 60
SKIPPED = 77  # meson's


class Programs:
    """What one version has built."""

    def __init__(self, name: str, build: Path, form: int):
        self.name, self.build, self.format = name, build, form
        libraries = sorted(build.glob("trainer_client/libmillrace.so.*"))
        self.library = [path for path in libraries if path.is_file() and not path.is_symlink()][-1]
        self.node = build / "ps/millraced"
        self.tool = build / "tools/millrace"
        self.hub = build / "trainer_client/hub/millrace-hub"
        self.fm = build / "trainer_client/examples/fm"

        config = subprocess.run([self.node, "--print-config"], capture_output=True, text=True).stdout
        has_sockets = re.search(r"^# Allowed: auto, .*\bsocket\b", config, re.MULTILINE) is not None
        self.port = SOCKETS if has_sockets else CABLE
        self.address = "127.0.0.1:7700" if has_sockets else "10.99.0.1:7700"

    @property
    def has_capabilities(self) -> bool:
        """Says in handshakes, maps and checkpoints what it can do."""
        return self.format >= 7

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(self.build / "trainer_client/python"),
            "MILLRACE_LIBRARY": str(self.library),
        }

    def python(self, address: str, *arguments: str) -> subprocess.CompletedProcess:
        return run(["/usr/bin/python3", PROGRAM, address, *arguments], env=self.environment())

    def ctl(self, address: str, *arguments: str) -> subprocess.CompletedProcess:
        return run([self.tool, "ctl", *arguments, "--server", address])


def run(command, **options) -> subprocess.CompletedProcess:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, **options
    )
    return done


class Node:
    def __init__(self, programs: Programs, folder: Path, *arguments: str):
        self.log = folder / f"{programs.name}-{time.monotonic_ns()}.log"
        config = folder / f"{programs.name}.conf"
        config.write_text(f"[port]\n{programs.port}{CONFIG}")
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                [
                    programs.node,
                    "--config",
                    config,
                    "--set",
                    f"checkpoint.directory={folder}/ckpt",
                    *arguments,
                ],
                stdout=out,
                stderr=out,
            )
        deadline = time.monotonic() + START_S
        while "ready" not in self.text() and self.process.poll() is None:
            if time.monotonic() > deadline:
                self.end()
                raise AssertionError(f"{programs.name}: the node is not ready: {self.text()}")
            time.sleep(0.05)

    def text(self) -> str:
        return self.log.read_text()

    @property
    def serves(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


class Pair:
    """Today's programs and those of one older version."""

    def __init__(self, today: Programs, older: Programs, folder: Path):
        self.today, self.older, self.folder = today, older, folder
        self.failed = 0
        self.expected = self.rows(today, today, "reference")

    def say(self, what: str, is_good: bool, text: str) -> None:
        self.failed += not is_good
        last = (text.strip().splitlines() or ["nothing was said"])[-1]
        print(f"{self.older.name:12} {what:52} {'ok' if is_good else 'FAILED'}: {last[:200]}")

    def rows(self, node: Programs, client: Programs, name: str) -> dict[str, bytes] | str:
        """What the same program leaves behind; a text: why there is nothing."""
        folder = self.folder / name
        folder.mkdir()
        with Node(node, folder) as served:
            if not served.serves:
                return served.text()
            for arguments in (("train", "1"), ("train", "2"), ("dump", str(folder / "rows.npz"))):
                done = client.python(node.address, *arguments)
                if done.returncode != 0:
                    return done.stdout
            saved = client.ctl(node.address, "save", "--full", "--wait")
            if saved.returncode != 0:
                return saved.stdout
        return content(folder / "rows.npz")

    def same(self, what: str, found: dict[str, bytes] | str, may_refuse: bool = True) -> None:
        is_good = found == self.expected or (may_refuse and isinstance(found, str) and names_versions(found))
        self.say(what, is_good, "the same rows" if found == self.expected else str(found)[-300:])

    # ---- clients, tools, hubs ----

    def test_clients(self) -> None:
        self.same("older client, today's node", self.rows(self.today, self.older, "client"))
        self.same("today's client, older node", self.rows(self.older, self.today, "node"))

    def test_new_features(self) -> None:
        """What the older node would misunderstand is not sent."""
        folder = self.folder / "features"
        folder.mkdir()
        with Node(self.older, folder):
            for kind in ("dense", "adam_step"):
                done = self.today.python(self.older.address, "make", kind)
                is_good = done.returncode != 0 and names_versions(done.stdout) and kind in done.stdout
                is_good = done.returncode == 0 if self.older.has_capabilities else is_good
                self.say(f"today's client, older node, {kind}", is_good, done.stdout)
            listed = self.today.ctl(self.older.address, "list")
            is_good = listed.returncode == 0 or names_versions(listed.stdout)
            self.say("today's ctl list, older node", is_good, listed.stdout or "empty")

    def test_tools(self) -> None:
        folder = self.folder / "tools"
        folder.mkdir()
        with Node(self.today, folder) as node:
            for command in ("list", "heartbeat"):
                done = self.older.ctl(self.today.address, command)
                is_good = done.returncode == 0 or "not of the form this version expects" in done.stdout
                self.say(f"older ctl {command}, today's node", is_good, done.stdout or "empty")
            assert node.serves

    def test_hub(self) -> None:
        data = self.folder / "samples.svm"
        data.write_text("".join(f"{i % 2} {1 + i % 7}:1 {8 + i % 11}:0.5\n" for i in range(4096)))
        for node, hub, trainer, what in (
            (self.today, self.older, self.today, "older hub, today's node and trainer"),
            (self.today, self.today, self.older, "older trainer, today's node and hub"),
            (self.older, self.today, self.today, "older node, today's hub and trainer"),
        ):
            folder = self.folder / what.replace(" ", "-").replace(",", "").replace("'", "")
            folder.mkdir()
            with Node(node, folder):
                usage = subprocess.run([hub.hub, "--help"], capture_output=True, text=True).stdout
                allow = ["--allow", "/"] if "--allow" in usage else []  # of later versions than 0.2
                served = subprocess.Popen(
                    [hub.hub, "--server", node.address, "--listen", "127.0.0.1:7800", *allow],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                done = run(
                    [trainer.fm, "train", "--hub", "127.0.0.1:7800", "--server", node.address, "--data", data]
                    + ["--format", "libsvm", "--batch", "256", "--epochs", "2", "--quiet"],
                    env={**os.environ, "LD_LIBRARY_PATH": str(trainer.library.parent)},
                )
                served.terminate()
                served.wait(60)
            is_good = done.returncode == 0 or names_versions(done.stdout)
            if hub is self.older:  # it does not say why it has nothing; the trainer ends with an error
                is_good |= "giving up" in done.stdout
            self.say(what, is_good, done.stdout or "trained")

    # ---- checkpoints ----

    def restart(self, programs: Programs, folder: Path, what: str) -> None:
        may_refuse = programs is self.older  # a node reads what earlier versions wrote
        with Node(programs, folder) as node:
            if not node.serves:
                self.same(what, node.text(), may_refuse)
                return
            done = self.today.python(programs.address, "dump", str(folder / "again.npz"))
            found = content(folder / "again.npz") if done.returncode == 0 else done.stdout
            self.same(what, found, may_refuse)

    def test_checkpoints(self) -> None:
        self.restart(self.today, self.folder / "node", "older checkpoint, today's node")
        self.restart(self.older, self.folder / "reference", "today's checkpoint, older node")

    def test_retention(self) -> None:
        """An older node refuses what it would misread, and goes on without removing it."""
        folder = self.folder / "retention"
        folder.mkdir()
        with Node(self.today, folder):
            made = self.today.python(self.today.address, "make", "dense")
            saved = self.today.ctl(self.today.address, "save", "--full", "--wait")
            assert made.returncode == 0 and saved.returncode == 0, made.stdout + saved.stdout
        with Node(self.older, folder) as node:
            is_refused = not node.serves and "format 7" in node.text()
            is_good = node.serves if self.older.has_capabilities else is_refused
            self.say("a dense table's checkpoint, older node", is_good, node.text())
        if self.older.has_capabilities:  # it reads it, and may remove it for newer ones
            return
        with Node(self.older, folder, "--restore", "none"):
            for seed in "123":
                done = self.older.python(self.older.address, "train", seed)
                saved = self.older.ctl(self.older.address, "save", "--full", "--wait")
                assert done.returncode == 0 and saved.returncode == 0, done.stdout + saved.stdout
        kept = (folder / "ckpt/ckpt-1/MANIFEST").exists()
        self.say("the older node's retention keeps it", kept, " ".join(sorted(os.listdir(folder / "ckpt"))))
        with Node(self.today, folder, "--restore", "1") as node:
            self.say("today's node has it again", node.serves, node.text())

    # ---- a cluster ----

    def test_cluster(self) -> None:
        if self.older.format < 6:  # no clusters
            return
        self.mixed_cluster("led by the older node", self.older, self.today)
        self.mixed_cluster("led by today's node", self.today, self.older)

    def mixed_cluster(self, how: str, *members: Programs) -> None:
        """It serves what both know, refuses the rest by name, saves, and both load what they have saved. The
        first of the members to come leads."""
        folder = self.folder / f"cluster-{members[0].name}"
        (folder / "ckpt").mkdir(parents=True)
        keys = ["--set", "cluster.name=mixed", "--set", "cluster.zookeeper=127.0.0.1:2181"]
        keys += ["--set", "cluster.nodes=2", "--set", "cluster.session_ms=4000"]
        ports = {members[0]: "7700", members[1]: "7750"}

        def nodes() -> contextlib.ExitStack:
            with contextlib.ExitStack() as stack:
                for name, member in zip("ab", members):
                    where = ["--set", f"cluster.node={name}", "--set", f"port.udp_port={ports[member]}"]
                    stack.enter_context(Node(member, folder, *keys, *where))
                return stack.pop_all()

        def program(*arguments: str) -> subprocess.CompletedProcess:
            return self.today.python(f"127.0.0.1:{ports[self.today]}", *arguments)

        def dumped(name: str) -> dict[str, bytes] | str:
            done = wait_until(lambda: program("dump", str(folder / name)), lambda d: d.returncode == 0)
            return content(folder / name) if done.returncode == 0 else done.stdout

        with ZooKeeperServer(folder, "127.0.0.1"):
            with nodes():
                done = wait_until(
                    lambda: self.today.ctl(f"127.0.0.1:{ports[self.older]}", "nodes"),
                    lambda d: d.stdout.count("there") == 2 and "not in the map" not in d.stdout,
                )
                shown = "0.3." if self.older.has_capabilities else "before 0.3.0"
                self.say(f"a cluster {how}: ctl nodes", shown in done.stdout, done.stdout)
                trained = program("train", "1")
                self.say(f"a cluster {how}: training", trained.returncode == 0, trained.stdout or "trained")
                made = program("make", "adam_step")
                is_good = made.returncode != 0 and names_versions(made.stdout)
                is_good = made.returncode == 0 if self.older.has_capabilities else is_good
                self.say(f"a cluster {how}: a new feature", is_good, made.stdout or "made")
                saved = self.today.ctl(f"127.0.0.1:{ports[self.today]}", "save", "--wait")
                there = any((folder / "ckpt").glob("CLUSTER-*"))
                self.say(f"a cluster {how}: save", saved.returncode == 0 and there, saved.stdout)
                before = dumped("rows.npz")
            with nodes():
                again = dumped("again.npz")
        is_same = isinstance(again, dict) and again == before
        self.say(
            f"a cluster {how}: its checkpoint", is_same, "the same rows" if is_same else str(again)[-300:]
        )

    def test_rolling(self) -> None:
        """A running cluster is upgraded; trainers of both versions lose nothing."""
        if not self.older.has_capabilities:
            return
        folder = self.folder / "rolling"
        (folder / "ckpt").mkdir(parents=True)
        with ZooKeeperServer(folder, "127.0.0.1"), Rolling(self.today, self.older, folder, Node) as rolling:
            text = rolling.run()
        self.say("a rolling upgrade", "FAILED" not in text, text)

    # ---- the library ----

    def test_library(self) -> None:
        """A program of the same minor version runs over today's library; of another, it is not started."""
        folder = self.folder / "library"
        folder.mkdir()
        soname = ".".join(self.today.library.name.split(".")[:4])
        for name in (self.today.library.name, soname):
            if not (folder / name).exists():
                (folder / name).symlink_to(self.today.library)
        copy = folder / "fm"  # away from its own library, which it finds beside it
        shutil.copy(self.older.fm, copy)
        done = run([copy, "--help"], env={**os.environ, "LD_LIBRARY_PATH": str(folder)})
        refused = re.search(r"libmillrace\.so\.\d.*cannot open", done.stdout) is not None
        is_same = self.older.library.name.startswith(soname + ".")
        is_good = done.returncode == 0 if is_same else done.returncode != 0 and refused
        self.say("older program, today's library", is_good, done.stdout)


def wait_until(ask, is_done, seconds: float = 120):
    deadline = time.monotonic() + seconds
    while True:
        answer = ask()
        if is_done(answer) or time.monotonic() > deadline:
            return answer
        time.sleep(0.2)


def content(path: Path) -> dict[str, bytes]:
    with np.load(path) as arrays:
        return {name: arrays[name].tobytes() for name in arrays.files}


def names_versions(text: str) -> bool:
    return re.search(r"version (before )?\d|before 0\.3\.0|protocol|of format \d", text) is not None


def main() -> int:
    if os.environ.get("MILLRACE_UPGRADE_INSIDE") != "1":
        inside = {**os.environ, "MILLRACE_UPGRADE_INSIDE": "1"}
        os.execvpe("unshare", ["unshare", "-n", "sh", "-c", NETWORK, sys.executable, *sys.argv], inside)
    today = Programs("today", Path(sys.argv[1]).resolve(), 7)
    chosen = [v for v in builds.versions() if len(sys.argv) == 2 or v.name in sys.argv[2:]]
    if not all(builds.is_known(version) for version in chosen):
        print("upgrade: skipped: this repository's history does not reach back to the listed versions")
        return SKIPPED
    failed = 0
    for version in chosen:
        builds.build(version)
        with tempfile.TemporaryDirectory(prefix="millrace-upgrade-") as folder:
            pair = Pair(today, Programs(version.name, version.tree / "build", version.format), Path(folder))
            assert isinstance(pair.expected, dict), pair.expected
            tests = [pair.test_clients, pair.test_checkpoints]  # which read what the first ones wrote
            tests += [pair.test_retention, pair.test_cluster, pair.test_rolling, pair.test_new_features]
            tests += [pair.test_tools, pair.test_hub, pair.test_library]
            only = os.environ.get("MILLRACE_UPGRADE_ONLY", "")
            for test in tests:
                if test.__name__.endswith(only):
                    test()
            failed += pair.failed
    print(f"upgrade: {len(chosen)} versions, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
