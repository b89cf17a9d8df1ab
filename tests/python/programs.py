"""The programs under test: a node (millraced) and a hub."""
from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

from cable import Cable, Namespace, environment

READY_S = 60.0
PORT = 7700

_CONFIG = """[node]
name = {name}
[port]
device = server0
ipv4 = 10.99.{n}.1/24
udp_port = {port}
[cores]
count = {cores}
poll_mode = adaptive
adaptive_idle_us = 50
[memory]
hugepages = never
packets_mib = 128
limit_mib = 256
messages_mib = 64
[transport]
message_mib_max = 16
[batches]
memory_mib = 64
count_max = 8
[checkpoint]
directory = {directory}/ckpt
allow = {directory}
every_s = 0
save_on_stop = no
"""


class Program:
    """A program that runs until it is ended. What it says on stderr goes to a file that is shown when it
    fails. obeys: it reads lines from tell()."""

    def __init__(self, command: list[str], log: str, obeys: bool = False, **more: str) -> None:
        self._log = log
        with open(log, "ab") as errors:
            self._process = subprocess.Popen(
                command,
                env=environment(**more),
                stdin=subprocess.PIPE if obeys else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self.pid = self._process.pid

    def said(self) -> str:
        """Its stderr so far."""
        with open(self._log, encoding="utf-8", errors="replace") as errors:
            return errors.read()

    def wait_line(self, text: str, limit_s: float = READY_S) -> str:
        """Waits until it has written a line with this text to stdout, and returns that line."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        until, line = time.monotonic() + limit_s, b""
        while (left_s := until - time.monotonic()) > 0 and select.select([fd], [], [], left_s)[0]:
            byte = os.read(fd, 1)
            if byte not in (b"\n", b""):
                line += byte
                continue
            if text.encode() in line:
                return line.decode()
            if not byte:
                break
            line = b""
        raise AssertionError(f'it did not say "{text}": {self.said()[-2000:]}')

    def tell(self, line: str, says: str, limit_s: float = READY_S) -> str:
        """Writes a line to its stdin, and waits for one with the text `says`, as wait_line()."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        return self.wait_line(says, limit_s)

    def end(self, how: signal.Signals) -> int:
        """Sends a signal and waits for the end; returns the exit code, negative for a signal."""
        self._process.send_signal(how)
        code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return code


class Node:
    """millraced on a cable of its own; or near: at a socket of the test's namespace, where it reaches what
    the test has there.

    settings: "section.key=value", beside what the configuration above has. address: for millrace.Client.
    """

    def __init__(
        self, cable: Cable, cores: int = 1, settings: tuple[str, ...] = (), near: bool = False
    ) -> None:
        self.cores, self.settings = cores, settings
        self._space = cable.client if near else Namespace()
        self._is_near = near
        self._n = 0 if near else cable.lay(self._space)
        # where the kernel has the address, so they are chosen
        if "MILLRACE_ON_SOCKETS" in os.environ and not near:
            self._space.run("ip", "addr", "add", f"10.99.{self._n}.1/24", "dev", "server0")
        if near:
            self.settings += ("port.driver=socket", "port.device=", "port.ipv4=127.0.0.1/8")
        self.directory = tempfile.mkdtemp(prefix="millrace-test-")
        self.checkpoints = os.path.join(self.directory, "ckpt")
        self.address = f"127.0.0.1:{PORT}" if near else f"10.99.{self._n}.1:{PORT}"
        self._program: Program | None = None

    def launch(self, cores: int | None = None) -> None:
        """Begins to start it and does not wait; `cores` if it is to have another number of them than before.
        It is killed when the thread that did this ends."""
        assert self._program is None
        self.cores = cores or self.cores
        config = os.path.join(self.directory, "node.conf")
        with open(config, "w", encoding="utf-8") as out:
            out.write(
                _CONFIG.format(
                    name=os.path.basename(self.directory),
                    n=self._n,
                    port=PORT,
                    cores=self.cores,
                    directory=self.directory,
                )
            )
        sets = [word for setting in self.settings for word in ("--set", setting)]
        self._program = Program(
            self._space.command(os.environ["MILLRACED"], "--config", config, *sets),
            os.path.join(self.directory, "node.log"),
            RUNTIME_DIRECTORY=self.directory,
        )

    def start(self, cores: int | None = None) -> Node:
        """Starts it and waits until it serves."""
        self.launch(cores)
        return self.wait_ready()

    def wait_ready(self) -> Node:
        """Waits until it serves."""
        assert self._program is not None
        self._program.wait_line("millraced: ready")
        return self

    def own_bytes(self) -> int:
        """Memory of its process that is not of files (RssAnon)."""
        assert self._program is not None
        with open(f"/proc/{self._program.pid}/status", encoding="utf-8") as status:
            line = next(line for line in status if line.startswith("RssAnon:"))
        return int(line.split()[1]) << 10

    def threads_on(self, cpu: int) -> int:
        """How many of its threads may run on a processor."""
        assert self._program is not None
        count = 0
        for thread in os.listdir(f"/proc/{self._program.pid}/task"):
            try:
                count += cpu in os.sched_getaffinity(int(thread))
            except ProcessLookupError:  # it has ended
                pass
        return count

    def said(self) -> str:
        """Its log so far."""
        assert self._program is not None
        return self._program.said()

    def kill(self) -> None:
        """SIGKILL, with whatever is in flight."""
        assert self._program is not None
        assert self._program.end(signal.SIGKILL) == -signal.SIGKILL
        self._program = None

    def restart(self, cores: int | None = None) -> None:
        """After a kill: the same again. It restores the newest checkpoint, if there is one."""
        self.start(cores)

    def stop(self) -> None:
        """SIGTERM; checks that it ends well. Leaves nothing behind."""
        try:
            if self._program is not None:
                code = self._program.end(signal.SIGTERM)
                assert code == 0, f"it ended with {code}: {self._program.said()[-2000:]}"
        finally:
            self._program = None
            if not self._is_near:
                self._space.close()
            shutil.rmtree(self.directory, ignore_errors=True)


class Hub:
    """millrace-hub in the test's namespace, which feeds a node. log: its stderr."""

    _ports = iter(range(7800, 7900))

    def __init__(self, node: Node, *options: str) -> None:
        self.node = node
        self.address = f"127.0.0.1:{next(self._ports)}"
        self._options = options
        self._program: Program | None = None

    def start(self) -> Hub:
        """Starts it. Clients that connect wait for it."""
        self._program = Program(
            [
                "setpriv",
                "--pdeathsig",
                "KILL",
                os.environ["MILLRACE_HUB"],
                "--listen",
                self.address,
                "--server",
                self.node.address,
                "--allow",
                "/",
                *self._options,
            ],
            os.path.join(self.node.directory, "hub.log"),
        )
        return self

    def kill(self) -> None:
        """SIGKILL."""
        assert self._program is not None
        assert self._program.end(signal.SIGKILL) == -signal.SIGKILL
        self._program = None

    def restart(self) -> None:
        """After a kill: the same again."""
        self.start()

    def stop(self) -> None:
        """SIGTERM; checks that it ends well."""
        if self._program is None:
            return
        code = self._program.end(signal.SIGTERM)
        assert code == 0, f"it ended with {code}: {self._program.said()[-2000:]}"
        self._program = None
