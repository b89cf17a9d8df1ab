"""What did not fit into one message: arguments of calls that follow, and results that callers fetch. Bounded,
so that no worker can have another hold more than that."""
from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import torch

_KEPT_MAX = 1024


def _bytes_of(things: list) -> int:
    """Of the tensors among (thing, number) pairs and references."""
    tensors = (thing[0] for thing in things if isinstance(thing, tuple))
    return sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor))


class _Kept:
    def __init__(self) -> None:
        self.things: list[Any] = []
        self.bytes = 0
        self.touched_s = time.monotonic()


class Parts:
    """Lists by name. rank: of this worker, for names that no other gives. bytes_max: of all lists together.
    Any thread."""

    def __init__(self, rank: int, bytes_max: int, timeout_s: float) -> None:
        self.bytes_max, self.timeout_s = bytes_max, timeout_s
        self._names = (f"{rank}.{number}" for number in itertools.count(1))
        self.bytes = 0
        self.refused = 0
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def new_name(self) -> str:
        """Of a list here or on another worker."""
        with self._lock:
            return next(self._names)

    def add(self, name: str, things: list) -> None:
        """Appends to the list of that name. MemoryError: there is no room, and nothing is kept of it."""
        more = _bytes_of(things)
        with self._lock:
            if not self._has_room(name, more):
                self._abandon_old()
            if not self._has_room(name, more):
                self.refused += 1
                self._drop(name)
                raise MemoryError(
                    f"{more >> 20} MiB more of arguments or results in parts: {self.bytes >> 20} MiB "
                    f"are kept in {len(self._kept)} lists, and at most {self.bytes_max >> 20} MiB in "
                    f"{_KEPT_MAX} lists: make fewer such calls at a time, or raise long_memory_bytes of "
                    "RpcBackendOptions there"
                )
            kept = self._kept.setdefault(name, _Kept())
            kept.things += things
            kept.bytes += more
            kept.touched_s = time.monotonic()
            self.bytes += more

    def take(self, name: str) -> list:
        """Removes the list, and returns it. KeyError: there is none."""
        with self._lock:
            if name not in self._kept:
                raise KeyError(name)
            return self._drop(name)

    def some(self, name: str, first: int, count: int) -> list:
        """Returns that many from the `first` on; the list is removed with its last ones."""
        with self._lock:
            kept = self._kept[name]
            kept.touched_s = time.monotonic()
            if first + count >= len(kept.things):
                self._drop(name)
            return kept.things[first : first + count]

    def _has_room(self, name: str, more: int) -> bool:
        return self.bytes + more <= self.bytes_max and (name in self._kept or len(self._kept) < _KEPT_MAX)

    def _drop(self, name: str) -> list:
        kept = self._kept.pop(name, None)
        if kept is None:
            return []
        self.bytes -= kept.bytes
        return kept.things

    def _abandon_old(self) -> None:
        """Of callers that have given up: they wait no longer than this."""
        before_s = time.monotonic() - self.timeout_s
        if self.timeout_s > 0:
            for name in [name for name, kept in self._kept.items() if kept.touched_s < before_s]:
                self._drop(name)
