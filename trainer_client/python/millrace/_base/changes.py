"""Which rows a client changes, for those that keep rows which it looked up before.

Nothing is noted until the first of them watches. What was in flight then may change any row.
"""
from __future__ import annotations

import threading
from typing import Any, Iterable, Optional, Sequence, Tuple

import numpy as np

_PLACES_OF_A_KEY = 64  # of a filter: one key in so many is taken for another
_FACTOR, _SALT, _U64 = np.uint64(0xD6E8FEB86659FD93), 0x9E3779B97F4A7C15, 0xFFFFFFFFFFFFFFFF

Keys = Tuple[int, Optional[np.ndarray]]  #: a table's number, and keys of its; None: any


def hashes_of(tables: Sequence[tuple[int, np.ndarray]]) -> np.ndarray:
    """Of all keys of these tables, one after the other, as Change.of() wants them."""
    if not tables:
        return np.zeros(0, np.uint64)
    keys = np.concatenate([keys.reshape(-1) for _, keys in tables])
    salts = np.array([number * _SALT & _U64 for number, _ in tables], np.uint64)
    return (keys + np.repeat(salts, [keys.size for _, keys in tables])) * _FACTOR


class Change:
    """What a call changes that is in flight, or has ended: a filter, which takes a few others for its
    keys."""

    def __init__(self, tables: Sequence[Keys]) -> None:
        self._wholly = {number for number, keys in tables if keys is None}
        self.tables = {number for number, _ in tables}
        hashes = hashes_of([(number, keys) for number, keys in tables if keys is not None])
        bits = max(10, min(26, (len(hashes) * _PLACES_OF_A_KEY).bit_length()))
        self._shift = np.uint64(64 - bits)
        self._filter = np.zeros(1 << bits, bool)
        self._filter[hashes >> self._shift] = True
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether its outcome is known: a lookup from now on sees it."""
        return self._is_over

    def end(self) -> None:
        """Its outcome is known, or nobody will ask for it."""
        self._is_over = True

    def of(self, hashes: np.ndarray) -> np.ndarray:
        """Which of these keys it may change, as booleans."""
        return self._filter[hashes >> self._shift]

    def is_all_of(self, table: int) -> bool:
        """Whether it may change any row of that table."""
        return table in self._wholly


class _Earlier(Change):
    """Calls that were in flight before anybody watched."""

    def __init__(self, connection: Any) -> None:
        super().__init__([])
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

    def is_all_of(self, table: int) -> bool:
        """Of each."""
        return True


class Watch:
    """The changes of a client since lookups that are made after this. Close it when they are used."""

    def __init__(self, changes: "Changes", before: Iterable[Change]) -> None:
        self._changes = changes
        self._new = list(before)
        self._pending: list[Change] = []  # were taken, and in flight then

    def has_some(self) -> bool:
        """Whether take() has something to return."""
        return len(self._new) > 0 or any(change.is_over for change in self._pending)

    def take(self) -> list[Change]:
        """Those which a lookup may have missed that was made after the last take(): new ones, and others that
        have ended since."""
        with self._changes._lock:
            new, self._new = self._new, []
        taken: list[Change] = list(new)
        pending: list[Change] = []
        for change in self._pending:
            (taken if change.is_over else pending).append(change)
        self._pending = pending + [change for change in new if not change.is_over]
        return taken

    def close(self) -> None:
        """Nothing more is noted for it."""
        with self._changes._lock:
            self._changes._watches.remove(self)


class Changes:
    """Of one client. Any thread."""

    def __init__(self, connection: Any) -> None:
        self._lock = threading.Lock()
        self._in_flight: list[Change] = [_Earlier(connection)]
        self._watches: list[Watch] = []

    def begin(self, tables: Sequence[Keys]) -> Change:
        """A call is about to change these rows. Its change ends with its outcome."""
        change = Change(tables)
        with self._lock:
            self._in_flight = [before for before in self._in_flight if not before.is_over]
            self._in_flight.append(change)
            for watch in self._watches:
                watch._new.append(change)
        return change

    def watch(self) -> Watch:
        """Watches rows that are looked up next."""
        with self._lock:
            watch = Watch(self, [change for change in self._in_flight if not change.is_over])
            self._watches.append(watch)
        return watch
