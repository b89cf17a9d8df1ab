"""A node on sockets in a network namespace of its own, for tests of what watches it."""
import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from waits import wait_until  # noqa: E402

SKIP = 77
CLONE_NEWNET = 0x40000000
PATIENCE_S = 120  # of a machine that has something else to do
NODE = "127.0.0.1:7700"


def skip(why: str) -> None:
    print(f"{Path(sys.argv[0]).stem}: skipped: {why}")
    sys.exit(SKIP)


def own_network() -> None:
    """This process, and those that it starts, have a loopback of their own."""
    if os.geteuid() != 0:
        skip("needs root, for a network namespace")
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        skip("the kernel makes no network namespace")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def wait_for(what: str, look: Callable[[], object]) -> None:
    wait_until(look, what, limit_s=PATIENCE_S, but=OSError)  # it does not listen yet


def start_node(millraced: str, directory: Path, **more: str) -> subprocess.Popen:
    """Its log is node.log; `more`: settings, with __ for the point."""
    settings = {
        "node.name": f"{Path(sys.argv[0]).stem.removeprefix('test_')}{os.getpid()}",
        "port.driver": "socket",
        "port.ipv4": "127.0.0.1/8",
        "cores.count": "2",
        "cores.poll_mode": "adaptive",
        "memory.limit_mib": "256",
        "memory.packets_mib": "64",
        "memory.messages_mib": "64",
        "checkpoint.directory": str(directory / "checkpoints"),
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    arguments = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    with open(directory / "node.log", "w", encoding="utf-8") as log:
        return subprocess.Popen(
            [millraced, "--config", "/dev/null", *arguments],
            stdout=log,
            stderr=log,
            env={**os.environ, "XDG_RUNTIME_DIR": str(directory)},
        )
