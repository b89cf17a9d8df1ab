#!/usr/bin/env python3
"""A cluster of three nodes, each a host of its own, under faults: trainers push all the time, readers look
up, and at the end each row has each push once.

usage: cluster_faults.py MILLRACED MILLRACE REPLICATION [SEED]

    the hub's network            nodes' networks
    br0 10.98.0.254 ============ eth0 10.98.0.1 (n0), 10.98.0.2 (n1), 10.98.0.3 (n2)
    ZooKeeper, trainers, readers

MILLRACE_FAULTS_S: for how many seconds (3600 unless set); MILLRACE_FAULT_EVERY_S: between two faults (20);
MILLRACE_FAULTS: only these, by their names. Needs root, java and Debian's package zookeeper.

History: each push adds 1 to all rows of its trainer's table, so a row's value is how many pushes it has. A
trainer sees each of its own pushes at once, also after a failover, and nothing else. Another client may see
fewer for as long as a promoted node has not got the last ones again from the trainer; but by a map that is
not newer than that of an acknowledged push it never sees less than this push: an answer from before a node
was stopped is stale.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from waits import wait_until  # noqa: E402
from zookeeper_server import ZooKeeperServer, die_with_parent  # noqa: E402

NODES, KEYS, DIM, TRAINERS = 3, 400, 4, 2
SESSION_MS, LIMIT_MIB, DISK_MIB = 4000, 256, 512
PORT, ZOOKEEPER = 7700, "10.98.0.254:2181"
SERVERS = ",".join(f"10.98.0.{i + 1}:{PORT}" for i in range(NODES))
GROWTH_MIB = 64  # of a node that holds the same, from the first third of the run to the last
STARTS_MAX = 4096
SKIPPED = 77
# What trainers say, in memory that all processes share: by trainer.
ISSUED, ACKED, START_COUNT, CHECKS, WORDS = 0, 1, 2, 3, 4


def run(*command: str, check: bool = True) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0 or not check, f"{' '.join(command)}: {done.stdout}"
    return done.stdout


# ---- trainers and readers: processes of this program ----


def history(path: str) -> tuple[np.ndarray, np.ndarray]:
    """[TRAINERS, WORDS] of what they have done, and [TRAINERS, STARTS_MAX] by which maps, oldest first."""
    words = np.memmap(path, dtype=np.uint64, mode="r+", shape=(TRAINERS * (WORDS + STARTS_MAX),))
    return words[: TRAINERS * WORDS].reshape(TRAINERS, WORDS), words[TRAINERS * WORDS :].reshape(TRAINERS, -1)


def open_client(replay: bool):  # type: ignore[no-untyped-def]
    import millrace

    return millrace.Client(SERVERS, deadline_s=300, connect_s=300, replay=replay)


def table_of(client, trainer: int):  # type: ignore[no-untyped-def]
    from millrace import init, optim

    return client.table(f"t{trainer}", DIM, optimizer=optim.SGD(lr=1.0), initializer=init.constant(0.0))


def keys_of(trainer: int) -> np.ndarray:
    return np.arange(KEYS, dtype=np.uint64) * np.uint64(2654435761) + np.uint64(trainer)


def check_own(table, keys: np.ndarray, step: int) -> None:  # type: ignore[no-untyped-def]
    values = np.asarray(table.lookup(keys))
    if not (values == step).all():
        found = {float(value): int((values == value).any(axis=1).sum()) for value in np.unique(values)}
        raise AssertionError(
            f"{time.strftime('%H:%M:%S')}: after {step} pushes rows have {found} (rows by pushes)"
        )


def train(path: str, trainer: int) -> None:
    words, maps = history(path)
    mine, my_maps = words[trainer], maps[trainer]
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    with open_client(replay=True) as client:
        table, keys, step = table_of(client, trainer), keys_of(trainer), 0
        gradients = np.full((KEYS, DIM), -1, dtype=np.float32)
        while not stopped:
            step += 1
            mine[ISSUED] = step
            table.push_gradients(keys, gradients, step=step)
            count, start = int(mine[START_COUNT]), client.start_id
            if count == 0 or int(my_maps[count - 1]) != start:
                assert count < STARTS_MAX
                my_maps[count] = start
                mine[START_COUNT] = count + 1
            mine[ACKED] = step
            if step % 5 == 0:
                check_own(table, keys, step)
                mine[CHECKS] += 1
            time.sleep(0.02)
        check_own(table, keys, step)
        assert client.replay_info().dropped == 0
        print(f"trainer {trainer}: {step} pushes, each once", flush=True)


def read(path: str, seed: int) -> None:
    words, maps = history(path)
    rng, looked = random.Random(seed), 0
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    with open_client(replay=False) as client:
        tables = [table_of(client, trainer) for trainer in range(TRAINERS)]
        while not stopped:
            trainer = rng.randrange(TRAINERS)
            keys = keys_of(trainer)[rng.randrange(KEYS) :][: rng.randrange(1, 40)]
            known = int(words[trainer][START_COUNT])
            least = int(words[trainer][ACKED])  # by one of the first `known` maps, or a newer one
            values = np.asarray(tables[trainer].lookup(keys, read_only=True))
            most, start = int(words[trainer][ISSUED]), client.start_id
            if (values > most).any():
                raise AssertionError(f"table {trainer}: {values.max()} of {most} pushes")
            is_old = start in maps[trainer][:known].tolist()  # by a map that the push had, or one before it
            if is_old and (values < least).any():
                raise AssertionError(f"table {trainer}: a stale answer: {values.min()} of {least} pushes")
            looked += 1
            time.sleep(0.005)
        print(f"reader {seed}: {looked} lookups, none stale", flush=True)


# ---- the cluster ----


class Node:
    """A host with a cable to the hub, and the node that runs on it."""

    def __init__(self, number: int, programs: list[str], replication: int, folder: Path):
        self.number, self.millraced, self.name = number, programs[0], f"n{number}"
        self.log_path = folder / f"{self.name}.log"
        self.host = subprocess.Popen(["unshare", "-n", "sleep", "infinity"], preexec_fn=die_with_parent)
        inside = f"/proc/{self.host.pid}/ns/net"
        wait_until(lambda: os.readlink(inside) != os.readlink("/proc/self/ns/net"), "the host's network")
        self.cable = f"to{number}"
        run(
            "ip",
            "link",
            "add",
            self.cable,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            str(self.host.pid),
        )
        run("ip", "link", "set", self.cable, "master", "br0", "up")
        for command in ("link set lo up", f"addr add 10.98.0.{number + 1}/24 dev eth0", "link set eth0 up"):
            run("nsenter", "-t", str(self.host.pid), "-n", "ip", *command.split())
        self.config = folder / f"{self.name}.conf"
        self.config.write_text(
            f"[port]\ndriver = socket\nipv4 = 10.98.0.{number + 1}/24\nudp_port = {PORT}\n"
            "[cores]\ncount = 2\npoll_mode = adaptive\n"
            f"[memory]\npackets_mib = 64\nlimit_mib = {LIMIT_MIB}\nmessages_mib = 64\nhugepages = never\n"
            f"[cluster]\nname = soak\nnode = {self.name}\nzookeeper = {ZOOKEEPER}\nnodes = {NODES}\n"
            f"session_ms = {SESSION_MS}\ntake_over_s = 5\nreplication = {replication}\n"
            f"[checkpoint]\ndirectory = {folder}/ckpt\nevery_s = 7\nkeep = 2\n"
        )
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with self.log_path.open("a") as log:
            self.process = subprocess.Popen(
                ["nsenter", "-t", str(self.host.pid), "-n", self.millraced, "--config", str(self.config)],
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def proc(self, name: str) -> str:
        assert self.process is not None
        return Path(f"/proc/{self.process.pid}/{name}").read_text()

    def rss_mib(self) -> int:
        found = re.search(r"VmRSS:\s+(\d+)", self.proc("status"))
        assert found
        return int(found.group(1)) // 1024

    def descriptors(self) -> int:
        assert self.process is not None
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


class Soak:
    def __init__(self, programs: list[str], replication: int, seed: int, folder: Path):
        self.tool, self.replication, self.folder, self.rng = (
            programs[1],
            replication,
            folder,
            random.Random(seed),
        )
        self.stops, self.away = 0, None
        self.history = str(folder / "history")
        Path(self.history).write_bytes(bytes(8 * TRAINERS * (WORDS + STARTS_MAX)))
        (folder / "ckpt").mkdir()
        run("mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", str(folder / "ckpt"))
        for command in ("link set lo up", "link add br0 type bridge", "addr add 10.98.0.254/24 dev br0"):
            run("ip", *command.split())
        run("ip", "link", "set", "br0", "up")
        self.zookeeper = ZooKeeperServer(folder)
        self.nodes = [Node(i, programs, replication, folder) for i in range(NODES)]
        wait_until(self.settled, "the cluster forms")
        self.clients = [self.client("train", str(i)) for i in range(TRAINERS)]
        wait_until(lambda: history(self.history)[0][:, ACKED].all(), "training begins", but=ValueError)
        self.clients += [self.client("read", str(seed + i)) for i in range(2)]
        self.flat: list[tuple[str, int, int, int]] = []  # name, pid, RSS, descriptors

    def client(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, __file__, arguments[0], self.history, *arguments[1:]],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=die_with_parent,
        )

    def shown(self) -> dict:
        done = subprocess.run(
            [self.tool, "ctl", "nodes", "--json", "--server", SERVERS, "--deadline-ms", "5000"],
            capture_output=True,
            text=True,
            check=False,
        )
        return json.loads(done.stdout) if done.returncode == 0 and done.stdout else {"nodes": []}

    def settled(self) -> bool:
        """All nodes are there, own something, and with copies each partition has one."""
        shown = self.shown()
        return (
            len(shown["nodes"]) == NODES
            and all(node["state"] == "there" and node["partitions"] > 0 for node in shown["nodes"])
            and not shown["moves"]
            and (self.replication == 1 or all(node["uncopied"] == 0 for node in shown["nodes"]))
        )

    def check_clients(self) -> None:
        for client in self.clients:
            if client.poll() is not None:
                text, _ = client.communicate()
                raise AssertionError(f"a client ended: {text[-2000:]}")

    def goes_on(self) -> None:
        """Every trainer makes some pushes more."""
        words = history(self.history)[0]
        goals = [int(word) + 3 for word in words[:, ACKED]]

        def is_so() -> bool:
            self.check_clients()
            return all(int(word) >= goal for word, goal in zip(words[:, ACKED], goals))

        wait_until(is_so, f"training goes on after {[int(word) for word in words[:, ACKED]]} pushes", 150)

    # ---- faults ----

    def any_node(self) -> Node:
        return self.rng.choice([node for node in self.nodes if node is not self.away])

    def fault_kill(self) -> None:
        node = self.any_node()
        node.kill()
        time.sleep(self.rng.choice([0.0, 0.3, 2.0]))
        node.start()

    def fault_kill_for_long(self) -> None:
        """It stays away while others go on with what it had; another fault may meet them."""
        if self.away is not None or not self.settled():
            return
        self.away = self.any_node()
        self.away.kill()

    def fault_stop(self) -> None:
        node = self.any_node()
        for _ in range(self.rng.choice([1, 40])):
            assert node.process is not None
            node.process.send_signal(signal.SIGSTOP)
            time.sleep(self.rng.choice([0.01, 0.05, 0.3]))
            node.process.send_signal(signal.SIGCONT)
            time.sleep(0.02)
            self.stops += 1

    def fault_hang(self) -> None:
        """For longer than its lease, and perhaps than its session."""
        node = self.any_node()
        assert node.process is not None
        node.process.send_signal(signal.SIGSTOP)
        time.sleep(self.rng.choice([2.5, 5.0, 9.0, 14.0]))
        node.process.send_signal(signal.SIGCONT)
        self.stops += 1

    def fault_cable(self) -> None:
        node = self.any_node()
        run("ip", "link", "set", node.cable, "down")
        time.sleep(self.rng.choice([0.5, 3.0, 6.0, 12.0]))
        run("ip", "link", "set", node.cable, "up")

    def fault_disk(self) -> None:
        filler = self.folder / "ckpt/filler"
        run("dd", "if=/dev/zero", f"of={filler}", "bs=1M", f"count={DISK_MIB}", check=False)
        time.sleep(10)
        filler.unlink()

    def fault_memory(self) -> None:
        """Rows are made until one node after the other refuses them, and are dropped again."""
        with open_client(replay=False) as client:
            junk = client.table("junk", 512)
            refused = 0
            for block in range(600):
                junk.lookup(np.arange(2000, dtype=np.uint64) + np.uint64(block * 2000))
                refused = sum(state.rows_refused for state in client.heartbeat())
                if refused > 20000:
                    break
            client.drop("junk")

    def fault_zookeeper(self) -> None:
        self.zookeeper.kill()
        time.sleep(self.rng.choice([0.0, 1.0, 5.0, 10.0]))
        self.zookeeper.start()

    def faults(self) -> list[str]:
        chosen = os.environ.get("MILLRACE_FAULTS", "").split()
        names = [name[len("fault_") :] for name in dir(self) if name.startswith("fault_")]
        return [name for name in names if not chosen or name in chosen]

    def one_fault(self, name: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {name}", flush=True)
        getattr(self, f"fault_{name}")()
        self.goes_on()

    def bring_back(self) -> None:
        if self.away is not None:
            self.away.start()
            self.away = None

    # ---- what is to stay as it was ----

    def measure(self) -> None:
        for node in self.nodes:
            if node is not self.away and node.process is not None and node.process.poll() is None:
                self.flat.append((node.name, node.process.pid, node.rss_mib(), node.descriptors()))

    def check_flat(self, znodes: int) -> None:
        third = len(self.flat) // 3
        first, last = self.flat[:third], self.flat[-third:]
        if third >= 9:
            for at, what, room in ((2, "MiB", GROWTH_MIB), (3, "descriptors", 16)):
                before, after = max(line[at] for line in first), max(line[at] for line in last)
                print(f"{what} of a node: at most {before} at first, {after} at last")
                assert after <= before + room, f"{what} of nodes grow: {before} to {after}"
        wait_until(
            lambda: self.zookeeper.says("zk_znode_count") <= znodes + 4, "znodes of before are gone", 60
        )
        sessions = self.zookeeper.says("zk_num_alive_connections")
        last_znodes = self.zookeeper.says("zk_znode_count")
        print(f"znodes: {znodes} at first, {last_znodes} at last; sessions: {sessions}")
        assert sessions <= NODES + 1

    def end(self) -> None:
        for node in self.nodes:
            node.kill()
            node.host.kill()
            node.host.wait()
        self.zookeeper.kill()

    def run(self, seconds: float, every: float) -> None:
        begun = time.monotonic()
        znodes = self.zookeeper.says("zk_znode_count")
        names: list[str] = []
        count = 0
        while time.monotonic() - begun < seconds:
            names = names or self.rng.sample(self.faults(), len(self.faults()))
            next_s = time.monotonic() + every
            self.one_fault(names.pop())
            count += 1
            if self.away is None or self.rng.random() < 0.5:
                self.bring_back()
                wait_until(self.settled, "the cluster is as before", 150)
                self.measure()
            while time.monotonic() < next_s:
                self.check_clients()
                time.sleep(0.2)
        self.bring_back()
        wait_until(self.settled, "the cluster is as before", 150)
        self.goes_on()
        for client in self.clients:
            client.send_signal(signal.SIGTERM)
        for client in self.clients:
            text, _ = client.communicate(timeout=300)
            print(text.strip()[-2000:])
            assert client.returncode == 0, "a client has failed"
        self.check_flat(znodes)
        passed_s = time.monotonic() - begun
        print(f"cluster_faults: {count} faults in {passed_s:.0f} s, {self.stops} stops: all well")


def main() -> int:
    if sys.argv[1] == "train":
        train(sys.argv[2], int(sys.argv[3]))
        return 0
    if sys.argv[1] == "read":
        read(sys.argv[2], int(sys.argv[3]))
        return 0
    if os.geteuid() != 0 or not Path("/usr/share/java/zookeeper.jar").exists() or not shutil.which("java"):
        print("skipped: needs root, java and Debian's package zookeeper")
        return SKIPPED
    if os.environ.get("MILLRACE_FAULTS_INSIDE") != "1":
        inside = {**os.environ, "MILLRACE_FAULTS_INSIDE": "1"}
        os.execvpe("unshare", ["unshare", "-n", "-m", sys.executable, *sys.argv], inside)
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else random.randrange(1 << 31)
    print(f"cluster_faults: replication {sys.argv[3]}, seed {seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="millrace-faults-"))
    try:
        soak = Soak(sys.argv[1:3], int(sys.argv[3]), seed, folder)
        soak.run(
            float(os.environ.get("MILLRACE_FAULTS_S", 3600)),
            float(os.environ.get("MILLRACE_FAULT_EVERY_S", 20)),
        )
    except BaseException:
        print(f"cluster_faults: failed with seed {seed}; logs are in {folder}", flush=True)
        raise
    soak.end()
    run("umount", str(folder / "ckpt"))
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
