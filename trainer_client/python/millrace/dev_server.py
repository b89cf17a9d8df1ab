"""A server for development: `millrace dev` as a child process."""
from __future__ import annotations

import atexit
import html
import json
import os
import signal
import subprocess
import weakref
from typing import Any, Sequence

from ._base.programs import find_program
from .client import Client
from .errors import Error

_STOP_S = 60.0  # after which a server that was told to end is killed


class DevServerError(Error):
    """A server for development did not start, or did not end well; the text has what it said."""


def _tool() -> str:
    found = find_program("millrace", "MILLRACE_TOOL")
    if found is None:
        raise DevServerError(
            "the program `millrace` is not in $PATH: install millrace with pip, or the packages "
            "millrace-tools and millrace-server, or run `make install`, or name the program in "
            "$MILLRACE_TOOL (and millraced in $MILLRACED)"
        )
    return found


class DevServer:
    """A server on this machine's loopback, over the kernel's UDP sockets, that ends with this process. Made
    by millrace.dev(). A context manager: leaving it stops the server.

    address, key_file: for millrace.Client; key_file is None if the server has no key. directory: with its
    checkpoints. log: the file with what it says. For any thread; in a process that was forked from this one
    it is stopped, and the parent's goes on.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        port: int | None = None,
        cores: int = 1,
        settings: Sequence[str] = (),
    ) -> None:
        if isinstance(settings, str):
            raise TypeError(f"settings is {settings!r}; it is a list: settings=[{settings!r}]")
        self._clients: weakref.WeakSet[Client] = weakref.WeakSet()
        self.cores = cores
        words = [_tool(), "dev", "--json", "--with-stdin", f"--cores={cores}"]
        words += [] if directory is None else [f"--directory={os.fspath(directory)}"]
        words += [] if port is None else [f"--port={port}"]
        words += [f"--set={setting}" for setting in settings]
        try:
            # A session of its own: Ctrl-C is for the notebook. It watches the pipe to its stdin instead.
            self._process: Any = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise DevServerError(
                f"{words[0]} cannot be run: {error.strerror}; name the program `millrace` in $MILLRACE_TOOL"
            ) from None
        try:
            line = self._process.stdout.readline()
        except BaseException:
            self._process.stdin.close()
            raise
        if not line:
            said = self._process.communicate()[1].strip()
            raise DevServerError(said or f"{words[0]} dev ended with {self._process.returncode}")
        said = json.loads(line)
        self.address: str = said["address"]
        self.directory: str = said["directory"]
        self.log: str = said["log"]
        self.key_file: str | None = said["key_file"] or None
        self.pid: int = said["pid"]  #: of millraced
        self.is_temporary: bool = said["is_temporary"]
        _running.add(self)

    @property
    def is_running(self) -> bool:
        """Whether the server runs: not stopped, and not ended by itself."""
        return self._process is not None and self._process.poll() is None

    def client(self, **options: Any) -> Client:
        """A millrace.Client of it, with the client's keyword arguments. stop() closes it."""
        if not self.is_running:
            raise DevServerError(f"the server at {self.address} is stopped; millrace.dev() starts another")
        client = Client(self.address, key_file=options.pop("key_file", self.key_file), **options)
        self._clients.add(client)
        client._held.append(self)  # millrace.dev().client() serves as long as the client is there
        return client

    def stop(self) -> None:
        """Closes the clients that client() made and ends the server, which saves first what was pushed if it
        has a directory of its own. Again is fine. DevServerError: it did not end well."""
        process, self._process = self._process, None
        if process is None:
            return
        _running.discard(self)
        try:
            for client in list(self._clients):
                client.close()
        finally:
            said, code = _end(process)
        if code:
            raise DevServerError(said or f"the server at {self.address} ended with {code}")

    def __enter__(self) -> DevServer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.stop()
        except Error:
            if kind is None:
                raise

    def __del__(self) -> None:
        process = getattr(self, "_process", None)
        if process is not None and process.poll() is None:
            _end(process)

    def _state(self) -> str:
        if self._process is None:
            return "stopped"
        code = self._process.poll()
        return "running" if code is None else f"ended with {code}"

    def __repr__(self) -> str:
        cores = f"{self.cores} core{'' if self.cores == 1 else 's'}"
        kept = "removed at the end" if self.is_temporary else "kept"
        return (
            f"<millrace.DevServer {self.address}: {self._state()}, {cores}, kernel sockets; "
            f"{self.directory} ({kept})>"
        )

    def _repr_html_(self) -> str:
        rows = [
            ("address", self.address),
            ("state", f"{self._state()}; kernel sockets, slower than a port of its own"),
            ("cores", str(self.cores)),
            ("directory", self.directory + (" (removed at the end)" if self.is_temporary else "")),
            ("log", self.log),
            ("key file", self.key_file or "none"),
        ]
        lines = "".join(f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in rows)
        return f"<table><caption>millrace.DevServer</caption>{lines}</table>"

    def _forked(self) -> None:
        """In a child process: the parent's pipe must end with the parent."""
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout, process.stderr):
                pipe.close()
            process.returncode = 0  # not this process' child


def _end(process: Any) -> tuple[str, int]:
    """Ends `millrace dev` by its stdin; returns what it said on stderr, and its exit code."""
    try:
        said = process.communicate(timeout=_STOP_S)[1].strip()
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # millraced ends with it
        said = process.communicate()[1].strip()
    return said, process.returncode


_running: weakref.WeakSet[DevServer] = weakref.WeakSet()


def dev(
    directory: str | os.PathLike[str] | None = None,
    *,
    port: int | None = None,
    cores: int = 1,
    settings: Sequence[str] = (),
) -> DevServer:
    """Starts a server for development and returns it once it serves. It needs neither root, hugepages nor a
    network interface, is slower than one that has them, and ends with this process.

    directory: for checkpoints and the log; the newest checkpoint there is restored; None: a temporary one,
        removed at the end.
    port: UDP port of core 0; None: 7700, or others if that is taken.
    cores: number of data cores.
    settings: further "section.key=value", as `millraced --set` takes them.

    Raises DevServerError, whose text has the last lines of the server's log.
    """
    return DevServer(directory, port=port, cores=cores, settings=settings)


def _stop_all() -> None:
    for server in list(_running):
        try:
            server.stop()
        except Error as error:
            print(f"millrace: {error}")


def _after_fork() -> None:
    for server in list(_running):
        server._forked()
    _running.clear()


atexit.register(_stop_all)
os.register_at_fork(after_in_child=_after_fork)
