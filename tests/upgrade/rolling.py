"""The upgrade of a running cluster, node by node, while trainers of both versions push all the time.

Used by upgrade.py. Each trainer has a table of its own and works out what its rows are to be, so what is lost
or applied twice shows in the bits.
"""

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Callable

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
from waits import wait_until  # noqa: E402

NODES = 3
STEPS = 20  # that each trainer goes on between two changes
SECONDS = 120  # for anything that is waited for


class Trainer:
    """A process of trainer.py, which pushes until it is told to check."""

    def __init__(self, programs, servers: str, table: str, folder: Path):
        self.name, self.log = f"{programs.name} trainer", folder / f"{table}.log"
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                ["/usr/bin/python3", Path(__file__).with_name("trainer.py"), servers, table],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                env=programs.environment(),
            )

    @property
    def step(self) -> int:
        lines = self.log.read_text().splitlines()
        if self.process.poll() is not None:
            raise AssertionError(f"{self.name} ended: {lines[-5:]}")
        return int(lines[-1]) if lines and lines[-1].isdigit() else 0

    def check(self) -> str:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(SECONDS)
        last = (self.log.read_text().splitlines() or ["nothing was said"])[-1]
        return last if self.process.returncode == 0 else f"FAILED: {last}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def until(holds: Callable[[], bool], what: str) -> None:
    wait_until(holds, what, SECONDS)


class Rolling:
    """A cluster of three nodes n0, n1, n2, all of the older version at first."""

    def __init__(self, today, older, folder: Path, start: Callable):
        self.today, self.older, self.folder, self.start = today, older, folder, start
        self.servers = ",".join(f"127.0.0.1:{self.port(i)}" for i in range(NODES))
        self.stack = contextlib.ExitStack()
        self.nodes: dict[int, object] = {}
        self.trainers: list[Trainer] = []

    @staticmethod
    def port(i: int) -> int:
        return 7700 + 50 * i

    def run_node(self, i: int, programs, *settings: str) -> None:
        keys = ["cluster.name=rolling", "cluster.zookeeper=127.0.0.1:2181", f"cluster.nodes={NODES}"]
        keys += ["cluster.session_ms=4000", f"cluster.node=n{i}", f"port.udp_port={self.port(i)}", *settings]
        arguments = [word for key in keys for word in ("--set", key)]
        self.nodes[i] = self.start(programs, self.folder, *arguments)
        assert self.nodes[i].serves, self.nodes[i].text()

    def run_today(self, i: int) -> None:
        """As it is to be: with copies, each node as if it was a machine of its own."""
        self.run_node(i, self.today, "cluster.replication=2", f"cluster.host=h{i}")

    def ctl(self, *arguments: str) -> None:
        done = self.today.ctl(self.servers, *arguments)
        assert done.returncode == 0, f"ctl {' '.join(arguments)}: {done.stdout}"

    def shown(self) -> dict:
        done = self.today.ctl(self.servers, "nodes", "--json")
        return json.loads(done.stdout) if done.returncode == 0 else {"nodes": []}

    def settled(self) -> bool:
        nodes = self.shown()["nodes"]
        return len(nodes) == NODES and all(node["state"] == "there" for node in nodes)

    def train(self) -> None:
        """All trainers go on."""
        goals = [trainer.step + STEPS for trainer in self.trainers]
        for trainer, goal in zip(self.trainers, goals):
            until(lambda: trainer.step >= goal, f"{trainer.name} goes on to step {goal}")

    # ---- what the documentation says to do ----

    def upgrade(self, i: int) -> None:
        """docs/clusters.md, Upgrades: save, then the other version in place of the node."""
        self.ctl("save", "--wait")
        self.replace(i)

    def upgrade_drained(self, i: int) -> None:
        """The same for trainers without replay: it owns nothing while it is away."""
        self.ctl("drain", f"n{i}", "--wait")
        self.replace(i)
        self.ctl("rebalance", "--wait")

    def replace(self, i: int) -> None:
        self.nodes[i].end()
        self.run_today(i)
        until(self.settled, f"n{i} is there again")
        self.train()

    def copied(self) -> bool:
        shown = self.shown()
        return bool(shown.get("tolerates_one")) and all(node["uncopied"] == 0 for node in shown["nodes"])

    def says(self, text: str) -> bool:
        return any(text in node.text() for node in self.nodes.values())

    def run(self) -> str:
        """Returns what the trainers say of their rows."""
        for i in range(NODES):
            self.run_node(i, self.older)
        until(self.settled, "the older nodes form a cluster")
        for programs, table in ((self.older, "older"), (self.today, "today")):
            trainer = Trainer(programs, self.servers, table, self.folder)
            self.trainers.append(self.stack.enter_context(trainer))
        self.train()
        self.upgrade(0)
        self.upgrade_drained(1)
        # An older node that comes back leads no more, and what it lacks is not used: in words.
        self.nodes[2].end()
        self.run_node(2, self.older)
        until(self.settled, "n2 is there again")
        self.train()
        until(lambda: self.says("cluster.replication = 2 comes into use once node n2 is upgraded"), "words")
        assert not self.shown()["copies"], "copies although a node lacks them"
        self.upgrade(2)
        until(self.copied, "each partition has a copy")
        self.train()
        self.nodes[1].process.kill()
        self.nodes[1].process.wait()
        self.train()
        until(lambda: self.says("go on here from the copy"), "a backup goes on")
        return "; ".join(f"{trainer.name}: {trainer.check()}" for trainer in self.trainers)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stack.close()
        for node in self.nodes.values():
            if node.serves:
                node.process.kill()
                node.process.wait()


if __name__ == "__main__":
    sys.exit("rolling.py is a part of upgrade.py")
