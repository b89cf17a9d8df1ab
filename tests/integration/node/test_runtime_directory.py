"""A node in a directory that other users can write to deletes nothing that is not its own.

usage: test_runtime_directory.py MILLRACED
in a network namespace of its own: needs root
"""
import os
import signal
import sys
import tempfile
from pathlib import Path

from own_node import PATIENCE_S, own_network, start_node, wait_for


def log_of(directory: Path) -> str:
    return (directory / "node.log").read_text(encoding="utf-8")


def main() -> None:
    own_network()
    with tempfile.TemporaryDirectory(prefix="millrace-test-runtime-") as made:
        directory = Path(made)
        victim, shared = directory / "victim", directory / "shared"
        victim.mkdir()
        (victim / "file").write_text("precious", encoding="utf-8")
        (shared / "dpdk").mkdir(parents=True)
        (shared / "dpdk" / "node-a").symlink_to(victim)
        shared.chmod(0o1777)
        (shared / "dpdk").chmod(0o777)
        os.environ["RUNTIME_DIRECTORY"] = str(shared)
        node = start_node(sys.argv[1], directory, node__name="node-a")
        try:
            wait_for(
                "the node serves", lambda: "millraced: ready" in log_of(directory) or node.poll() is not None
            )
        finally:
            node.send_signal(signal.SIGTERM)
            ended = node.wait(PATIENCE_S)
        log = log_of(directory)
        assert [path.name for path in victim.iterdir()] == ["file"], f"deleted, or made there\n{log}"
        assert ended == 0 and "DPDK's sockets are in " in log, f"ended with {ended}\n{log}"


main()
