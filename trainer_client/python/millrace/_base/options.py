"""What the calls' keyword arguments become: struct mr_options, in memory that is used again."""
from __future__ import annotations

import math
from typing import Any, Mapping, TypedDict

from .library import NULL, ffi, lib
from ..pushed import Pushed

DTYPES = {"f32": lib.MR_F32, "f16": lib.MR_F16, "bf16": lib.MR_BF16, "i8": lib.MR_I8}


class CallOptions(TypedDict, total=False):
    """Keyword arguments that every call takes."""

    #: seconds until the call ends one way or the other; else the client's deadline_s
    deadline_s: float | None
    priority: int  #: 0 (bulk) to 7 (first)
    #: the trainer's training step, kept by the server with each push; of a table with a dense optimizer, rows
    #: are read as this step finds them
    step: int
    #: of the gradients that this call pushes, in place of the features' own; 0 is one, too
    learning_rate: float
    #: of rows and gradients on the wire: "f32", "f16", "bf16" or "i8"; arrays are float32 all the same
    wire_dtype: str
    read_only: bool  #: of lookups of rows by key: they make no rows and leave no trace, for evaluation
    pushed: Pushed  #: of pushes of gradients: receives their results, which costs a little
    more: bool  #: of an `_async` call: another follows at once, and this one may wait to share its packet


def milliseconds(name: str, seconds: float) -> int:
    """Of a time that is above 0: at least 1."""
    if not seconds > 0:
        raise ValueError(f"{name} is {seconds}; it is a number of seconds above 0")
    return min(math.ceil(seconds * 1000), 0xFFFFFFFF) if seconds != math.inf else 0xFFFFFFFF


def whole(name: str, value: Any, largest: int) -> int:
    """A whole number from 0 to `largest`."""
    if not isinstance(value, int) and not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {value!r}; it is a whole number from 0 to {largest}")
    number = value.__index__()
    if not 0 <= number <= largest:
        raise ValueError(f"{name} is {number}; it goes from 0 to {largest}")
    return number


def choice(name: str, value: Any, known: dict[str, int]) -> int:
    """The number of one of the named choices."""
    if isinstance(value, str) and value in known:
        return known[value]
    raise ValueError(f"{name} is {value!r}; it is one of {', '.join(known)}")


class Slot:
    """A call's structs: its options, and where the library puts future and reply. One call uses it at a
    time."""

    __slots__ = ("options", "future", "reply")

    def __init__(self) -> None:
        self.future = ffi.new("struct mr_future **")
        self.options = ffi.new("struct mr_options *", {"future": self.future})
        self.reply = ffi.new("struct mr_reply **")

    def set(self, given: Mapping[str, Any]) -> None:
        """Fills in the options of a call. On error clear() must be called all the same."""
        options = self.options
        for name, value in given.items():
            if value is None:
                continue
            if name == "deadline_s":
                options.deadline_ms = milliseconds(name, value)
            elif name == "step":
                options.step = whole(name, value, 0xFFFFFFFFFFFFFFFF)
            elif name == "priority":
                options.priority = whole(name, value, 7)
            elif name == "learning_rate":
                options.learning_rate = value
                options.has_learning_rate = True
            elif name == "wire_dtype":
                options.wire_dtype = choice(name, value, DTYPES)
            elif name == "pushed":
                if not isinstance(value, Pushed):
                    raise TypeError(f"pushed is {value!r}; it is a millrace.Pushed")
                options.pushed = value._struct
            elif name == "more":
                options.more = bool(value)
            elif name == "read_only":
                options.read_only = bool(value)
            else:
                raise TypeError(
                    f"{name!r} is no argument of this call; each call also takes "
                    f"{', '.join(CallOptions.__annotations__)}"
                )

    def clear(self) -> None:
        """Back to no options."""
        options = self.options
        options.deadline_ms = 0
        options.priority = 0
        options.step = 0
        options.learning_rate = 0
        options.has_learning_rate = False
        options.wire_dtype = 0
        options.pushed = NULL
        options.more = False
        options.read_only = False
