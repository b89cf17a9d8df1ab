"""Which rows a client changes, for those that keep rows which it looked up before.

Changes are numbered as they begin. A filter, one for all of a client's changes, says by a key's hash which
was the last one that may have changed the key's row; it takes a few keys for others. Nothing is noted until
the first lookup is watched. What was in flight then may change any row.
"""
from __future__ import annotations

import collections
import threading
from typing import Any, NamedTuple, Optional, Sequence, Tuple

import numpy as np

_PLACES_OF_A_KEY = 64  # of the filter: of a change, one key in so many is taken for another
_BITS_MIN, _BITS_MAX = 16, 25  # of places
_NUMBERS = 0xFFFF  # that a place can have
_FACTOR, _SALT, _U64 = np.uint64(0xD6E8FEB86659FD93), 0x9E3779B97F4A7C15, 0xFFFFFFFFFFFFFFFF

Keys = Tuple[int, Optional[np.ndarray]]  #: a table's number, and keys of its; None: any


def hashes_of(tables: Sequence[tuple[int, np.ndarray]]) -> np.ndarray:
    """Of all keys of these tables, one after the other, as Changes.since() wants them."""
    if not tables:
        return np.zeros(0, np.uint64)
    hashes = np.concatenate([keys.reshape(-1) for _, keys in tables])  # a copy
    salts = np.array([number * _SALT & _U64 for number, _ in tables], np.uint64)
    hashes += salts.repeat([keys.size for _, keys in tables])
    hashes *= _FACTOR
    return hashes


class Change:
    """What a call changes that is in flight, or has ended."""

    def __init__(self, number: int, tables: set[int]) -> None:
        self.number, self.tables = number, tables
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether its outcome is known: a lookup from now on sees it."""
        return self._is_over

    def end(self) -> None:
        """Its outcome is known, or nobody will ask for it."""
        self._is_over = True


class _Earlier(Change):
    """Calls that were in flight before anybody watched: number 0, which every row was changed by."""

    def __init__(self, connection: Any) -> None:
        super().__init__(0, set())
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


class State(NamedTuple):
    """Of a watch, and of what it watches."""

    since: int  #: the number of the oldest change that lookups may lack
    number: int  #: of the last change


class Watch:
    """What lookups that are made after this may lack of a client's changes."""

    def __init__(self, changes: "Changes") -> None:
        self.changes = changes
        self._begin()
        self._pushes = {
            table: count - sum(table in change.tables for change in self._pending)
            for table, count in changes._counts.items()
        }

    def _begin(self) -> None:
        changes = self.changes
        self._pending = changes._in_flight = [change for change in changes._in_flight if not change.is_over]
        self._seen = changes._number
        self._since = min((change.number for change in self._pending), default=self._seen + 1)

    def state(self) -> State:
        """As it is now."""
        return State(self._since, self.changes._number)

    def has_new(self) -> bool:
        """Whether changes have begun since the last take(). They may be in flight."""
        return self.changes._number != self._seen

    def has_some(self) -> bool:
        """Whether there are changes for take(): new ones, or others that were in flight and have ended
        since."""
        return self.has_new() or any(change.is_over for change in self._pending)

    def take(self) -> State:
        """The lookups that may lack something are made anew after this. Returns the state before."""
        with self.changes._lock:
            state = self.state()
            self._begin()
        return state

    def pushes_to(self, table: int) -> int:
        """How many changes of this table the lookups may lack that the watch began with."""
        return self.changes._counts.get(table, 0) - self._pushes.get(table, 0)


class Changes:
    """Of one client. Any thread."""

    def __init__(self, connection: Any) -> None:
        self._lock = threading.Lock()
        self._in_flight: list[Change] = [_Earlier(connection)]
        self._number = 0  # of the last change
        self._counts: dict[int, int] = collections.defaultdict(int)  # of changes, by table
        self._wholly: dict[int, int] = {}  # the last change of any of a table's rows
        self._bits = _BITS_MIN
        self._last = np.zeros(1 << self._bits, np.uint16)  # changes, by their numbers from _base on
        self._base = 0

    def _grow(self, key_count: int) -> None:
        bits = min(_BITS_MAX, (key_count * _PLACES_OF_A_KEY).bit_length())
        if bits > self._bits:
            self._last = np.repeat(self._last, 1 << (bits - self._bits))
            self._bits = bits

    def begin(self, tables: Sequence[Keys]) -> Change:
        """A call is about to change these rows. Its change ends with its outcome."""
        hashes = hashes_of([(number, keys) for number, keys in tables if keys is not None])
        with self._lock:
            self._number += 1
            if self._number - self._base > _NUMBERS:  # what was watched before counts as changed
                self._last[:], self._base = 0, self._number - 1
            change = Change(self._number, {number for number, _ in tables})
            for table in change.tables:
                self._counts[table] += 1
            self._wholly.update({table: self._number for table, keys in tables if keys is None})
            self._grow(len(hashes))
            self._last[self._places(hashes)] = self._number - self._base
            self._in_flight = [before for before in self._in_flight if not before.is_over]
            self._in_flight.append(change)
        return change

    def _places(self, hashes: np.ndarray) -> np.ndarray:
        return (hashes >> np.uint64(64 - self._bits)).view(np.int64)

    def watch(self) -> Watch:
        """Watches rows that are looked up next."""
        with self._lock:
            return Watch(self)

    def since(self, number: int, hashes: np.ndarray) -> np.ndarray:
        """Which of these keys may have been changed by that change or a later one, as booleans."""
        with self._lock:
            return self._last[self._places(hashes)] >= max(0, number - self._base)

    def is_all_since(self, number: int, table: int) -> bool:
        """Whether such a change may be of any row of that table."""
        return self._wholly.get(table, -1) >= number
