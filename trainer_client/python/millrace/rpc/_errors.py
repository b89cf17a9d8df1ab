"""Exceptions of remote functions."""
from __future__ import annotations

import sys

from ..errors import FunctionFailed


class RemoteError(FunctionFailed, RuntimeError):
    """A Python function raised on another worker what cannot be raised here as it was; str() is its text,
    with the traceback there."""


def raise_told(told: tuple[str, str, str]) -> None:
    """Raises what a function on another worker raised: of the same type, where this process knows that and it
    can be made of a text."""
    module, name, line = told
    kind = sys.modules.get(module)
    for part in name.split("."):
        kind = getattr(kind, part, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            error = kind(line)
        except Exception:  # noqa: BLE001: its constructor takes something else
            error = RemoteError(line)
        raise error from None
    raise RemoteError(line) from None
