"""What forwards need of their tables, looked up together.

A forward says what it needs as a Needs; look_up() gets it for all forwards of a step, and has their gradients
go to the backward pass.
"""
from __future__ import annotations

import collections
from typing import Any, Callable, NamedTuple, Optional, Sequence

import numpy as np
import torch

from .backward import Rows, by_frequency, running
from ..future import Future


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
        """Of the lookup, as the module is now."""
        return {**self.module.options, "read_only": not self.module.learns}


class Lookups:
    """Lookups on their way: one call for those of a client that have the same options."""

    def __init__(self, needs: Sequence[Needs]) -> None:
        """Starts them. A forward without keys needs none."""
        self._values = [np.zeros((one.size, one.module.embedding_dim), np.float32) for one in needs]
        self._calls: list[tuple[list[int], Future]] = []
        together: dict[tuple, list[int]] = collections.defaultdict(list)
        for i, one in enumerate(needs):
            if len(one.keys) > 0:
                together[(one.module.feature.client, *sorted(one.options().items()))].append(i)
        for (client, *_), places in together.items():
            tables = [(needs[i].module.feature, *needs[i][1:4]) for i in places]
            options = {**needs[places[0]].options(), "more": len(self._calls) + 1 < len(together)}
            self._calls.append((places, client.lookup_tables_async(tables, **options)))

    def values(self) -> list[np.ndarray]:
        """Waits: f32 [rows or bags, dim] of each. Raises the first error of a lookup."""
        for places, future in self._calls:
            for i, values in zip(places, future.result()):
                self._values[i] = values
        self._calls = []
        return self._values


def values_of(needs: Sequence[Needs]) -> list[np.ndarray]:
    """Looks them up now, after their tables' earlier pushes but for `staleness`."""
    for one in needs:
        one.module._catch_up()
    if len(needs) != 1 or len(needs[0].keys) == 0:
        return Lookups(needs).values()
    one = needs[0]
    table, options = one.module.feature, one.options()
    if one.offsets is None:
        return [table.lookup(one.keys, **options)]
    return [table.lookup_bags(one.keys, one.offsets, weights=one.weights, **options)]


def _nothing(gradient: np.ndarray) -> None:
    """Takes the gradient of no keys; a backward pass has an end there all the same."""


def tensor_of(needs: Needs, values: np.ndarray) -> torch.Tensor:
    """The forward's result; its gradient goes to the backward pass."""
    module, options = needs.module, dict(needs.module.options)
    if len(needs.keys) == 0:
        return needs.finish(module._tensor(values, _nothing))

    def take(gradient: np.ndarray) -> None:
        rows = Rows(needs.keys, needs.offsets, needs.weights, gradient)
        if module.scale_grad_by_freq:
            rows = by_frequency(module.feature, rows)
        running().add_rows(module.feature, rows, options, module.anchor)

    return needs.finish(module._tensor(values, take))


def look_up(needs: Sequence[Needs]) -> list[torch.Tensor]:
    """The results of the forwards that need this."""
    return [tensor_of(one, values) for one, values in zip(needs, values_of(needs))]
