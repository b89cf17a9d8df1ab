"""Answers of lookups that were made before the forwards that need them.

A forward takes the answer for its keys, once, when it is there. Rows that the client has changed since the
lookup are looked up again first, those of a batch's modules together.
"""
from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, Optional, Sequence

import numpy as np

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

    def __init__(self, needs: Needs) -> None:
        self.needs, self.options = needs, needs.options()
        self.watch = needs.module.feature.client._watch(needs.module.feature.id)
        self.values: Any = None  #: f32 [rows or bags, dim], once it is there
        self.pushes = 0  #: that it may lack

    def fits(self, needs: Needs) -> bool:
        """Whether it is what that forward needs now."""
        mine = self.needs
        return (
            mine.module is needs.module
            and self.options == needs.options()
            and _same(mine.keys, needs.keys)
            and _same(mine.offsets, needs.offsets)
            and _same(mine.weights, needs.weights)
        )

    def outdated(self) -> np.ndarray:
        """Which rows or bags have changed since, by number; from now on, since now."""
        changes = self.watch.take()
        if not changes or len(self.needs.keys) == 0:
            return np.zeros(0, np.int64)
        self.pushes += len(changes)
        changed = np.zeros(len(self.needs.keys), bool)
        for change in changes:
            changed |= change.of(self.needs.keys)
        if self.needs.offsets is None or not changed.any():
            return np.flatnonzero(changed)
        before = np.concatenate([[0], np.cumsum(changed)])[self.needs.offsets.astype(np.int64)]
        return np.flatnonzero(np.diff(before))

    def part(self, which: np.ndarray) -> Needs:
        """The needs of these rows or bags alone."""
        mine = self.needs
        if mine.offsets is None:
            return mine._replace(keys=mine.keys[which])
        begins = mine.offsets.astype(np.int64)
        sizes = np.diff(begins)[which]
        ends = np.cumsum(sizes)
        keys = np.repeat(begins[which] - (ends - sizes), sizes) + np.arange(sizes.sum())
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
        self.answers = [Answer(one) for one in needs]
        self.modules = {one.module for one in needs}
        self._lookups = Lookups(needs)
        self._is_fresh = False  # its answers were brought up to date together

    def arrive(self) -> None:
        """Waits for the answers; raises the error of a lookup."""
        for answer, values in zip(self.answers, self._lookups.values()):
            answer.values = values

    def take(self, needs: Needs) -> Optional[np.ndarray]:
        """What that forward needs, up to date; None: it is not here, or was taken before."""
        found = next((answer for answer in self.answers if answer.fits(needs)), None)
        if found is None:
            return None
        if self.leave is not None:
            self._note_stale(found, self.leave)
        else:
            self._refresh([found] if self._is_fresh else self.answers)
            self._is_fresh = True
        self.answers.remove(found)
        self.counts.rows += needs.size
        return found.values

    def _note_stale(self, answer: Answer, leave: int) -> None:
        module = answer.needs.module
        pushes_of(module.feature.client).wait(module.feature.id, max(leave, module.staleness))
        rows = len(answer.outdated())
        self.counts.stale += rows
        if rows > 0:
            self.counts.stale_pushes = max(self.counts.stale_pushes, answer.pushes)

    def _refresh(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            answer.needs.module._catch_up()
        found = [(answer, answer.outdated()) for answer in answers]
        changed = [(answer, which) for answer, which in found if len(which) > 0]
        lookups = Lookups([answer.part(which) for answer, which in changed])
        for (answer, which), values in zip(changed, lookups.values()):
            answer.values[which] = values
            self.counts.again += len(which)


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
