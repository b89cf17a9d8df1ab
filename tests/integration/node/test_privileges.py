"""A node of root has given up its capabilities when it is ready, in all threads, and works as before.

usage: test_privileges.py MILLRACED MILLRACE
in a network namespace of its own: needs root
"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from own_node import NODE, PATIENCE_S, own_network, start_node, wait_for

DAC_OVERRIDE, NET_ADMIN, IPC_LOCK = 1 << 1, 1 << 12, 1 << 14
OTHER_USER = 65534


def status_of(task: Path) -> dict[str, str]:
    lines = (task / "status").read_text(encoding="utf-8").splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def check_threads(pid: int, allowed: int) -> None:
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    assert len(tasks) > 3, tasks
    for task in tasks:
        status = status_of(task)
        has = {name: int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")}
        assert all(value & ~allowed == 0 for value in has.values()), f"{status['Name']}: {has}"
        assert status["NoNewPrivs"] == "1", status["Name"]


def run(programs: list[str], allowed: int, directory: Path, **settings: str) -> None:
    node = start_node(programs[0], directory, **settings)
    log = directory / "node.log"
    try:
        wait_for("the node serves", lambda: "millraced: ready" in log.read_text(encoding="utf-8"))
        check_threads(node.pid, allowed)
        for words in (["create", "table", "rows", "--dim", "4"], ["save", "--wait"]):
            subprocess.run(
                [programs[1], "ctl", *words, "--server", NODE], check=True, stdout=subprocess.DEVNULL
            )
        check_threads(node.pid, allowed)
    finally:
        node.terminate()
        ended = node.wait(PATIENCE_S)
    assert ended == 0, log.read_text(encoding="utf-8")


def main() -> None:
    own_network()
    with tempfile.TemporaryDirectory(prefix="millrace-test-privileges-") as made:
        directory = Path(made)
        run(sys.argv[1:], IPC_LOCK, directory)
        # Checkpoints of another user, who let nobody else write: root still does.
        foreign = directory / "foreign"
        foreign.mkdir(mode=0o755)
        os.chown(foreign, OTHER_USER, OTHER_USER)
        run(sys.argv[1:], IPC_LOCK | DAC_OVERRIDE, directory, checkpoint__directory=str(foreign))


main()
