"""Calls: rpc_sync, rpc_async and remote, of registered functions by name, and of Python functions."""
from __future__ import annotations

import threading
from functools import lru_cache, partial
from typing import Any, Callable, Sequence

import numpy as np
import torch

from .._base.library import NULL, ffi, lib, text
from ..errors import InvalidArgument, check_rpc, error_of
from . import _pickles
from ._contexts import Context, here, waiting
from ._errors import raise_remote
from ._future import CallFuture, Future, ended_future
from ._rref import RRef, adopt
from ._values import (
    RESULT_PLACE,
    VALUES_MAX,
    Result,
    fill_array,
    fill_bytes,
    fill_i64,
    fill_string,
    fill_tensor,
    read_bytes,
    read_string,
    read_tensor,
    travels,
)
from ._world import World, current

_FUTURE_PLACE = ffi.typeof("struct mr_rpc_future **")  # as RESULT_PLACE
_NONE = (NULL, 0)  # no arguments
_encode_name = lru_cache(maxsize=1024)(str.encode)


class _Collecting(threading.local):
    """`future_list`, while api._wait_all() is there: what this thread begins."""


collecting = _Collecting()


def _call_options(world: World, timeout: float, pointer: Any) -> Any:
    if timeout == -1.0 and world.timeout_ms == 0 and (pointer is NULL or pointer == NULL):
        return NULL
    options = ffi.new("struct mr_rpc_call_options *")
    options.timeout_ms = world.milliseconds(timeout)
    options.context = pointer
    return options


# ---- registered functions ----


def _fill_native(
    values: Any, args: Sequence[Any], context: Context | None, pointer: Any, alive: list
) -> None:
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    numbers = iter(_pickles.tape_numbers(tensors, context, pointer))
    for value, arg in zip(values, args):
        if isinstance(arg, torch.Tensor):
            if not travels(arg):
                raise TypeError(f"a tensor of {arg.dtype}, {arg.layout}, cannot be an argument")
            fill_tensor(value, arg, next(numbers), alive)
        elif isinstance(arg, (int, np.integer)):
            fill_i64(value, int(arg))
        elif isinstance(arg, (float, np.floating)):
            value.kind = lib.MR_VALUE_F64
            value.f64 = float(arg)
        elif isinstance(arg, str):
            fill_string(value, arg, alive)
        elif isinstance(arg, RRef):
            value.kind = lib.MR_VALUE_RREF
            value.rref = arg._pointer()
            alive.append(arg)
        elif isinstance(arg, np.ndarray):
            fill_array(value, arg, alive)
        else:
            raise TypeError(
                f"a {type(arg).__name__} cannot be an argument of a registered function: tensors, arrays, "
                "int, float, str and RRef can"
            )


def _native_arguments(
    world: World,
    name: str,
    args: Sequence[Any] | None,
    kwargs: dict | None,
    context: Context | None,
    pointer: Any,
    alive: list,
) -> tuple[Any, int]:
    if kwargs:
        raise TypeError(
            f"{name}: a function registered by name takes no keyword arguments ({', '.join(kwargs)})"
        )
    args = args or ()
    if len(args) > VALUES_MAX:
        raise InvalidArgument(f"{name}: {len(args)} arguments; there may be {VALUES_MAX}")
    values = _pickles.new_values(len(args))
    _fill_native(values, args, context, pointer, alive)
    return values, len(args)


def read_value(world: World, value: Any, owner: Result, context: Context | None) -> Any:
    """Reads one value that a registered function returned."""
    kind = value.kind
    if kind == lib.MR_VALUE_TENSOR:
        tensor = read_tensor(value.tensor, owner)
        return context.leaf(tensor, value.gradient) if value.gradient and context is not None else tensor
    if kind == lib.MR_VALUE_I64:
        return value.i64
    if kind == lib.MR_VALUE_F64:
        return value.f64
    if kind == lib.MR_VALUE_STRING:
        return read_string(value)
    return adopt(world, value.rref) if kind == lib.MR_VALUE_RREF else None


def read_native(world: World, pointer: Any, context: Context | None = None) -> Any:
    """Returns a registered function's results: None, the only one, or a tuple. Takes the result."""
    if pointer == NULL:
        return None
    result = Result(world, pointer)
    values = [read_value(world, value, result, context) for value in result.values()]
    return values[0] if len(values) == 1 else tuple(values)


# ---- Python functions ----


def _python_arguments(
    world: World,
    rank: int,
    function: Callable,
    args: Sequence[Any] | None,
    kwargs: dict | None,
    context: Context | None,
    pointer: Any,
    alive: list,
) -> tuple[Any, int]:
    if not world.python_functions:
        world.need_python(getattr(function, "__qualname__", repr(function)))
    content, things = _pickles.dump_call(function, tuple(args or ()), dict(kwargs or {}), context)
    if not things:
        values = _pickles.new_values(1)
        fill_bytes(values[0], content, alive)
        return values, 1
    numbers = _pickles.tape_numbers(things, context, pointer)
    parts = list(zip(things, numbers))
    if len(parts) <= _pickles.CHUNK:
        values = _pickles.new_values(1 + len(parts))
        for i, (thing, number) in enumerate(parts):
            _pickles.fill(values[1 + i], thing, number, alive)
        fill_bytes(values[0], content, alive)
        return values, 1 + len(parts)
    token = world.parts.new_name()
    for first in range(0, len(parts), _pickles.CHUNK):
        some = parts[first : first + _pickles.CHUNK]
        values = _pickles.new_values(1 + len(some))
        held: list[Any] = []
        fill_string(values[0], token, held)
        for i, (thing, number) in enumerate(some):
            _pickles.fill(values[1 + i], thing, number, held)
        with waiting():
            status = lib.mr_rpc_sync(
                world.rpc,
                rank,
                b"python.part",
                values,
                1 + len(some),
                _call_options(world, -1.0, pointer),
                NULL,
            )
        check_rpc(status)
    values = _pickles.new_values(2)
    fill_bytes(values[0], content, alive)
    fill_string(values[1], token, alive)
    return values, 2


def _fetch_rest(world: World, rank: int, token: str, count: int, things: list, pointer: Any) -> None:
    while len(things) < count:
        values = _pickles.new_values(2)
        alive: list[Any] = []
        fill_string(values[0], token, alive)
        fill_i64(values[1], len(things))
        out = ffi.new(RESULT_PLACE)
        with waiting():
            status = lib.mr_rpc_sync(
                world.rpc, rank, b"python.rest", values, 2, _call_options(world, -1.0, pointer), out
            )
        check_rpc(status)
        result = Result(world, out[0])
        things += _pickles.take(world, result.values(), result)


def read_python(rank: int, context: Context | None, context_pointer: Any, world: World, pointer: Any) -> Any:
    """Returns a Python function's result, or raises what it raised. Takes the result."""
    result = Result(world, pointer)
    values = result.values()
    if values[0].kind == lib.MR_VALUE_STRING:
        module, name, line = map(read_string, values[:3])
        raise_remote((module, name, line))
    things: list[Any] = []
    if len(values) > 1 and values[1].kind == lib.MR_VALUE_STRING:
        things = _pickles.take(world, values[3:], result)
        _fetch_rest(world, rank, read_string(values[1]), values[2].i64, things, context_pointer)
    elif len(values) > 1:
        things = _pickles.take(world, values[1:], result)
    return _pickles.load(read_bytes(values[0]), things, context)


# ---- the three ----


def _recorded(context: Context | None) -> Context | None:
    """Whether the call is recorded: within torch.no_grad() arguments and results are constants."""
    return context if torch.is_grad_enabled() else None


def _prepare(
    to: Any,
    func: Any,
    args: Any,
    kwargs: Any,
    alive: list,
    python_name: bytes,
    context: Context | None,
    pointer: Any,
) -> tuple[World, int, bytes, Any, int, Callable[[World, Any], Any]]:
    """The world, `to`'s rank there, the function's name, its arguments, how many, and what reads the result.
    alive: holds what the arguments point to."""
    world = current()
    rank = world.rank_of(to)
    if context is not None:
        context = _recorded(context)
    if isinstance(func, str):
        name = _encode_name(func)
        values, count = (
            _native_arguments(world, func, args, kwargs, context, pointer, alive) if args or kwargs else _NONE
        )
        read: Callable[[World, Any], Any] = read_native
        if context is not None:
            read = partial(read_native, context=context)
    else:
        if not callable(func):
            raise TypeError(f"func={func!r}: the name of a registered function, or a callable")
        name = python_name
        values, count = _python_arguments(world, rank, func, args, kwargs, context, pointer, alive)
        read = partial(read_python, rank, context, pointer)
    return world, rank, name, values, count, read


def rpc_sync(
    to: Any,
    func: str | Callable,
    args: Sequence[Any] | None = None,
    kwargs: dict | None = None,
    timeout: float = -1.0,
) -> Any:
    """Calls a function on worker `to` (name, rank or WorkerInfo), and waits for its value.

    func: the name of a function that is registered there, whose arguments and results are tensors, int,
    float, str and RRef (several results are returned as a tuple); or a callable, which is pickled and called
    there if Python functions are on at both workers. timeout: in seconds; 0: none; -1: the worker's default.
    Within an autograd context the call is recorded in it.

    Raises what the function raised, as RemoteError where its type is not known here or cannot be made from a
    text; of a function in C, the exception of its status, as FunctionFailed. UnknownWorker, UnknownFunction,
    WrongSignature, DeadlineExceeded, WorkerDied; Unauthorized: Python functions are off at one of the two.
    TypeError: an argument cannot travel.
    """
    return call(to, func, args, kwargs, timeout, here.context, here.pointer)


def call(
    to: Any, func: Any, args: Any, kwargs: Any, timeout: float, context: Context | None, pointer: Any
) -> Any:
    """Does what rpc_sync does, in a given context."""
    alive: list = []
    world, rank, name, values, count, read = _prepare(
        to, func, args, kwargs, alive, b"python.call", context, pointer
    )
    out = ffi.new(RESULT_PLACE)
    options = _call_options(world, timeout, pointer)
    try:
        if here.ticket is None:
            status = lib.mr_rpc_sync(world.rpc, rank, name, values, count, options, out)
        else:
            with waiting():
                status = lib.mr_rpc_sync(world.rpc, rank, name, values, count, options, out)
        check_rpc(status)
        answer, out[0] = out[0], NULL
        return read(world, answer)
    except BaseException:
        lib.mr_rpc_result_free(out[0])  # Ctrl-C came before it was read
        raise


def rpc_async(
    to: Any,
    func: str | Callable,
    args: Sequence[Any] | None = None,
    kwargs: dict | None = None,
    timeout: float = -1.0,
) -> Future:
    """Calls a function as rpc_sync() does, without waiting, and returns a Future, whose wait() raises what
    became of the call, also WorkerDied if the worker is dead already. Arguments may be changed once this
    returns."""
    return begin(to, func, args, kwargs, timeout, here.context, here.pointer)


def begin(
    to: Any, func: Any, args: Any, kwargs: Any, timeout: float, context: Context | None, pointer: Any
) -> Future:
    """Does what rpc_async does, in a given context."""
    alive: list = []
    world, rank, name, values, count, read = _prepare(
        to, func, args, kwargs, alive, b"python.call", context, pointer
    )
    out = ffi.new(_FUTURE_PLACE)
    status = lib.mr_rpc_async(
        world.rpc, rank, name, values, count, _call_options(world, timeout, pointer), out
    )
    if status == lib.MR_WORKER_DIED:  # whether it died before the call or after, as in torch
        future = ended_future(error_of(status, text(lib.mr_rpc_last_error())))
    elif status:
        check_rpc(status)
    else:
        future = CallFuture(world, out[0], read)
    waited_for = getattr(collecting, "future_list", None)
    if waited_for is not None:
        waited_for.append(future)
    return future


def remote(
    to: Any,
    func: str | Callable,
    args: Sequence[Any] | None = None,
    kwargs: dict | None = None,
    timeout: float = -1.0,
) -> RRef:
    """Calls a function whose value stays on worker `to`, and returns a reference to it at once. The first use
    of the reference raises what the function raised."""
    alive: list = []
    world, rank, name, values, count, _ = _prepare(
        to, func, args, kwargs, alive, b"python.remote", here.context, here.pointer
    )
    out = ffi.new("struct mr_rref **")
    check_rpc(
        lib.mr_remote(world.rpc, rank, name, values, count, _call_options(world, timeout, here.pointer), out)
    )
    return RRef._of(world, out[0], not isinstance(func, str))


def fetch(reference: RRef, timeout: float) -> Any:
    """Returns a copy of the Python value of another worker's reference."""
    world = reference._world
    world.need_python("to_here")
    values = _pickles.new_values(1)
    values[0].kind = lib.MR_VALUE_RREF
    values[0].rref = reference._pointer()
    out = ffi.new(RESULT_PLACE)
    with waiting():
        status = lib.mr_rpc_sync(
            world.rpc,
            reference._rank,
            b"python.fetch",
            values,
            1,
            _call_options(world, timeout, here.pointer),
            out,
        )
    check_rpc(status)
    return read_python(reference._rank, _recorded(here.context), here.pointer, world, out[0])
