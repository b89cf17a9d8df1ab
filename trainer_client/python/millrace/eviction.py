"""What rows go for. With lru(), lfu(), age() and steps() a row goes for a new key when the table is at its
limit; otherwise it takes no new keys then."""

from __future__ import annotations

from dataclasses import dataclass

from ._base.library import lib

_WITH_ARGUMENT = {lib.MR_EVICT_AGE: "age", lib.MR_EVICT_STEPS: "steps", lib.MR_EVICT_NORM: "norm"}
_NAMES = {**_WITH_ARGUMENT, lib.MR_EVICT_NEVER: "never", lib.MR_EVICT_LRU: "lru", lib.MR_EVICT_LFU: "lfu"}


@dataclass(frozen=True)
class Eviction:
    """Made by never(), age(), steps(), norm(), lru() and lfu()."""

    kind: int
    argument: float = 0.0

    def __repr__(self) -> str:
        argument = f"{self.argument:g}" if self.kind in _WITH_ARGUMENT else ""
        return f"eviction.{_NAMES.get(self.kind, self.kind)}({argument})"


def never() -> Eviction:
    """Nothing."""
    return Eviction(lib.MR_EVICT_NEVER)


def age(seconds: float) -> Eviction:
    """Not looked up or pushed for so many seconds, above 0; at a limit, for the most seconds."""
    return Eviction(lib.MR_EVICT_AGE, seconds)


def steps(count: int) -> Eviction:
    """Not looked up or pushed for so many steps, above 0, by the steps that calls carry; at a limit, for the
    most steps."""
    return Eviction(lib.MR_EVICT_STEPS, count)


def norm(least: float) -> Eviction:
    """L2 norm of the values below `least`, above 0, and unused for a minute."""
    return Eviction(lib.MR_EVICT_NORM, least)


def lru() -> Eviction:
    """Least recently used."""
    return Eviction(lib.MR_EVICT_LRU)


def lfu() -> Eviction:
    """Least often used."""
    return Eviction(lib.MR_EVICT_LFU)
