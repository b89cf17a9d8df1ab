"""What forwards look up.

A forward says what it needs as a Needs. values_of() has it from a lookup that was made ahead, or looks it up,
for all forwards of a step with one call for each client. tensors_of() has their gradients go to the backward
pass.
"""
from __future__ import annotations

import collections
import weakref
from typing import Any, Callable, NamedTuple, Optional, Sequence

import numpy as np
import torch

from .backward import running, tensors
from .pushes import Rows, by_frequency
from .._base import steps
from .._base.arrays import rows_of
from ..future import Future
from ..table import lookup_of


class Needs(NamedTuple):
    """A lookup that a module's forward needs, and what the forward makes of its answer."""

    module: Any  #: EmbeddingBag or Embedding
    keys: np.ndarray  #: u64 [n]
    offsets: Optional[np.ndarray]  #: u32 [bags + 1], from 0 to n; None: a row for each key
    weights: Optional[np.ndarray]  #: f32 [n] of keys in bags; None: all are 1
    finish: Callable[[torch.Tensor], torch.Tensor]  #: the forward's result, of [n or bags, dim]

    @property
    def size(self) -> int:
        """How many rows or bags the answer has."""
        return len(self.keys) if self.offsets is None else len(self.offsets) - 1

    def options(self) -> dict:
        """Of the lookup, as the module is now. A learning rate is for pushes."""
        table, learns, options = self.module.feature, self.module.learns, dict(self.module.options)
        table.id  # noqa: B018  # a collection's table has its optimizer when it is made
        if table.spec.optimizer.counts_steps:
            options = steps.of_lookup(table, options, learns)
        options["read_only"] = not learns
        options.pop("learning_rate", None)
        return options


class Lookups:
    """Lookups, one call for those of a client that have the same options: made ready first, then sent."""

    def __init__(self, needs: Sequence[Needs]) -> None:
        """Makes them ready. A forward without keys needs none."""
        self.options = [one.options() for one in needs]  #: of each
        self._values: list[Any] = [None] * len(needs)
        self._ready: list[tuple[Any, list[int], Any]] = []  # clients, places and calls
        self._sent: list[tuple[list[int], Future]] = []
        together: dict[tuple, list[int]] = collections.defaultdict(list)
        for i, (one, options) in enumerate(zip(needs, self.options)):
            if len(one.keys) > 0:
                together[(one.module.feature.client, *sorted(options.items()))].append(i)
            else:
                self._values[i] = np.zeros((one.size, one.module.embedding_dim), np.float32)
        for (client, *_), places in together.items():
            tables = [(needs[i].module.feature, *needs[i][1:4]) for i in places]
            if len(tables) == 1:
                self._ready.append(
                    (client, places, lookup_of(*tables[0], lambda reply: [rows_of(reply, None)]))
                )
            else:
                self._ready.append((client, places, client._lookup_arrays(tables)))

    def start(self) -> None:
        """Sends them."""
        while self._ready:
            client, places, call = self._ready.pop(0)
            more = any(other is client for other, *_ in self._ready)
            options = {**self.options[places[0]], "more": more}
            self._sent.append((places, client._start(call, options)))

    def values(self) -> list[np.ndarray]:
        """Sends them, unless that has been done, and waits: f32 [rows or bags, dim] of each. Raises the first
        error of a lookup."""
        if len(self._ready) == 1:
            client, places, call = self._ready.pop()
            answers = [(places, client._run(call, self.options[places[0]]))]
        else:
            self.start()
            answers = [(places, future.result()) for places, future in self._sent]
        self._sent = []
        for places, rows in answers:
            for i, values in zip(places, rows):
                self._values[i] = values
        return self._values


# ---- lookups that were made ahead ----

_current: "weakref.WeakKeyDictionary[Any, list[Any]]" = weakref.WeakKeyDictionary()  #: Ahead, by module


def enter(ahead: Any) -> None:
    """Forwards may take its answers."""
    for module in ahead.modules:
        _current.setdefault(module, []).append(ahead)


def leave(ahead: Any) -> None:
    """No more."""
    for module in ahead.modules:
        its = _current[module]
        its.remove(ahead)
        if not its:
            del _current[module]


def _take(needs: Sequence[Needs]) -> list[Optional[np.ndarray]]:
    """What each of these forwards needs, if it was looked up ahead."""
    found: list[Optional[np.ndarray]] = [None] * len(needs)
    its = {i: _current[one.module][::-1] for i, one in enumerate(needs) if one.module in _current}
    for depth in range(max(map(len, its.values()), default=0)):
        left: dict[Any, list[int]] = {}
        for i, aheads in its.items():
            if found[i] is None and depth < len(aheads):
                left.setdefault(aheads[depth], []).append(i)
        for ahead, places in left.items():
            for i, values in zip(places, ahead.take([needs[i] for i in places])):
                found[i] = values
    for i, aheads in its.items():
        aheads[0].counts.missed += found[i] is None
    return found


# ---- results ----


def values_of(needs: Sequence[Needs]) -> list[np.ndarray]:
    """What the servers have for each: f32 [its size, dim], after its table's earlier pushes but for
    `staleness`."""
    found = _take(needs) if _current else [None] * len(needs)
    missing = [one for one, values in zip(needs, found) if values is None]
    lookups = Lookups(missing)
    for one in missing:
        one.module._pushes.wait(one.module.feature.id, one.module.staleness)
    rest = iter(lookups.values())
    return [next(rest) if values is None else values for values in found]


def _nothing(gradient: np.ndarray) -> None:
    """Takes the gradient of no keys; a backward pass has an end there all the same."""


def _taker_of(needs: Needs) -> Optional[Callable[[np.ndarray], None]]:
    """What gives the gradient of a forward's values to the backward pass; None: the forward learns
    nothing."""
    module = needs.module
    if not module.learns:
        return None
    if len(needs.keys) == 0 and not steps.is_dense(module.feature):
        return _nothing
    options, anchor = dict(module.options), module.anchor

    def take(gradient: np.ndarray) -> None:
        rows = Rows(needs.keys, needs.offsets, needs.weights, gradient)
        if module.scale_grad_by_freq:
            rows = by_frequency(module.feature, rows)
        running().add_rows(module.feature, rows, options, anchor)

    return take


def tensors_of(needs: Sequence[Needs], values: Sequence[np.ndarray]) -> list[torch.Tensor]:
    """The results of the forwards that need these values."""
    modules = [one.module for one in needs]
    made = tensors(
        values,
        [module._place for module in modules],
        [_taker_of(one) for one in needs],
        [module.anchor for module in modules],
    )
    return [one.finish(tensor) for one, tensor in zip(needs, made)]
