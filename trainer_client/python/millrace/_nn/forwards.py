"""The results of forwards: a forward says what it needs as a Needs, and look_up() has it from a lookup that
was made ahead, or looks it up for all forwards of a step; and it has their gradients go to the backward
pass."""
from __future__ import annotations

from typing import Sequence

import numpy as np
import torch

from . import ahead
from .backward import Rows, by_frequency, running
from .tables import Lookups, Needs


def _look_up_now(needs: Sequence[Needs]) -> list[np.ndarray]:
    """After their tables' earlier pushes but for `staleness`."""
    for one in needs:
        one.module._catch_up()
    if len(needs) != 1 or len(needs[0].keys) == 0:
        return Lookups(needs).values()
    one = needs[0]
    table, options = one.module.feature, one.options()
    if one.offsets is None:
        return [table.lookup(one.keys, **options)]
    return [table.lookup_bags(one.keys, one.offsets, weights=one.weights, **options)]


def _values_of(needs: Sequence[Needs]) -> list[np.ndarray]:
    found = ahead.take(needs)
    rest = iter(_look_up_now([one for one, values in zip(needs, found) if values is None]))
    return [next(rest) if values is None else values for values in found]


def _nothing(gradient: np.ndarray) -> None:
    """Takes the gradient of no keys; a backward pass has an end there all the same."""


def _tensor_of(needs: Needs, values: np.ndarray) -> torch.Tensor:
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
    return [_tensor_of(one, values) for one, values in zip(needs, _values_of(needs))]
