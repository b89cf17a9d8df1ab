"""Answers of lookups that were made before the forwards that need them.

A forward takes the answer for its keys, once, when it is there. Rows that the client has changed since the
lookup are looked up again first, those of a batch's modules together.
"""
from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import Any, Optional, Sequence

import numpy as np

from .._base.changes import Change, hashes_of
from .backward import pushes_of
from .tables import Lookups, Needs


@dataclass
class PrefetchCounts:
    """What became of lookups that were made ahead. Rows, or bags where forwards look up bags."""

    batches: int = 0  #: handed out
    rows: int = 0  #: that forwards took
    again: int = 0  #: of them, looked up again, because they had been changed since
    stale: int = 0  #: of them, taken as they had been, though changed since (with stale=True)
    stale_pushes: int = 0  #: the most pushes to its table that a row taken so may have missed
    missed: int = 0  #: forwards with other keys than those looked up, which made a lookup of their own


def _same(a: Optional[np.ndarray], b: Optional[np.ndarray]) -> bool:
    return a is b or (a is not None and b is not None and np.array_equal(a, b))


class Answer:
    """What one forward will need, on its way or there."""

    def __init__(self, needs: Needs, begin: int) -> None:
        self.needs, self.options = needs, needs.options()
        self.begin = begin  #: of its keys among those of the batch
        self.values: Any = None  #: f32 [rows or bags, dim], once it is there

    def fits(self, needs: Needs) -> bool:
        """Whether it is what that forward of its module needs now."""
        mine = self.needs
        return (
            self.options == needs.options()
            and _same(mine.keys, needs.keys)
            and _same(mine.offsets, needs.offsets)
            and _same(mine.weights, needs.weights)
        )

    def rows_of(self, keys: np.ndarray) -> np.ndarray:
        """The rows or bags that these keys are in, by their places, which rise."""
        if self.needs.offsets is None:
            return keys
        return np.unique(np.searchsorted(self.needs.offsets, keys, side="right") - 1)

    def part(self, which: np.ndarray) -> Needs:
        """The needs of these rows or bags alone."""
        mine = self.needs
        if mine.offsets is None:
            return mine._replace(keys=mine.keys[which])
        begins = mine.offsets.astype(np.int64)
        sizes = np.diff(begins)[which]
        ends = np.cumsum(sizes)
        keys = np.repeat(begins[which] - (ends - sizes), sizes) + np.arange(ends[-1])
        return mine._replace(
            keys=mine.keys[keys],
            offsets=np.concatenate([[0], ends]).astype(np.uint32),
            weights=None if mine.weights is None else mine.weights[keys],
        )


class Ahead:
    """The answers for one batch."""

    def __init__(self, needs: Sequence[Needs], counts: PrefetchCounts, leave: Optional[int] = None) -> None:
        """Starts the lookups. leave: None: rows are brought up to date; else they stay as they were, and so
        many pushes to a table may be in flight."""
        self.counts, self.leave = counts, leave
        self._lock = threading.Lock()  # of forwards on several threads
        self.answers: dict[Any, list[Answer]] = {}  #: by module
        begins = np.cumsum([0] + [len(one.keys) for one in needs]).tolist()
        all_of_it = [Answer(one, begin) for one, begin in zip(needs, begins)]
        for answer in all_of_it:
            self.answers.setdefault(answer.needs.module, []).append(answer)
        self.modules = list(self.answers)
        self._hashes = hashes_of([(one.module.feature.id, one.keys) for one in needs])
        self._changes: list[tuple[Any, Change]] = []  #: that rows which stay as they were may lack
        for module in self.modules:
            module._before_lookup()
        clients = {one.module.feature.client for one in needs}
        self._watches = {client: client._watch() for client in clients}
        try:
            self._arriving, self._lookups = all_of_it, Lookups(needs)
        except BaseException:
            self.close()
            raise

    def arrive(self) -> None:
        """Waits for the answers; raises the error of a lookup."""
        for answer, values in zip(self._arriving, self._lookups.values()):
            answer.values = values

    def close(self) -> None:
        """Nobody takes anything any more."""
        for watch in self._watches.values():
            watch.close()

    def take(self, needs: Needs) -> Optional[np.ndarray]:
        """What that forward needs, up to date; None: it is not here, or was taken before."""
        its = self.answers[needs.module]
        with self._lock:
            found = next((answer for answer in its if answer.fits(needs)), None)
            if found is None:
                return None
            if self.leave is None:
                self._refresh(needs.module)
            else:
                self._note_stale(found, self.leave)
            its.remove(found)
            self.counts.rows += needs.size
            return found.values

    def _outdated(self, changes: Sequence[tuple[Any, Change]]) -> list[tuple[Answer, np.ndarray]]:
        """Which rows or bags these may have changed, by number, of each answer that has some."""
        hashes, changed = self._hashes, np.zeros(len(self._hashes), bool)
        for _, change in changes:
            changed |= change.of(hashes)
        places = np.flatnonzero(changed)
        found = []
        for answer in (answer for its in self.answers.values() for answer in its):
            begin, end = answer.begin, answer.begin + len(answer.needs.keys)
            table = answer.needs.module.feature
            if any(client is table.client and change.is_all_of(table.id) for client, change in changes):
                keys = np.arange(end - begin)
            else:
                keys = places[slice(*np.searchsorted(places, (begin, end)))] - begin
            if len(keys) > 0:
                found.append((answer, answer.rows_of(keys)))
        return found

    def _take_changes(self) -> list[tuple[Any, Change]]:
        return [(client, change) for client, watch in self._watches.items() for change in watch.take()]

    def _refresh(self, module: Any) -> None:
        """Brings all answers up to date together, before this module's are used."""
        module._catch_up()
        if not any(watch.has_some() for watch in self._watches.values()):
            return
        for other, its in self.answers.items():
            if its:
                other._catch_up()
        outdated = self._outdated(self._take_changes())
        try:
            lookups = Lookups([answer.part(which) for answer, which in outdated])
            for (answer, which), values in zip(outdated, lookups.values()):
                answer.values[which] = values
                self.counts.again += len(which)
        except BaseException:  # the changes were taken: forwards make their own lookups from now on
            for its in self.answers.values():
                its.clear()
            raise

    def _note_stale(self, answer: Answer, leave: int) -> None:
        module = answer.needs.module
        pushes_of(module.feature.client).wait(module.feature.id, max(leave, module.staleness))
        self._changes += [change for change in self._take_changes() if change not in self._changes]
        for other, which in self._outdated(self._changes):
            if other is answer:
                pushes = sum(module.feature.id in change.tables for _, change in self._changes)
                self.counts.stale += len(which)
                self.counts.stale_pushes = max(self.counts.stale_pushes, pushes)


_current: "weakref.WeakKeyDictionary[Any, list[Ahead]]" = weakref.WeakKeyDictionary()


def enter(ahead: Ahead) -> None:
    """Forwards may take its answers."""
    for module in ahead.modules:
        _current.setdefault(module, []).append(ahead)


def leave(ahead: Ahead) -> None:
    """No more."""
    for module in ahead.modules:
        its = _current[module]
        its.remove(ahead)
        if not its:
            del _current[module]


def take(needs: Needs) -> Optional[np.ndarray]:
    """What a forward needs, if it was looked up ahead."""
    its = _current.get(needs.module)
    if its is None:
        return None
    for ahead in reversed(its):
        values = ahead.take(needs)
        if values is not None:
            return values
    its[-1].counts.missed += 1
    return None
