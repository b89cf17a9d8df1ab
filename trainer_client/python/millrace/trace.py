"""Timelines of a program: spans of time, for `millrace timeline` and Perfetto."""
from __future__ import annotations

import json
import os
import socket
import threading
import time
from contextlib import contextmanager
from typing import Any, Iterator, Optional, Sequence

from .errors import Error
from .node import NodeCalls

_EVERY_NS = 2_000_000_000
_DEADLINE_S = 0.2


class Trace:
    """A timeline of this process, written to `path` at close(); a context manager. `process` names it.

    `clients` are asked now and then how far their server's clock is ahead, so that the files of several
    machines fit together. Spans may be begun in any thread; each thread is a track. After max_spans of them
    the others are counted and left out.
    """

    def __init__(
        self, path: str, clients: Sequence[NodeCalls] = (), process: str = "trainer", max_spans: int = 1 << 18
    ) -> None:
        self._file = open(path, "w", encoding="utf-8")  # pylint: disable=consider-using-with
        self._clients, self._process, self._max_spans = list(clients), process, max_spans
        self._events: list[dict[str, Any]] = []
        self._offsets: list[tuple[str, int, int, int]] = []
        self._tracks: dict[int, int] = {}
        self._left_out, self._clock = 0, 0
        self._lock = threading.Lock()
        self._next_ns = 0
        self._ask_clocks()

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask_clocks(self) -> None:
        for client in self._clients:
            try:
                offset = client.clock_offset(deadline_s=_DEADLINE_S)
            except Error:  # away, or too old
                continue
            self._clock = offset.own_clock
            if offset.peer_clock != offset.own_clock:
                self._offsets.append(
                    (hex(offset.peer_clock), offset.at_ns, offset.offset_ns, offset.error_ns)
                )
        self._next_ns = time.monotonic_ns() + _EVERY_NS

    @contextmanager
    def span(self, name: str, batch: Optional[int] = None) -> Iterator[None]:
        """The time that the block takes, on the batch with this id. "wait for a batch", "lookup" and "push"
        are what `millrace timeline` counts as waits; every other name is computing."""
        begin_ns = time.monotonic_ns()
        try:
            yield
        finally:
            self._add(name, begin_ns, time.monotonic_ns(), batch)

    def _add(self, name: str, begin_ns: int, end_ns: int, batch: Optional[int]) -> None:
        with self._lock:
            asks = end_ns >= self._next_ns and bool(self._clients)
            if asks:
                self._next_ns = end_ns + _EVERY_NS  # no other thread asks
            if len(self._events) == self._max_spans:
                self._left_out += 1
                return
            track = self._tracks.setdefault(threading.get_ident(), len(self._tracks))
            event: dict[str, Any] = {"ph": "X", "name": name, "pid": os.getpid(), "tid": track}
            event.update(ts=begin_ns / 1000, dur=(end_ns - begin_ns) / 1000)
            if batch is not None:
                event["args"] = {"batch": hex(batch)}
            self._events.append(event)
        if asks:
            self._ask_clocks()

    def close(self) -> None:
        """Writes the file. The clients are asked once more, so they are still open."""
        if self._file.closed:
            return
        self._ask_clocks()
        clock = {"host": socket.gethostname(), "clock": hex(self._clock), "offsets": self._offsets}
        process = {"name": self._process, "spans_left_out": self._left_out}
        for name, args in (("process_clock", clock), ("process_name", process)):
            self._events.append({"ph": "M", "name": name, "pid": os.getpid(), "args": args})
        with self._file as file:
            json.dump(self._events, file)
