"""Exceptions of remote functions."""
from __future__ import annotations

import re
import sys
from typing import Any, NoReturn

from ..errors import FunctionFailed


class RemoteError(FunctionFailed):
    """A Python function on another worker raised an exception whose type cannot be raised here; str() is its
    text, with the remote traceback."""


# What a terminal takes for a command, what changes the direction of text or cannot be seen, and what is no
# text; but not line breaks and tabs, which tracebacks have.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def printable(text: str) -> str:
    """What a peer said, for people: as the library shows it (dataplane/wire/base/printable.h)."""

    def escaped(found: re.Match[str]) -> str:
        return "".join(f"\\x{byte:02x}" for byte in found[0].encode("utf-8", "surrogatepass"))

    return _UNPRINTABLE.sub(escaped, text)


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
