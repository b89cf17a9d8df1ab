"""Hosts and cables for tests: network namespaces without names, which end with the test however it ends.

    node 0's namespace        the test's namespace
    server0  10.99.0.1 ====== client0  10.99.0.2/24
    node 1's namespace
    server0  10.99.1.1 ====== client1  10.99.1.2/24

Programs and the test process itself work in the test's namespace; nothing of the machine's own network is in
reach.
"""
from __future__ import annotations

import ctypes
import os
import subprocess

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def environment(**more: str) -> dict[str, str]:
    """For programs that are not Python: a sanitizer's library is not loaded into these."""
    return {**{name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}, **more}


def run(*command: str) -> None:
    """Runs a program to its end; raises with what it wrote when that is not well."""
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr or done.stdout}"


def enter(path: str) -> None:
    """Puts the calling thread, and those that it starts, into a network namespace."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(fd, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(fd)


class Namespace:
    """A network namespace, kept by a process that ends when its standard input is closed: with the test at
    the latest."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo ready; read end"],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"ready\n", "a network namespace cannot be made"
        self.pid = self._holder.pid
        self.path = f"/proc/{self.pid}/ns/net"

    def command(self, *command: str) -> list[str]:
        """The command line that runs a program in here. It is killed when the test ends."""
        return ["nsenter", f"--net={self.path}", "setpriv", "--pdeathsig", "KILL", *command]

    def run(self, *command: str) -> None:
        """Runs a program in here to its end."""
        run(*self.command(*command))

    def enter(self) -> None:
        """Puts the calling thread, and those that it starts, in here."""
        enter(self.path)

    def close(self) -> None:
        """Ends it."""
        self._holder.communicate()


class Cable:
    """The test's side: a namespace that the process is in, and cables from there to nodes."""

    def __init__(self) -> None:
        self._home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.client = Namespace()
        self._count = 0
        self.client.run(
            "sh", "-c", "for c in all default; do echo 0 >/proc/sys/net/ipv6/conf/$c/accept_dad; done"
        )
        self.client.run("ip", "link", "set", "lo", "up")
        self.client.enter()

    def lay(self, server: Namespace, mtu: int = 1500) -> int:
        """Lays a cable to this namespace; returns its number n: the ends have the addresses 10.99.n.1 and
        10.99.n.2."""
        n, self._count = self._count, self._count + 1
        server.run(
            "sh", "-c", "for c in all default; do echo 1 >/proc/sys/net/ipv6/conf/$c/disable_ipv6; done"
        )
        server.run(
            "ip",
            "link",
            "add",
            "server0",
            "mtu",
            str(mtu),
            "type",
            "veth",
            "peer",
            "name",
            f"client{n}",
            "mtu",
            str(mtu),
            "netns",
            str(self.client.pid),
        )
        server.run("ip", "link", "set", "server0", "up")
        self.client.run("ethtool", "-K", f"client{n}", "tx", "off", "gso", "off")
        self.client.run("ip", "link", "set", f"client{n}", "up")
        self.client.run("ip", "addr", "add", f"10.99.{n}.2/24", "dev", f"client{n}")
        return n

    def close(self) -> None:
        """Back to where the process came from."""
        if _libc.setns(self._home, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        os.close(self._home)
        self.client.close()
