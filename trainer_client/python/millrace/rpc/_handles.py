"""Python objects that libmillrace holds, as numbers that it takes for pointers: those of references and of
runs on a tape."""
from __future__ import annotations

import itertools
from typing import Any

from .._base.library import callback, ffi

_objects: dict[int, Any] = {}
_numbers = itertools.count(1)


def keep(thing: Any) -> Any:
    """A pointer that stands for it until `drop` is called with that."""
    number = next(_numbers)
    _objects[number] = thing
    return ffi.cast("void *", number)


def get(pointer: Any) -> Any:
    """KeyError: it is not one of ours."""
    return _objects[int(ffi.cast("uintptr_t", pointer))]


@callback("void(void *)")
def drop(pointer: Any) -> None:
    """Called by the library when nobody needs the object any more; calls its `dropped`, if it has one."""
    thing = _objects.pop(int(ffi.cast("uintptr_t", pointer)), None)
    dropped = getattr(thing, "dropped", None)
    if dropped is not None:
        dropped()
