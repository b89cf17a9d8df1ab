"""Exceptions of remote functions."""
from __future__ import annotations

import sys
from typing import Any, NoReturn

from .._base.printable import printable
from ..errors import FunctionFailed


class RemoteError(FunctionFailed):
    """A Python function on another worker raised an exception whose type cannot be raised here; str() is its
    text, with the remote traceback."""


def raise_remote(raised: tuple[str, str, str]) -> NoReturn:
    """Raises what a function on another worker raised, with the same type if this process knows it and it can
    be made from a text."""
    module, name, line = raised[0], printable(raised[1]), printable(raised[2])
    kind: Any = sys.modules.get(module)
    for part in name.split("."):
        kind = getattr(kind, part, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            error = kind(line)
        except Exception as why:  # noqa: BLE001: its constructor takes something else
            error = RemoteError(
                f"a {name} cannot be made here of a text ({why}). "
                f"Original exception on remote side was: {line}"
            )
        raise error from None
    raise RemoteError(line) from None
