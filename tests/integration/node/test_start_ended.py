"""A signal ends a node that is still starting.

usage: test_start_ended.py MILLRACED
in a network namespace of its own: needs root
"""
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from own_node import PATIENCE_S, own_network, start_node


def check(millraced: str, number: signal.Signals) -> None:
    """It asks a store for a checkpoint, which takes the connection and says nothing."""
    with tempfile.TemporaryDirectory(prefix="millrace-test-start-") as made, socket.socket() as store:
        directory = Path(made)
        store.bind(("127.0.0.1", 0))
        store.listen()
        store.settimeout(PATIENCE_S)
        url = f"hdfs://127.0.0.1:{store.getsockname()[1]}/ads?user.name=ads"
        node = start_node(millraced, directory, checkpoint__remote=url)
        try:
            with store.accept()[0]:
                node.send_signal(number)
                ended = node.wait(PATIENCE_S)
        except (TimeoutError, subprocess.TimeoutExpired):
            node.kill()
            node.wait()
            raise
        log = (directory / "node.log").read_text(encoding="utf-8")
        assert ended == -number, f"{number.name}: ended with {ended}\n{log}"
        assert "ending, before the start is over" in log, log
        assert "serving" not in log, log


def main() -> None:
    own_network()
    check(sys.argv[1], signal.SIGTERM)
    check(sys.argv[1], signal.SIGINT)


main()
