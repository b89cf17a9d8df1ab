"""Futures with the names and meaning of torch.futures, for those that millrace.rpc returns. Needs torch."""
from __future__ import annotations

from typing import Iterable

from .rpc import Future, wait_all

__all__ = ["Future", "collect_all", "wait_all"]


def collect_all(futures: Iterable[Future]) -> Future:
    """Returns a future whose value is the list of the futures, once all of them are done, also if some have
    failed."""
    from .rpc._future import collected

    return collected(list(futures))
