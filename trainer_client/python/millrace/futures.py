"""Futures with the names and meaning of torch.futures, for those that millrace.rpc returns. Needs torch."""
from __future__ import annotations

from .rpc import Future, wait_all
from .rpc._future import collect_all

__all__ = ["Future", "collect_all", "wait_all"]
