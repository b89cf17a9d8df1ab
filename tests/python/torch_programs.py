"""Python programs that import torch, started by a fork of a process that has done so. Each ends as it would
by itself; what differs is its start, so every example and every kind of worker is also started as a user
does, by the interpreter.
"""
from __future__ import annotations

import ctypes
import fcntl
import functools
import importlib.util
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading

import pytest

_F_SETPIPE_SZ = 1031
_PR_SET_CHILD_SUBREAPER = 36
_ANSWER_BYTES = 32
_TEMPLATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_template.py")


def skip_without_torch() -> None:
    """Skips a file of tests whose programs need torch, without importing it here."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("there is no torch", allow_module_level=True)


class TorchProgram:
    """A child of this process: what subprocess.Popen has of the same names, a pipe from its standard output,
    and a file that takes its standard error.

    arguments: of the interpreter, which begin with "-c" and a program or with a script's path. together:
    standard error goes where standard output does. paced: the pipe holds one write, so that the program is
    never more than two ahead of what has been read.
    """

    def __init__(
        self, arguments: list[str], environment: dict[str, str], together: bool = False, paced: bool = False
    ) -> None:
        source, rest = (arguments[1], ["-c", *arguments[2:]]) if arguments[0] == "-c" else (None, arguments)
        self.returncode: int | None = None
        out, child_out = os.pipe2(os.O_CLOEXEC | (os.O_DIRECT if paced else 0))
        if paced:
            fcntl.fcntl(out, _F_SETPIPE_SZ, mmap.PAGESIZE)
        self.stdout = os.fdopen(out, encoding="utf-8")
        self._errors = None if together else tempfile.TemporaryFile("w+", encoding="utf-8")
        child_error = child_out if self._errors is None else self._errors.fileno()
        request = {"arguments": rest, "source": source, "environment": environment}
        self.pid = _fork(request, [_no_input(), child_out, child_error])
        os.close(child_out)

    def wait(self) -> int:
        """Waits for its end; returns the exit code, negative for a signal."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def poll(self) -> int | None:
        """The exit code once it has ended."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def kill(self) -> None:
        """SIGKILL, unless it has been waited for."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What is left of its standard output, and all of its standard error, when it has ended. It is killed
        after `timeout` seconds."""
        timer = threading.Timer(threading.TIMEOUT_MAX if timeout is None else timeout, self.kill)
        timer.start()
        try:
            out = self.stdout.read()
            self.wait()
        finally:
            timer.cancel()
        if self._errors is None:
            return out, ""
        self._errors.seek(0)
        return out, self._errors.read()


@functools.cache
def _no_input() -> int:
    return os.open(os.devnull, os.O_RDONLY)


@functools.cache
def _template(namespace: str) -> tuple[socket.socket, subprocess.Popen]:
    """A process to fork from, in the network namespace that this one is in. It ends with this one."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one_thread = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, _TEMPLATE], stdin=theirs, env={**os.environ, **one_thread}
        )
    return ours, process


def _fork(request: dict, descriptors: list[int]) -> int:
    """Has the template fork a child of this process; returns its process id."""
    control, _ = _template(os.readlink("/proc/self/ns/net"))
    socket.send_fds(control, [json.dumps(request).encode()], descriptors)
    pid, adopted = control.recv(_ANSWER_BYTES), control.recv(_ANSWER_BYTES)
    assert pid and adopted, f"{_TEMPLATE} ended"
    return int(pid)
