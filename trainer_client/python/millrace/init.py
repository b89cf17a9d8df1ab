"""First values of rows and variables: functions of seed and key alone, so that they do not depend on who asks
first.

`seed` also spreads the keys over the server's cores.
"""
from __future__ import annotations

from dataclasses import dataclass

from ._base.library import lib


@dataclass(frozen=True)
class Initializer:
    """Made by constant(), uniform(), normal() and truncated_normal()."""

    kind: int
    a: float
    b: float
    seed: int = 0

    def __repr__(self) -> str:
        seed = f", seed={self.seed}" if self.seed else ""
        if self.kind == lib.MR_INIT_CONSTANT:
            return f"init.constant({self.a:g}{seed})"
        names = {lib.MR_INIT_UNIFORM: "uniform", lib.MR_INIT_NORMAL: "normal"}
        return f"init.{names.get(self.kind, 'truncated_normal')}({self.a:g}, {self.b:g}{seed})"


def constant(value: float = 0.0, seed: int = 0) -> Initializer:
    """All are `value`."""
    return Initializer(lib.MR_INIT_CONSTANT, value, 0.0, seed)


def uniform(low: float, high: float, seed: int = 0) -> Initializer:
    """Evenly from `low` to `high`, which is at least that."""
    return Initializer(lib.MR_INIT_UNIFORM, low, high, seed)


def normal(mean: float = 0.0, std: float = 1.0, seed: int = 0) -> Initializer:
    """By a normal distribution. std: at least 0."""
    return Initializer(lib.MR_INIT_NORMAL, mean, std, seed)


def truncated_normal(mean: float = 0.0, std: float = 1.0, seed: int = 0) -> Initializer:
    """The same, cut at two standard deviations."""
    return Initializer(lib.MR_INIT_TRUNCATED_NORMAL, mean, std, seed)
