"""Errors of calls: one exception class for each status of the library, all below `millrace.Error`.

`error.status` is the status' name ("UNKNOWN_TABLE"), str(error) the library's line about what happened where.
Where Python has an exception of that meaning the class is one of those, too: `except TimeoutError` catches
DeadlineExceeded.
"""
from __future__ import annotations

from ._base.library import lib, text


class Error(RuntimeError):
    """A call failed."""

    status = "INTERNAL"


_ALSO = {
    "DEADLINE_EXCEEDED": TimeoutError,
    "UNREACHABLE": ConnectionError,
    "UNKNOWN_OUTCOME": ConnectionError,
    "WORKER_DIED": ConnectionError,
    "UNAUTHORIZED": PermissionError,
    "INVALID_ARGUMENT": ValueError,
    "WRONG_DIM": ValueError,
    "WRONG_SHAPE": ValueError,
    "FEATURE_MISMATCH": ValueError,
    "WRONG_DTYPE": TypeError,
    "WRONG_SIGNATURE": TypeError,
    "UNKNOWN_TABLE": LookupError,
    "UNKNOWN_VARIABLE": LookupError,
    "UNKNOWN_BATCH": LookupError,
    "UNKNOWN_WORKER": LookupError,
    "UNKNOWN_FUNCTION": LookupError,
    "CHECKPOINT_NOT_FOUND": LookupError,
    "OUT_OF_MEMORY": MemoryError,
    "NO_MEMORY": MemoryError,
    "IO_ERROR": OSError,
}


def _make(status: str) -> type[Error]:
    name = "".join(word.capitalize() for word in status.split("_"))
    bases = (Error, _ALSO[status]) if status in _ALSO else (Error,)
    doc = text(lib.mr_status_text(getattr(lib, "MR_" + status)))
    return type(
        name, bases, {"__doc__": doc[:1].upper() + doc[1:] + ".", "__module__": "millrace", "status": status}
    )


_CLASSES: dict[int, type[Error]] = {}
for _number in range(1, lib.MR_STATUS_COUNT):
    _class = _make(text(lib.mr_status_name(_number)))
    _CLASSES[_number] = _class
    globals()[_class.__name__] = _class


class ClientClosed(_CLASSES[lib.MR_CANCELLED]):  # type: ignore[misc,valid-type]
    """The client was closed, or belongs to the process that this one was forked from."""


__all__ = ["Error", "ClientClosed", *(c.__name__ for c in _CLASSES.values())]


def error_of(status: int, line: str = "") -> Error:
    """The exception for a status; without a line of its own it has the status' text."""
    return _CLASSES.get(status, Error)(line or text(lib.mr_status_text(status)))


def check(status: int) -> None:
    """Raises what a call of this thread with a client ended with, unless that was well."""
    if status:
        raise error_of(status, text(lib.mr_last_error()))


def check_rpc(status: int) -> None:
    """The same for functions of millrace_rpc.h."""
    if status:
        raise error_of(status, text(lib.mr_rpc_last_error()))
