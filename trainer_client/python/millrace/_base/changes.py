"""Which rows a client changes, for those that keep rows which it looked up before.

Nothing is noted until the first of them watches. What was in flight then may change any row.
"""
from __future__ import annotations

import collections
import threading
import weakref
from typing import Any, Iterable, Optional

import numpy as np


class Change:
    """What a call in flight, or one that has ended, changes in a table."""

    def __init__(self, keys: Optional[np.ndarray]) -> None:
        self._keys = keys
        self._sorted: Optional[np.ndarray] = None
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether its outcome is known: a lookup from now on sees it."""
        return self._is_over

    def end(self) -> None:
        """Its outcome is known, or nobody will ask for it."""
        self._is_over = True

    def of(self, keys: np.ndarray) -> np.ndarray:
        """Which of these keys it changes, as booleans."""
        if self._keys is None:
            return np.ones(len(keys), bool)
        if self._sorted is None:
            self._sorted = np.sort(self._keys, axis=None)
        known = self._sorted
        if len(known) == 0:
            return np.zeros(len(keys), bool)
        return known[np.minimum(np.searchsorted(known, keys), len(known) - 1)] == keys


class _Earlier(Change):
    """Calls that were in flight before anybody watched."""

    def __init__(self, connection: Any) -> None:
        super().__init__(None)
        self._connection = connection
        self._futures, self._inside = list(connection._futures.values()), list(connection._inside)

    @property
    def is_over(self) -> bool:
        """Whether all of them have ended."""
        if not self._is_over:
            futures = {id(future) for future in list(self._connection._futures.values())}
            inside = {id(token) for token in list(self._connection._inside)}
            self._is_over = not any(id(future) in futures for future in self._futures) and not any(
                id(token) in inside for token in self._inside
            )
        return self._is_over


class Watch:
    """The changes of a table since a lookup of its rows, which is made after this."""

    def __init__(self, changes: Iterable[Change], lock: Any) -> None:
        self._lock, self._new = lock, list(changes)
        self._pending: list[Change] = []  # were taken, and in flight then

    def take(self) -> list[Change]:
        """Those which a lookup may have missed that was made after the last take(): new ones, and others that
        have ended since."""
        with self._lock:
            new, self._new = self._new, []
        taken: list[Change] = list(new)
        pending: list[Change] = []
        for change in self._pending:
            (taken if change.is_over else pending).append(change)
        self._pending = pending + [change for change in new if not change.is_over]
        return taken


class Changes:
    """Of one client's tables. Any thread."""

    def __init__(self, connection: Any) -> None:
        self._lock = threading.Lock()
        self._in_flight: dict[int, collections.deque[Change]] = collections.defaultdict(collections.deque)
        self._watches: dict[int, weakref.WeakSet[Watch]] = collections.defaultdict(weakref.WeakSet)
        self._earlier: Optional[Change] = _Earlier(connection)

    def begin(self, table: int, keys: Optional[np.ndarray]) -> Change:
        """A call is about to change these rows; None: any. Its change ends with its outcome."""
        change = Change(None if keys is None else keys.copy())  # the caller's array may be used again
        with self._lock:
            queue = self._in_flight[table]
            while queue and queue[0].is_over:
                queue.popleft()
            queue.append(change)
            for watch in self._watches[table]:
                watch._new.append(change)
        return change

    def watch(self, table: int) -> Watch:
        """Watches a table whose rows are looked up next."""
        with self._lock:
            if self._earlier is not None and self._earlier.is_over:
                self._earlier = None
            before = [change for change in self._in_flight[table] if not change.is_over]
            watch = Watch(before if self._earlier is None else [self._earlier, *before], self._lock)
            self._watches[table].add(watch)
            return watch
