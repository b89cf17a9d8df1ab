"""What torch.compile() leaves as it is: calls to a server, at which its graphs break once."""
from __future__ import annotations

import functools
import sys
from typing import Any, Callable, TypeVar

import torch

_Function = TypeVar("_Function", bound=Callable[..., Any])


def uncompiled(function: _Function) -> _Function:
    """The function, never compiled. Nothing is imported for it: where nobody has imported torch's compiler,
    nothing is compiled."""
    compiler: Any = getattr(torch, "compiler", None)
    if compiler is None:  # before torch 2.1
        return function
    made: list[Callable[..., Any]] = []

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        if not made:
            made.append(compiler.disable(function))
        return made[0](*args, **kwargs)

    return call  # type: ignore[return-value]
