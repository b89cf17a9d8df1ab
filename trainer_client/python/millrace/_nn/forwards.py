"""The results of forwards: a forward says what it needs as a Needs. values_of() has it from a lookup that was
made ahead, or looks it up for all forwards of a step; tensors_of() has their gradients go to the backward
pass."""
from __future__ import annotations

from typing import Callable, Optional, Sequence

import numpy as np
import torch

from . import ahead
from .backward import running, tensors
from .pushes import Rows, by_frequency
from .tables import Lookups, Needs
from .._base import steps


def _look_up_now(needs: Sequence[Needs]) -> list[np.ndarray]:
    """After their tables' earlier pushes but for `staleness`."""
    if len(needs) != 1 or len(needs[0].keys) == 0:
        lookups = Lookups(needs)
        for one in needs:
            one.module._catch_up()
        lookups.start()
        return lookups.values()
    one = needs[0]
    one.module._catch_up()
    table, options = one.module.feature, one.options()
    if one.offsets is None:
        return [table.lookup(one.keys, **options)]
    return [table.lookup_bags(one.keys, one.offsets, weights=one.weights, **options)]


def values_of(needs: Sequence[Needs]) -> list[np.ndarray]:
    """What the servers have for each: f32 [its size, dim]."""
    found = ahead.take(needs)
    rest = iter(_look_up_now([one for one, values in zip(needs, found) if values is None]))
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


def look_up(needs: Sequence[Needs]) -> list[torch.Tensor]:
    """The results of the forwards that need this."""
    return tensors_of(needs, values_of(needs))
