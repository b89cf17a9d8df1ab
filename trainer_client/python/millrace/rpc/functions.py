"""Decorators for functions that other workers call, as in torch.distributed.rpc.functions."""
from __future__ import annotations

import functools
from typing import Any, Callable, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "_wrapped_async_rpc_function"  # as torch's own decorator marks them, which works here, too


def async_execution(fn: F) -> F:
    """Has callers get the value of the future that the function returns, once it is there. No thread of this
    worker waits for it meanwhile, so that any number of calls may wait for one that comes after them.

    fn: returns a Future of this package (rpc_async(), then(), or one of one's own that set_result() ends), or
    one of torch.futures. Below @staticmethod and @classmethod; also for methods that rref.rpc_sync() calls.
    """

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    setattr(wrapper, _MARK, fn)
    return wrapper  # type: ignore[return-value]


def is_async(function: Any) -> bool:
    """Whether a caller of the function gets the value of the future that it returns."""
    return hasattr(function, _MARK)
