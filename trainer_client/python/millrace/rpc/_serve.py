"""What other workers call here: Python functions, values of references, and parts of what did not fit into
one message."""
from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING, Any, Callable, Sequence

import torch

from .._base.library import NULL, callback, ffi, lib, text
from .._base.printable import printable
from ..errors import InvalidArgument, UnknownFunction
from . import _contexts, _handles, _pickles
from ._contexts import Context, here
from ._values import fill_bytes, fill_i64, fill_string, read_bytes, read_string
from .functions import is_async

if TYPE_CHECKING:
    from ._world import World


class Failed:
    """What a function raised whose result was to stay here: (module, name, text)."""

    def __init__(self, raised: tuple[str, str, str]) -> None:
        self.raised = raised


class Later:
    """What an async_execution function returned: a future whose value is the answer."""

    def __init__(self, future: Any) -> None:
        if not callable(getattr(future, "add_done_callback", None)) or not callable(
            getattr(future, "wait", None)
        ):
            raise InvalidArgument(
                f"functions decorated with @rpc.functions.async_execution must return a Future, and this one "
                f"returned {type(future).__name__}"
            )
        self.future = future


class Ungated:
    """Base of functions of this package that run beside all computing: a callable whose class says so."""


def describe(error: BaseException, world: World) -> tuple[str, str, str]:
    """An exception as callers see it."""
    kind = type(error)
    lines = "".join(traceback.format_exception(kind, error, error.__traceback__)).rstrip()
    return (
        kind.__module__,
        kind.__qualname__,
        f'On worker "{world.name}" (rank {world.rank}): {kind.__name__}: {error}\n{lines}',
    )


def _world(call: Any) -> World | None:
    world = _handles.get(lib.mr_rpc_user(call))()
    if world is not None and not world.ready.is_set():
        world.ready.wait()
    return world


def _fail(call: Any, status: int, line: str) -> int:
    lib.mr_rpc_fail(call, b"%s", ffi.new("char[]", line.encode()))
    return status


def _return_strings(call: Any, strings: Sequence[str]) -> int:
    values = _pickles.new_values(len(strings))
    alive: list[Any] = []
    for value, string in zip(values, strings):
        fill_string(value, string, alive)
    return lib.mr_rpc_return_values(call, values, len(strings))


def _return_values(call: Any, values: Any, count: int) -> int:
    status = lib.mr_rpc_return_values(call, values, count)
    return _fail(call, status, text(lib.mr_rpc_last_error())) if status else lib.MR_OK


def _return_thing(call: Any, world: World, thing: Any) -> int:
    content, things = _pickles.dump(thing, here.context)
    alive: list[Any] = []
    if not things:
        values = _pickles.new_values(1)
        fill_bytes(values[0], content, alive)
        return _return_values(call, values, 1)
    numbers = _pickles.tape_numbers(things, here.context, here.pointer)
    parts = list(zip(things, numbers))
    values = _pickles.new_values(3 + min(len(parts), _pickles.CHUNK))
    fill_bytes(values[0], content, alive)
    first = 1
    if len(parts) > _pickles.CHUNK:
        name = world.parts.new_name()
        world.parts.add(name, parts)
        fill_string(values[1], name, alive)
        fill_i64(values[2], len(parts))
        first = 3
    some = parts[: _pickles.CHUNK]
    for i, (part, number) in enumerate(some):
        _pickles.fill(values[first + i], part, number, alive)
    return _return_values(call, values, first + len(some))


def _arguments(world: World, arguments: Any, count: int) -> tuple[Callable, tuple, dict]:
    if count > 1 and arguments[1].kind == lib.MR_VALUE_STRING:
        things = world.parts.take(read_string(arguments[1]))
    else:
        things = _pickles.take(world, [arguments[i] for i in range(1, count)]) if count > 1 else []
    try:
        return _pickles.load(read_bytes(arguments[0]), things, here.context)
    except (AttributeError, ImportError) as error:
        raise UnknownFunction(
            f"{error}: functions and classes go by their names, so caller and callee need the same modules"
        ) from error


def _log(raised: tuple[str, str, str]) -> None:
    """Where the function ran, as torch does: the caller may never look. Its text may quote the caller's."""
    print(printable(raised[2]), file=sys.stderr)


def _execute(call: Any, arguments: Any, count: int, answer: Callable[[World, Any], int]) -> int:
    """Runs the function in the call's context; `answer(world, result or Failed)`."""
    world = _world(call)
    if world is None or world.is_closed or world.rpc == NULL or sys.is_finalizing():
        return _fail(call, lib.MR_SHUTTING_DOWN, "the worker is leaving")
    if not world.python_functions:
        return _fail(call, lib.MR_UNAUTHORIZED, world.off_line())
    pointer = lib.mr_rpc_context(call)
    try:
        context = None if pointer == NULL else _contexts.of_call(world, pointer)
        with _contexts.inside(context, pointer):
            try:
                function, args, kwargs = _arguments(world, arguments, count)
                result = (
                    _ungated(function, args, kwargs)
                    if isinstance(function, Ungated)
                    else function(*args, **kwargs)
                )
                if is_async(function):
                    result = Later(result)
                del args, kwargs
                if isinstance(result, Later):
                    return _answer_later(call, world, context, pointer, result.future, answer)
                return answer(world, result)
            except BaseException as error:  # noqa: BLE001: it is the caller's
                failed = Failed(describe(error, world))
                _log(failed.raised)
                return answer(world, failed)
    except Exception as error:  # noqa: BLE001: that could not be answered either
        return _fail(call, lib.MR_FUNCTION_FAILED, f"{type(error).__name__}: {error}")


def _answer_later(
    call: Any,
    world: World,
    context: Context | None,
    pointer: Any,
    future: Any,
    answer: Callable[[World, Any], int],
) -> int:
    """Answers with the future's value once that is there, in the call's context. The library holds the call
    until then."""
    status = lib.mr_rpc_postpone(call)
    if status:
        return _fail(call, status, text(lib.mr_rpc_last_error()))

    def finish(done: Any) -> None:
        try:
            with _contexts.inside(context, pointer):
                try:
                    status = answer(world, done.wait())
                except BaseException as error:  # noqa: BLE001: it is the caller's
                    failed = Failed(describe(error, world))
                    _log(failed.raised)
                    status = answer(world, failed)
        except Exception as error:  # noqa: BLE001: that could not be answered either
            status = _fail(call, lib.MR_FUNCTION_FAILED, f"{type(error).__name__}: {error}")
        lib.mr_rpc_finish(call, status)

    future.add_done_callback(finish)
    return lib.MR_OK


def _ungated(function: Any, args: tuple, kwargs: dict) -> Any:
    with _contexts.waiting():
        return function(*args, **kwargs)


@callback("mr_rpc_run", error=lib.MR_INTERNAL)
def call(call: Any, arguments: Any, count: int) -> int:
    """python.call(pickle of (function, args, kwargs), things...) -> pickle, things... or what it raised, as
    three strings."""

    def answer(world: World, result: Any) -> int:
        return (
            _return_strings(call, result.raised)
            if isinstance(result, Failed)
            else _return_thing(call, world, result)
        )

    return _execute(call, arguments, count, answer)


@callback("mr_rpc_run", error=lib.MR_INTERNAL)
def remote(call: Any, arguments: Any, count: int) -> int:
    """The same; the result stays, also when it is an exception."""

    def answer(_world: World, result: Any) -> int:
        return lib.mr_rpc_return_object(call, _handles.keep(result), _handles.drop)

    return _execute(call, arguments, count, answer)


@callback("mr_rpc_run", error=lib.MR_INTERNAL)
def fetch(call: Any, arguments: Any, _count: int) -> int:
    """python.fetch(reference) -> as python.call: the value of a reference of this worker's."""
    world = _world(call)
    if world is None or world.is_closed:
        return _fail(call, lib.MR_SHUTTING_DOWN, "the worker is leaving")
    value = ffi.new("const struct mr_value **")
    left_us = lib.mr_rpc_time_left_us(call)
    status = lib.mr_rref_local_value(arguments[0].rref, min(max(left_us // 1000, 1), 0xFFFFFFFF), value)
    if status:
        return _fail(call, status, text(lib.mr_rpc_last_error()))
    pointer = lib.mr_rpc_context(call)
    try:
        if value[0].kind != lib.MR_VALUE_OBJECT:
            return _fail(call, lib.MR_INVALID_ARGUMENT, "the reference's value is not Python's")
        thing = _handles.get(value[0].object)
        if isinstance(thing, Failed):
            return _return_strings(call, thing.raised)
        with _contexts.inside(None if pointer == NULL else _contexts.of_call(world, pointer), pointer):
            return _return_thing(call, world, thing)
    except KeyError:
        return _fail(call, lib.MR_INVALID_ARGUMENT, "the reference's value is an object of the library's")
    except Exception as error:  # noqa: BLE001: it is the caller's
        return _return_strings(call, describe(error, world))


@callback("mr_rpc_run", error=lib.MR_INTERNAL)
def part(call: Any, arguments: Any, count: int) -> int:
    """python.part(name, things...): of the arguments of a call that follows."""
    world = _world(call)
    if world is None or not world.python_functions:
        return _fail(
            call, lib.MR_UNAUTHORIZED, "Python functions are off" if world is None else world.off_line()
        )
    try:
        pointer = lib.mr_rpc_context(call)
        if pointer != NULL:
            _contexts.of_call(world, pointer)
        things = _pickles.take(world, [arguments[i] for i in range(1, count)])
        world.parts.add(read_string(arguments[0]), things)
        return lib.MR_OK
    except MemoryError as error:
        return _fail(call, lib.MR_NO_MEMORY, str(error))
    except Exception as error:  # noqa: BLE001: it is the caller's
        return _fail(call, lib.MR_FUNCTION_FAILED, f"{type(error).__name__}: {error}")


@callback("mr_rpc_run", error=lib.MR_INTERNAL)
def rest(call: Any, arguments: Any, _count: int) -> int:
    """python.rest(name, from) -> things...: of a result that did not fit."""
    world = _world(call)
    if world is None:
        return _fail(call, lib.MR_SHUTTING_DOWN, "the worker is leaving")
    try:
        some = world.parts.some(read_string(arguments[0]), arguments[1].i64, _pickles.CHUNK)
        values = _pickles.new_values(len(some))
        alive: list[Any] = []
        for i, (thing, number) in enumerate(some):
            _pickles.fill(values[i], thing, number, alive)
        return _return_values(call, values, len(some))
    except Exception as error:  # noqa: BLE001: it is the caller's
        return _fail(call, lib.MR_FUNCTION_FAILED, f"{type(error).__name__}: {error}")


def find_method(reference: Any, name: str) -> None:
    """Whether the value has that, at the owner. AttributeError: it has not."""
    getattr(reference.local_value(), name)


def type_at_owner(reference: Any) -> type:
    """Of the value."""
    return type(reference.local_value())


def root_of(reference: Any) -> torch.Tensor:
    """At the owner: the value, from which backward is to run."""
    value = reference.local_value()
    if not isinstance(value, torch.Tensor):
        raise InvalidArgument(f"backward: the reference's value is a {type(value).__name__}, not a tensor")
    return value


def invoke(reference: Any, name: str, args: tuple, kwargs: dict) -> Any:
    """What rref.rpc_sync().name(...) runs at the owner."""
    method = getattr(reference.local_value(), name)
    result = method(*args, **kwargs)
    return Later(result) if is_async(method) else result


def backward_at_owner(reference: Any, context_id: int, retain_graph: bool) -> None:
    """What rref.backward(context_id) runs at the owner."""
    from .. import autograd

    autograd.backward(context_id, [root_of(reference)], retain_graph)
