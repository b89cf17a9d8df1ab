"""What forwards need of their tables, looked up together.

A forward says what it needs as a Needs; look_up() gets it for all forwards of a step, and has their gradients
go to the backward pass.
"""
from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional, Sequence

import numpy as np
import torch

from .backward import Rows, by_frequency, running


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


def _values(needs: Needs) -> np.ndarray:
    module = needs.module
    table, options = module.feature, {**module.options, "read_only": not module.learns}
    if needs.offsets is None:
        return table.lookup(needs.keys, **options)
    return table.lookup_bags(needs.keys, needs.offsets, weights=needs.weights, **options)


def _nothing(gradient: np.ndarray) -> None:
    """Takes the gradient of no keys; a backward pass has an end there all the same."""


def _tensor(needs: Needs, values: np.ndarray) -> torch.Tensor:
    module, options = needs.module, dict(needs.module.options)
    if len(needs.keys) == 0:
        return module._tensor(values, _nothing)

    def take(gradient: np.ndarray) -> None:
        rows = Rows(needs.keys, needs.offsets, needs.weights, gradient)
        if module.scale_grad_by_freq:
            rows = by_frequency(module.feature, rows)
        running().add_rows(module.feature, rows, options, module.anchor)

    return module._tensor(values, take)


def look_up(needs: Sequence[Needs]) -> list[torch.Tensor]:
    """The results of the forwards that need this, after their tables' earlier pushes but for `staleness`."""
    results = []
    for one in needs:
        one.module._catch_up()
        if len(one.keys) == 0:
            values = np.zeros((one.size, one.module.embedding_dim), np.float32)
        else:
            values = _values(one)
        results.append(one.finish(_tensor(one, values)))
    return results
