"""Learning rates by step: below `warmup_steps` they rise to the optimizer's lr; then they go to `end` over
`steps` steps.

The step is that which calls carry (step=...); pushes without one count as step 0. Millrace.optim has this
module as `optim.schedule`.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ._base.library import lib


@dataclass(frozen=True)
class Schedule:
    """What the schedules have in common. steps: above 0; end: a learning rate, and warmup_steps: at least
    0."""

    kind: ClassVar[int]
    steps: int = 0
    end: float = 0.0
    warmup_steps: int = 0


@dataclass(frozen=True)
class Constant(Schedule):
    """lr throughout, after `warmup_steps` steps."""

    kind: ClassVar[int] = lib.MR_SCHEDULE_CONSTANT

    def __init__(self, warmup_steps: int = 0) -> None:
        super().__init__(0, 0.0, warmup_steps)


@dataclass(frozen=True)
class Linear(Schedule):
    """In a straight line to `end`."""

    kind: ClassVar[int] = lib.MR_SCHEDULE_LINEAR


@dataclass(frozen=True)
class Cosine(Schedule):
    """By half a cosine wave to `end`."""

    kind: ClassVar[int] = lib.MR_SCHEDULE_COSINE


@dataclass(frozen=True)
class Exponential(Schedule):
    """By equal factors to `end`, which is above 0, as lr is."""

    kind: ClassVar[int] = lib.MR_SCHEDULE_EXPONENTIAL


_KINDS: tuple[type[Schedule], ...] = (Constant, Linear, Cosine, Exponential)
BY_KIND: dict[int, type[Schedule]] = {c.kind: c for c in _KINDS}
