"""What others say, for terminals."""
from __future__ import annotations

import re

# What a terminal takes for a command, what changes the direction of text or cannot be seen, and what is no
# text; but not line breaks and tabs, which tracebacks have.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def printable(text: str) -> str:
    """What a peer or a file says, for people: as the library shows it (dataplane/wire/base/printable.h)."""

    def escaped(found: re.Match[str]) -> str:
        return "".join(f"\\x{byte:02x}" for byte in found[0].encode("utf-8", "surrogatepass"))

    return _UNPRINTABLE.sub(escaped, text)
