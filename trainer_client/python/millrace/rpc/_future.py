"""Outcomes of calls in flight."""
from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any, Callable, Generator, Iterable

import torch
import torch.futures

from .._base.library import NULL, callback as c_callback, ffi, lib, text
from ..errors import InvalidArgument, check_rpc, error_of
from . import _handles
from ._contexts import here, waiting
from ._values import RESULT_PLACE

if TYPE_CHECKING:
    from ._world import World

# Held by whoever looks at the library's future of a call without seeing to its end, and while those of ended
# calls are destroyed, many at a time.
_looking = threading.RLock()
_ended: list[Any] = []
_ENDED_MAX = 64


def _after_fork() -> None:
    global _looking
    _looking = threading.RLock()
    _ended.clear()


os.register_at_fork(after_in_child=_after_fork)


def destroy_ended() -> None:
    """Destroys the library's futures of calls that have ended."""
    with _looking:
        calls = []
        while _ended:  # one by one: a signal's handler may come here, too
            calls.append(_ended.pop())
        lib.mr_rpc_futures_destroy(calls, len(calls))


def _destroy_later(world: World, call: Any) -> None:
    _ended.append(call)
    if len(_ended) >= _ENDED_MAX or world.is_closed:
        destroy_ended()


def _of_callback(error: BaseException) -> BaseException:
    """What the future of a callback raises."""
    if isinstance(error, RuntimeError) or not isinstance(error, Exception):
        return error
    wrapped = RuntimeError(f"{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


class Future:
    """The outcome of rpc_async(), or one that set_result() or set_exception() ends. Dropping it drops the
    outcome; the call continues."""

    # Of most futures all else is so: made in numbers, they set what they need.
    _call: Any = None  # the library's future, until the end
    _open: list = []  # the same, until a thread takes it, which sees to the end
    _is_told = False  # the library runs a callback at the end
    _is_done = False
    _is_a_calls = False
    _value: Any = None
    _error: BaseException | None = None
    _callbacks: list[Callable[[], object]] | None = None
    _changed: threading.Condition | None = None  # threads wait for another one that waits for the library
    _world: Any = None
    _read: Any = None  # read(world, result): the value

    def __init__(self, *, devices: Any = None) -> None:
        if devices:
            raise InvalidArgument(
                f"devices={devices}: values travel between main memories; "
                "use .cpu() before, .to(device) after"
            )

    def wait(self) -> Any:
        """Returns the function's value, or raises its error. Waits no longer than the call's time-out."""
        if not self._is_done:
            self._reach_end()
        if self._error is not None:
            raise self._error
        return self._value

    def _reach_end(self) -> None:
        try:
            call = self._open.pop()
        except IndexError:
            self._wait_for_another()
            return
        world, read = self._world, self._read
        result = ffi.new(RESULT_PLACE)
        value = error = None
        try:
            if here.ticket is None:
                status = lib.mr_rpc_wait(call, result)
            else:
                with waiting():
                    status = lib.mr_rpc_wait(call, result)
            if status:
                raise error_of(status, text(lib.mr_rpc_last_error()))
            answer, result[0] = result[0], NULL
            value = read(world, answer)
        except BaseException as raised:  # noqa: BLE001: wait() raises it
            lib.mr_rpc_result_free(result[0])  # Ctrl-C came before it was read
            error = raised
        try:
            self._finish(value, error)
        finally:
            _destroy_later(world, call)

    def _wait_for_another(self) -> None:
        """Whoever took the call, or a future of the program's own, ends this."""
        changed = self.__dict__.setdefault("_changed", threading.Condition())
        with waiting(), changed:
            changed.wait_for(lambda: self._is_done)

    result = wait

    def done(self) -> bool:
        """Whether wait() returns at once."""
        with _looking:
            try:
                call = self._open[0]
            except IndexError:  # a thread, or the library, sees to its end
                return self._is_done
            return bool(lib.mr_rpc_done(call))

    def value(self) -> Any:
        """Returns what wait() returns, or raises what it raises; the future must be done."""
        if not self.done():
            raise RuntimeError("the future is not done: wait() waits for it")
        return self.wait()

    def exception(self) -> BaseException | None:
        """Waits for the end, and returns what wait() raises; None if it returns."""
        try:
            self.wait()
        except BaseException as error:  # noqa: BLE001: asked for
            return error
        return None

    def then(self, callback: Callable[["Future"], Any]) -> "Future":
        """Returns a future of callback(self), which runs on a thread of the worker once this future is
        done. What it raises is a RuntimeError there, as in torch, with its own exception as the cause."""
        if not callable(callback):
            raise TypeError(f"then({callback!r}): a function of one argument, the future")
        after = Future()
        after._is_a_calls = True

        def run() -> None:
            try:
                after._finish(callback(self), None)
            except BaseException as error:  # noqa: BLE001: it is the future's
                after._finish(None, _of_callback(error))

        self._when_done(run)
        return after

    def add_done_callback(self, callback: Callable[["Future"], Any]) -> None:
        """Runs callback(self) once this future is done; prints what it raises."""
        self.then(callback)._when_failed(callback)

    def set_result(self, result: Any) -> None:
        """Ends a future of one's own with a value."""
        self._set(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Ends a future of one's own with an error, which wait() raises."""
        if not isinstance(result, BaseException):
            raise TypeError(f"set_exception({result!r}): an exception")
        self._set(None, result)

    def _set(self, value: Any, error: BaseException | None) -> None:
        if self._is_a_calls or self.__dict__.setdefault("_setter", by := object()) is not by:
            raise RuntimeError("the future is done already, or a call's, which ends it")
        self._finish(value, error)

    def cancel(self) -> None:
        """Ends the call with Cancelled, unless it has ended. A function that has not begun is not run."""
        with _looking:
            call = self._call
            if call is not None:
                lib.mr_rpc_cancel(call)

    def __await__(self) -> Generator[Any, None, Any]:
        loop = asyncio.get_running_loop()
        reached = loop.create_future()

        def reach() -> None:
            if not reached.done():
                reached.set_result(None)

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there any more
                loop.call_soon_threadsafe(reach)

        self._when_done(tell)
        yield from reached
        return self.wait()

    # ---- how it ends ----

    def _finish(self, value: Any, error: BaseException | None) -> None:
        """Whoever waits or adds a callback does so before it looks at _is_done, which is written before this
        looks for them: nobody is missed, without a lock."""
        self._value, self._error, self._is_done = value, error, True
        self._call = self._read = self._world = None
        changed = self._changed
        if changed is not None:
            with changed:
                changed.notify_all()
        if self._callbacks is not None:
            self._run_callbacks()

    def _run_callbacks(self) -> None:
        """Of two threads that are here, one runs each."""
        callbacks = self._callbacks
        while callbacks:
            try:
                callback = callbacks.pop(0)
            except IndexError:
                return
            callback()

    def _when_done(self, callback: Callable[[], object]) -> None:
        self.__dict__.setdefault("_callbacks", []).append(callback)
        if self._is_done:
            self._run_callbacks()
            return
        try:
            call = self._open.pop()
        except IndexError:
            return  # whoever has it ends this
        self._is_told = True
        check_rpc(lib.mr_rpc_then(call, _run, _handles.keep(self)))

    def _when_failed(self, callback: Callable) -> None:
        def report() -> None:
            error = self._error
            if error is not None:
                print(f"millrace.rpc: the callback {callback!r} of a future failed:", file=sys.stderr)
                traceback.print_exception(type(error), error, error.__traceback__)

        self._when_done(report)

    def _release(self) -> None:
        """The world is over."""
        world = self._world
        try:
            call = self._open.pop()
        except IndexError:
            if not self._is_told:
                self.cancel()  # so that the thread that waits does not wait for long
            return
        self._finish(None, error_of(lib.MR_SHUTTING_DOWN, "the worker has left its world"))
        _destroy_later(world, call)

    def __del__(self, destroy: Callable = lib.mr_rpc_future_destroy) -> None:
        if self._open:
            destroy(self._open[0])


class CallFuture(Future):
    """The future of a call."""

    _is_a_calls = True

    def __init__(self, world: World, call: Any, read: Callable[[Any, Any], Any]) -> None:
        """read(world, result): its value."""
        self._world, self._call, self._open, self._read = world, call, [call], read


def ended_future(error: BaseException) -> Future:
    """Of a call that has failed before it began."""
    future = Future()
    future._is_a_calls = True
    future._finish(None, error)
    return future


def of_world(world: Any) -> list[CallFuture]:
    """The futures of calls in a world, none of which has ended. Noting each when it is made would take half
    as long as a call."""
    return [thing for thing in gc.get_objects() if type(thing) is CallFuture and thing._world is world]


@c_callback("mr_rpc_then_run")
def _run(user: Any, status: int, error: Any, result: Any) -> None:
    future = _handles.get(user)
    _handles.drop(user)
    with _looking:  # the library frees the call after this
        future._call = None
    value = raised = None
    try:
        if status:
            raise error_of(status, text(error))
        value = future._read(future._world, result)
    except BaseException as caught:  # noqa: BLE001: wait() raises it
        raised = caught
    future._finish(value, raised)


def wait_all(futures: Iterable[Future]) -> list[Any]:
    """Waits for all futures, and returns their values. Raises the first error that comes, without waiting for
    those that have not ended then."""
    futures = list(futures)
    changed = threading.Condition()
    left, failed = len(futures), None

    def one_is_done(future: Any) -> None:
        nonlocal left, failed
        error = future.exception() if isinstance(future, Future) else _error_of_torch(future)
        with changed:
            left -= 1
            failed = failed or error
            if left == 0 or error is not None:
                changed.notify_all()

    for future in futures:
        if isinstance(future, Future):
            future._when_done(functools.partial(one_is_done, future))
        else:
            future.add_done_callback(one_is_done)
    with waiting(), changed:
        changed.wait_for(lambda: left == 0 or failed is not None)
    if failed is not None:
        raise failed
    return [future.value() for future in futures]


def _error_of_torch(future: Any) -> BaseException | None:
    """Of one that is done."""
    try:
        future.value()
    except BaseException as error:  # noqa: BLE001: asked for
        return error
    return None


def end_all(futures: Iterable[Future]) -> list[Any]:
    """Waits until all have ended. Returns their values, or raises the first error then."""
    futures = list(futures)
    for error in [future.exception() for future in futures]:
        if error is not None:
            raise error
    return [future.value() for future in futures]


def collect_all(futures: Iterable[Future]) -> Future:
    """Returns a future whose value is the list of the futures, once all of them are done, also if some have
    failed."""
    futures = list(futures)
    after = Future()
    after._is_a_calls = True
    left, lock = len(futures), threading.Lock()

    def one_is_done() -> None:
        nonlocal left
        with lock:
            left -= 1
            is_last = left == 0
        if is_last:
            after._finish(futures, None)

    if not futures:
        after._finish(futures, None)
    for future in futures:
        if isinstance(future, Future):
            future._when_done(one_is_done)
        else:  # torch's
            future.add_done_callback(lambda _: one_is_done())
    return after


def _taking_ours(of_torch: Callable, ours: Callable) -> Callable:
    @functools.wraps(of_torch)
    def either(futures: Iterable[Any]) -> Any:
        futures = list(futures)
        return (ours if any(isinstance(future, Future) for future in futures) else of_torch)(futures)

    return either


@functools.lru_cache(None)
def offer_to_torch() -> None:
    """Has torch.futures take these futures: its functions look for a C++ object and have no hook, and
    programs hand them what rpc_async() returned. For a process that joins a world, and from then on."""
    torch.futures.wait_all = _taking_ours(torch.futures.wait_all, wait_all)
    torch.futures.collect_all = _taking_ours(torch.futures.collect_all, collect_all)
