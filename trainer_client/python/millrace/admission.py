"""Which keys get a row when they are looked up. The others are answered with their first values."""
from __future__ import annotations

from dataclasses import dataclass

from ._base.library import lib


@dataclass(frozen=True)
class Admission:
    """Made by always(), probability() and observations()."""

    kind: int
    argument: float = 0.0
    filter_bytes: int = 0

    def __repr__(self) -> str:
        if self.kind == lib.MR_ADMIT_ALWAYS:
            return "admission.always()"
        name = "probability" if self.kind == lib.MR_ADMIT_PROBABILITY else "observations"
        filter_bytes = f", filter_bytes={self.filter_bytes}" if self.filter_bytes else ""
        return f"admission.{name}({self.argument:g}{filter_bytes})"


def always() -> Admission:
    """Every key."""
    return Admission(lib.MR_ADMIT_ALWAYS)


def probability(share: float) -> Admission:
    """The share `share` (above 0, up to 1) of all keys: which ones follows from key and seed alone."""
    return Admission(lib.MR_ADMIT_PROBABILITY, share)


def observations(count: int, filter_bytes: int = 0) -> Admission:
    """A key with its `count`-th lookup (1 to 255). filter_bytes: of the node, to count in; 0: 16 MiB."""
    return Admission(lib.MR_ADMIT_OBSERVATIONS, count, filter_bytes)
