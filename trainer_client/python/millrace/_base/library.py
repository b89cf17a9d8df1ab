"""The library libmillrace: `lib` has its functions and constants, `ffi` makes the structs that they take.

Calls release the interpreter's lock. The library is the one that $MILLRACE_LIBRARY names, else the one in the
package, as pip installs it, else the system's.
"""
import os
from typing import Any, Callable, Optional

from .._abi import ffi as ffi

_NAME = "libmillrace.so.0.4"


def _open() -> Any:
    packaged = os.path.join(os.path.dirname(os.path.dirname(__file__)), "_lib", _NAME)
    path = os.environ.get("MILLRACE_LIBRARY") or (packaged if os.path.exists(packaged) else _NAME)
    try:
        return ffi.dlopen(path)
    except OSError as error:
        raise ImportError(
            f"{path} cannot be loaded: {error}: install millrace with pip, or the package "
            "libmillrace0.4, or run "
            "`make install`, or name the library in $MILLRACE_LIBRARY"
        ) from None


lib = _open()
_libc = ffi.dlopen(None)
NULL = ffi.NULL


def callback(signature: str, error: Optional[int] = None) -> Callable[[Callable[..., Any]], Any]:
    """Decorator: makes a function one of C's, of this type or typedef. error: what C gets when it raises;
    None: 0."""
    return ffi.callback(signature, error=error)


def text(pointer: Any) -> str:
    """A C string, "" for NULL."""
    return "" if pointer == NULL else ffi.string(pointer).decode("utf-8", "replace")


def counted(count: int, noun: str) -> str:
    """ "1 key", "2 keys"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def free(pointer: Any) -> None:
    """free() for what the library hands out to be freed so."""
    _libc.free(pointer)
