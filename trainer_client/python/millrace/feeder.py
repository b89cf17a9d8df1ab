"""Training on what a program has: a hub that is fed from an iterable of batches."""

from __future__ import annotations

import atexit
import collections
import json
import logging
import os
import signal
import subprocess
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Iterable, Sequence

from ._base.programs import find_program
from .errors import Error
from .hub import Hub
from .samples import END, blocks, failure, samples_of

if TYPE_CHECKING:
    from .client import Client
    from .data import DataLoader

_POLL_S = 0.02
_SAID_LINES = 20  # of the hub's that are kept for errors
_LEVELS = {"error": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}

_log = logging.getLogger("millrace.feed")


class FeedError(Error):
    """A feed's hub did not start or ended early, or its batches were no samples; the text says why."""


class _Stopping(Exception):
    """The feed is being stopped."""


class Feed:
    """A hub on this machine that is fed with batches of this process. Made by millrace.feed(). A context
    manager: leaving it stops the feed.

    address: of the hub, for millrace.Hub and for trainers in other processes, which start a plan with the
        path Feed.PATH and the format Feed.FORMAT.

    For any thread. In a process that was forked from this one it is stopped, and the parent's goes on. What
    the hub has to say goes to the logger "millrace.feed".
    """

    PATH = "-"
    FORMAT = "batches"

    def __init__(
        self, batches: Iterable[Any], words: list[str], listen: str, key_file: str | None = None
    ) -> None:
        self._hubs: weakref.WeakSet[Hub] = weakref.WeakSet()
        self._said: collections.deque[str] = collections.deque(maxlen=_SAID_LINES)
        self._listening = threading.Event()
        self._port = 0
        self._error: Exception | None = None
        self._key_file = key_file
        self._input = threading.Lock()  # held while the pipe to the hub is written to, or closed
        self._is_through = self._is_stopping = False
        self._asking: Hub | None = None  # wait()'s own
        try:
            # A session of its own: Ctrl-C is for this program. The hub ends when this process does.
            self._process: Any = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise FeedError(
                f"{words[0]} cannot be run: {error.strerror}; name the program `millrace-hub` in "
                "$MILLRACE_HUB"
            ) from None
        self._listener = threading.Thread(target=self._listen, name="millrace.feed log", daemon=True)
        self._listener.start()
        self._listening.wait()
        if not self._port:
            self._process.wait()
            raise FeedError(self._last_words())
        self.address = f"{listen.rpartition(':')[0]}:{self._port}"
        self._writer = threading.Thread(
            target=self._write, args=(batches, self._process.stdin), name="millrace.feed", daemon=True
        )
        _running.add(self)
        self._writer.start()

    # ---- the hub's log ----

    def _listen(self) -> None:
        for line in self._process.stderr:
            try:
                said = json.loads(line)
                text, level, event = said["msg"], _LEVELS.get(said["level"], logging.INFO), said["event"]
            except (KeyError, TypeError, ValueError):
                said, text, level, event = {}, line.rstrip(), logging.ERROR, ""
            if level >= logging.WARNING:
                self._said.append(text)
            if self._error is not None or self._is_stopping:
                level = logging.INFO  # what follows from it: the error will be raised
            _log.log(level, "%s", text)
            if event == "listening":
                self._port = said["port"]
                self._listening.set()
        self._listening.set()

    def _last_words(self) -> str:
        return self._said[-1] if self._said else f"millrace-hub ended with {self._process.returncode}"

    # ---- the batches ----

    def _write(self, batches: Iterable[Any], pipe: Any) -> None:
        try:
            try:
                for number, batch in enumerate(batches):
                    for block in _blocks(number, batch):
                        self._put(pipe, block)
                self._put(pipe, [END])
                self._is_through = True
            except (BrokenPipeError, _Stopping):
                raise
            except Exception as error:  # of the iterable: wait() and stop() raise it, and trainers see it
                self._error = error
                self._put(pipe, failure(str(error) if isinstance(error, FeedError) else _described(error)))
        except (BrokenPipeError, _Stopping):  # the hub was told to end, or has said why it did
            pass

    def _put(self, pipe: Any, buffers: list[Any]) -> None:
        with self._input:
            if self._is_stopping:
                raise _Stopping
            _write_all(pipe.fileno(), buffers)

    def _close(self, pipe: Any) -> None:
        with self._input:
            try:
                pipe.close()
            except OSError:
                pass

    # ---- for trainers ----

    def hub(self, **options: Any) -> Hub:
        """A millrace.Hub of it, with its keyword arguments. stop() closes it; after finish() it has the
        answers that the hub gave before its end."""
        hub = Hub(self.address, key_file=options.pop("key_file", self._key_file), **options)
        self._hubs.add(hub)
        hub._held.append(self)
        return hub

    def loader(self, batch_samples: int, **options: Any) -> DataLoader:
        """A millrace.DataLoader of its batches, with the keyword arguments of DataLoader beside the path and
        the format. batch_samples: samples of a batch, however many the program's batches have.
        part="held_out": for batches without labels."""
        from .data import DataLoader

        return DataLoader(self.hub(deadline_s=60.0), self.PATH, self.FORMAT, batch_samples, **options)

    # ---- its end ----

    @property
    def is_running(self) -> bool:
        """Whether the hub runs: not stopped, and not ended by itself."""
        return self._process is not None and self._process.poll() is None

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits until the iterable is at its end and all its samples are applied, and stops the feed. Raises
        what the iterable raised; FeedError: a batch is none, or the hub ended early; TimeoutError: not within
        timeout_s, and the feed goes on."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while self.is_running and self._error is None and not (self._is_through and self._is_at_end()):
            if until is not None and time.monotonic() > until:
                raise TimeoutError(f"the feed at {self.address} has samples that are not applied")
            time.sleep(_POLL_S)
        self.finish()

    def _is_at_end(self) -> bool:
        if self._asking is None:
            self._asking = self.hub()
        try:
            return self._asking.status().at_end
        except Error:
            if self.is_running:
                raise
            return False  # it has just ended

    def finish(self) -> None:
        """Takes no more batches, waits until those that the hub has are applied, and stops the feed: for an
        iterable without an end. Trainers see the end of the data. Raises as wait()."""
        self._end(signal.SIGTERM)

    def stop(self) -> None:
        """Stops the feed at once, with its clients; batches in flight are lost. Again is fine. Raises as
        wait(), if the feed failed before."""
        try:
            self._end(signal.SIGTERM, signal.SIGINT)
        finally:
            for hub in list(self._hubs):
                hub.close()

    def _end(self, *signals: signal.Signals) -> None:
        process, self._is_stopping = self._process, True
        if process is None:
            return
        has_failed = process.poll() is not None
        for number in signals:
            if not has_failed:
                process.send_signal(number)
        process.wait()
        self._process = None
        _running.discard(self)
        if self._asking is not None:
            self._asking.close()
        self._listener.join()
        self._writer.join(_POLL_S)  # one that is still in the iterable ends with its next batch
        self._close(process.stdin)
        process.stderr.close()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if has_failed or process.returncode:
            raise FeedError(self._last_words())

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None or self._error is not None:  # of the iterable: what the trainer saw is a consequence
            self.stop()
            return
        try:
            self.stop()
        except Error:
            pass

    def __repr__(self) -> str:
        state = "running" if self.is_running else "stopped"
        return f"<millrace.Feed {self.address}: {state}{', all batches read' if self._is_through else ''}>"

    def _forked(self) -> None:
        """In a child process: the hub must see the end of its input with the parent."""
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stderr):
                os.close(pipe.fileno())
            process.returncode = 0  # not this process' child


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _blocks(number: int, batch: Any) -> list[list[Any]]:
    try:
        return list(blocks(samples_of(batch)))
    except (TypeError, ValueError) as error:
        raise FeedError(f"batch {number} of the feed: {error}") from error


def _write_all(pipe: int, buffers: list[Any]) -> None:
    left = [memoryview(buffer) for buffer in buffers]
    while left:
        written = os.writev(pipe, left)
        while left and written >= len(left[0]):
            written -= len(left.pop(0))
        if left:
            left[0] = left[0][written:]


_running: weakref.WeakSet[Feed] = weakref.WeakSet()


def feed(
    batches: Iterable[Any],
    server: Client | str,
    *,
    listen: str = "127.0.0.1:0",
    key_file: str | None = None,
    prefetch: int = 4,
    sample_memory_mib: int = 256,
    repeatable: bool = False,
    options: Sequence[str] = (),
) -> Feed:
    """Starts a hub that feeds batches of this program to a server, and returns it. A thread of this process
    iterates over them, ahead of the trainers by what the hub keeps.

    batches: an iterable of (labels, slots), (labels, dense, slots) or a dict of these, of numpy arrays or
        torch tensors. labels: [n] numbers, or None in every batch: they are to be scored. dense: [n, dense]
        or [n] numbers. slots: an array [n, slots], a key in each; or a list or dict of slots, each [n] or
        [n, k] keys, (keys, offsets) as torch's EmbeddingBag takes them, or (keys, offsets, weights). All
        batches have the same slots and dense values; their sizes may differ, as the hub cuts its own. Keys
        are 64-bit integers, of one table: slot_keys() makes keys of values that differ from slot to slot. A
        label, dense value or weight that is NaN or infinite ends the feed with a FeedError that names batch,
        slot and sample. Batches without labels are for loader(..., part="held_out"), whose batches have NaN
        for them and are looked up without a change; their (keys, offsets) have one offset for each sample,
        unless dense values or a slot of another kind tell how many samples there are.
    server: address of the parameter server, or a client of it.
    listen: address of the hub; port 0: any. Trainers of other machines need one that they reach.
    key_file: as of Client, for the server and the trainers; None: the client's, if `server` is one.
    prefetch: batches that are fed ahead of the trainers, 1 to 64.
    sample_memory_mib: how much of what is applied stays in the hub, for a server that goes back to an earlier
        checkpoint.
    repeatable: the iterable gives the same samples whenever the program starts: a plan continues after what
        the server has applied. Otherwise all samples count as new.
    options: further words for the command line of millrace-hub.

    Raises FeedError if the hub cannot be started.
    """
    program = find_program("millrace-hub", "MILLRACE_HUB")
    if program is None:
        raise FeedError(
            "the program `millrace-hub` is not in $PATH: install millrace with pip or the package "
            "millrace-server, run `make install`, or name the program in $MILLRACE_HUB"
        )
    address = server if isinstance(server, str) else server.server
    if key_file is None and not isinstance(server, str):
        key_file = server.key_file
    words = [program, f"--server={address}", f"--listen={listen}", f"--prefetch={prefetch}"]
    words += [f"--sample-memory={sample_memory_mib}", "--with-stdin", "--log-format=json"]
    words += ["--repeatable"] if repeatable else []
    words += [f"--key-file={key_file}"] if key_file else []
    return Feed(batches, [*words, *options], listen, key_file)


def _stop_all() -> None:
    for running in list(_running):
        try:
            running.stop()
        except Exception as error:
            print(f"millrace: {error}")


def _after_fork() -> None:
    for running in list(_running):
        running._forked()
    _running.clear()


atexit.register(_stop_all)
os.register_at_fork(after_in_child=_after_fork)
