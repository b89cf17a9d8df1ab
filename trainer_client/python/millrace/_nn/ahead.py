"""Answers of lookups that were made before the forwards that need them.

A forward takes the answer for its keys, once, when it is there. Rows that the client has changed since the
lookup are looked up again first, those of a batch's modules together.
"""
from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Callable, Optional, Sequence

import numpy as np

from .._base import steps
from .._base.changes import State, Watch, hashes_of
from .lookups import Lookups, Needs


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
    """Of one type."""
    return a is b or (a is not None and b is not None and len(a) == len(b) and a.tobytes() == b.tobytes())


_OF_ANSWERS = ("wire_dtype", "read_only")  # options that an answer depends on


class Answer:
    """What one forward will need, on its way or there."""

    def __init__(self, needs: Needs, options: dict, is_stale: bool) -> None:
        self.needs, self.options = needs, options
        is_of_step = steps.is_dense(needs.module.feature) and not is_stale
        self.decisive = (*_OF_ANSWERS, "step") if is_of_step else _OF_ANSWERS
        self.values: Any = None  #: f32 [rows or bags, dim], once it is there
        self.is_taken = False

    def fits(self, needs: Needs, options: dict) -> bool:
        """Whether it is what that forward of its module needs now."""
        mine = self.needs
        return (
            not self.is_taken
            and all(self.options.get(name) == options.get(name) for name in self.decisive)
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


def _check_exact(modules: Sequence[Any]) -> None:
    for module in modules:
        if module.learns and steps.is_dense(module.feature):
            raise ValueError(
                f"rows of table {module.feature.name!r} cannot be looked up ahead and be up to date: its "
                "optimizer is dense, so every step moves all of them; let them be stale (stale=True, in a "
                "collection of millrace.torchrec prefetch_stale=True), train without looking ahead, or give "
                "the table an optimizer without dense=True"
            )


class Ahead:
    """The answers for one batch."""

    def __init__(self, needs: Sequence[Needs], counts: PrefetchCounts, leave: Optional[int] = None) -> None:
        """Makes the lookups ready. leave: None: rows are brought up to date; else they stay as they were, and
        so many pushes to a table may be in flight. ValueError: rows cannot be brought up to date."""
        self.modules = list(dict.fromkeys(one.module for one in needs))
        if leave is None:
            _check_exact(self.modules)
        self.counts, self.leave = counts, leave
        self.afterwards: Optional[Callable[[], None]] = None  #: called once when answers are up to date
        self.is_started = False
        self._lock = threading.Lock()  # of forwards on several threads
        self._ends = np.cumsum([len(one.keys) for one in needs])  #: of answers' keys among all
        self._hashes = hashes_of([(one.module.feature.id, one.keys) for one in needs])
        self._watches: dict[Any, Watch] = {}  #: by client
        self._lookups = Lookups(needs)
        self._all = [
            Answer(one, options, leave is not None) for one, options in zip(needs, self._lookups.options)
        ]
        self.answers: dict[Any, list[Answer]] = {module: [] for module in self.modules}  #: that are not taken
        for answer in self._all:
            self.answers[answer.needs.module].append(answer)

    def start(self) -> None:
        """Sends the lookups."""
        self.is_started = True
        for client in {module.feature.client for module in self.modules}:
            self._watches[client] = client._watch()
        self._lookups.start()

    def arrive(self) -> None:
        """Waits for the answers; raises the error of a lookup."""
        for answer, values in zip(self._all, self._lookups.values()):
            answer.values = values

    def finish(self) -> None:
        """Has what is to be done afterwards done, unless it has been."""
        afterwards, self.afterwards = self.afterwards, None
        if afterwards is not None:
            afterwards()

    def take(self, needs: Sequence[Needs]) -> list[Optional[np.ndarray]]:
        """What these forwards need, up to date; None: it is not here, or was taken before."""
        with self._lock:
            found: list[Optional[Answer]] = []
            for one in needs:
                options = one.options()
                its = self.answers[one.module]
                answer = next((answer for answer in its if answer.fits(one, options)), None)
                found.append(answer)
                if answer is not None:
                    answer.is_taken = True  # by one of these
            taken = [answer for answer in found if answer is not None]
            if not taken:
                return [None] * len(needs)
            try:
                if self.leave is None:
                    self._refresh(taken)
                else:
                    self._note_stale(taken, self.leave)
            except BaseException:
                for answer in taken:
                    answer.is_taken = False
                raise
            for answer in taken:
                self.answers[answer.needs.module].remove(answer)
                self.counts.rows += answer.needs.size
            self.finish()
            return [None if answer is None else answer.values for answer in found]

    def _outdated(self, since: dict[Any, int]) -> list[tuple[Answer, np.ndarray]]:
        """Which rows or bags each client's changes from `since` on may have changed, by number, of each
        answer that has some and is not taken."""
        changed = np.zeros(len(self._hashes), bool)
        for client, number in since.items():
            changed |= self._watches[client].changes.since(number, self._hashes)
        places = np.flatnonzero(changed)
        cuts = np.searchsorted(places, self._ends).tolist()
        left = {id(answer) for its in self.answers.values() for answer in its}
        found = []
        for answer, first, cut, end in zip(self._all, [0, *cuts], cuts, self._ends.tolist()):
            if id(answer) not in left:
                continue
            table, begin = answer.needs.module.feature, end - len(answer.needs.keys)
            oldest = since.get(table.client)
            if oldest is not None and self._watches[table.client].changes.is_all_since(oldest, table.id):
                keys = np.arange(end - begin)
            else:
                keys = places[first:cut] - begin
            if len(keys) > 0:
                found.append((answer, answer.rows_of(keys)))
        return found

    def _repairs(self, since: dict[Any, State]) -> tuple[list[tuple[Answer, np.ndarray]], Lookups]:
        """What is outdated, and lookups of it, ready to be sent."""
        outdated = self._outdated({client: state.since for client, state in since.items()})
        return outdated, Lookups([answer.part(which) for answer, which in outdated])

    def _refresh(self, taken: Sequence[Answer]) -> None:
        """Brings all answers up to date together, before these are used."""
        watches = self._watches
        seen, repairs = None, None
        if any(watch.has_new() for watch in watches.values()):  # while the changes are being applied
            seen = {client: watch.state() for client, watch in watches.items()}
            repairs = self._repairs(seen)
        modules = {answer.needs.module for answer in taken}
        for module in modules:
            module._pushes.wait(module.feature.id, module.staleness)
        if not any(watch.has_some() for watch in watches.values()):
            return
        for module, its in self.answers.items():
            if its and module not in modules:
                module._pushes.wait(module.feature.id, module.staleness)
        try:
            since = {client: watch.take() for client, watch in watches.items()}
            outdated, lookups = repairs if repairs is not None and since == seen else self._repairs(since)
            for (answer, which), values in zip(outdated, lookups.values()):
                answer.values[which] = values
                self.counts.again += len(which)
        except BaseException:  # the changes were taken: forwards make their own lookups from now on
            for its in self.answers.values():
                its.clear()
            raise

    def _note_stale(self, taken: Sequence[Answer], leave: int) -> None:
        for answer in taken:
            module = answer.needs.module
            module._pushes.wait(module.feature.id, max(leave, module.staleness))
        its = {id(answer) for answer in taken}
        for answer, which in self._outdated(
            {client: watch.state().since for client, watch in self._watches.items()}
        ):
            if id(answer) in its:
                table = answer.needs.module.feature
                pushes = self._watches[table.client].pushes_to(table.id)
                self.counts.stale += len(which)
                self.counts.stale_pushes = max(self.counts.stale_pushes, pushes)
