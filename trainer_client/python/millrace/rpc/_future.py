"""Outcomes of calls in flight."""
from __future__ import annotations

import asyncio
import functools
import os
import sys
import threading
import traceback
from typing import Any, Callable, Generator, Iterable

import torch
import torch.futures

from .._base.library import callback as c_callback, ffi, lib, text
from ..errors import check_rpc, error_of
from . import _handles
from ._contexts import here, waiting


# Held for a moment while what any future has changes. One lock for all: they are many, and short-lived.
_state = threading.RLock()


def _new_state() -> None:
    global _state
    _state = threading.RLock()


os.register_at_fork(after_in_child=_new_state)


class Future:
    """The outcome of rpc_async(), or one that set_result() or set_exception() ends. Dropping it drops the
    outcome; the call continues."""

    # Of most futures all else is so: made in numbers, they set what they need.
    _native: Any = None  # the call, until somebody has its outcome
    _told: Any = None  # the same, from then() on until it ends
    _is_waiting = False  # a thread waits for the library
    _is_done = False
    _is_a_calls = False
    _value: Any = None
    _error: BaseException | None = None
    _callbacks: list[Callable[[], object]] | None = None
    _changed: threading.Condition | None = None  # threads wait for another one that waits for the library
    _world: Any = None
    _read: Callable[[Any, Any], Any] | None = None

    def __init__(self, *, devices: Any = None) -> None:
        if devices:
            raise ValueError(
                f"devices={devices}: values travel between main memories; "
                "use .cpu() before, .to(device) after"
            )

    @classmethod
    def _of(cls, world: Any, native: Any, read: Callable[[Any, Any], Any]) -> "Future":
        """Of a call. read(world, result): its value."""
        future = cls.__new__(cls)
        future._world, future._native, future._read = world, native, read
        future._is_a_calls = True
        world.held.add(future)
        return future

    def wait(self) -> Any:
        """Returns the function's value, or raises its error. Waits no longer than the call's time-out."""
        if not self._is_done:
            self._reach_end()
        if self._error is not None:
            raise self._error
        return self._value

    def _reach_end(self) -> None:
        with _state:
            native = None if self._is_waiting else self._native
            if native is not None:
                self._is_waiting = True
            elif self._is_done:
                return
            elif self._changed is None:
                self._changed = threading.Condition()
        if native is None:
            changed = self._changed
            assert changed is not None
            with waiting(), changed:
                changed.wait_for(lambda: self._is_done)
            return
        result = ffi.new("struct mr_rpc_result **")
        if here.ticket is None:
            status = lib.mr_rpc_wait(native, result)
        else:
            with waiting():
                status = lib.mr_rpc_wait(native, result)
        self._end(status, text(lib.mr_rpc_last_error()) if status else "", result[0], native)

    result = wait

    def done(self) -> bool:
        """Whether wait() returns at once."""
        with _state:
            return self._is_done or (self._native is not None and bool(lib.mr_rpc_done(self._native)))

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
        done."""
        after = Future()
        after._is_a_calls = True

        def run() -> None:
            try:
                after._finish(callback(self), None)
            except BaseException as error:  # noqa: BLE001: it is the future's
                after._finish(None, error)

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
        with _state:
            if self._is_done or self._is_a_calls:
                raise RuntimeError("the future is done already, or a call's, which ends it")
        self._finish(value, error)

    def cancel(self) -> None:
        """Ends the call with Cancelled, unless it has ended. A function that has not begun is not run."""
        with _state:
            native = self._native if self._native is not None else self._told
            if native is not None:
                lib.mr_rpc_cancel(native)

    def __await__(self) -> Generator[Any, None, Any]:
        loop = asyncio.get_running_loop()
        reached = loop.create_future()

        def reach() -> None:
            if not reached.done():
                reached.set_result(None)

        self._when_done(lambda: loop.call_soon_threadsafe(reach))
        yield from reached
        return self.wait()

    # ---- how it ends ----

    def _end(self, status: int, line: str, result: Any, native: Any = None) -> None:
        """native: it is destroyed, once nobody can cancel it any more."""
        value = error = None
        try:
            if status:
                raise error_of(status, line)
            read = self._read
            assert read is not None
            value = read(self._world, result)
        except BaseException as raised:  # noqa: BLE001: wait() raises it
            error = raised
        self._finish(value, error, native)

    def _finish(self, value: Any, error: BaseException | None, native: Any = None) -> None:
        with _state:
            self._native = self._read = self._world = None
            self._value, self._error, self._is_done = value, error, True
            callbacks, self._callbacks, changed = self._callbacks, None, self._changed
        if native is not None:
            lib.mr_rpc_future_destroy(native)
        if changed is not None:
            with changed:
                changed.notify_all()
        if callbacks is not None:
            for callback in callbacks:
                callback()

    def _when_done(self, callback: Callable[[], object]) -> None:
        native = None
        with _state:
            is_done = self._is_done
            if not is_done:
                self._callbacks = [*(self._callbacks or []), callback]
                if not self._is_waiting:  # who waits ends it
                    native, self._native = self._native, None
            if native is not None:
                self._told = native
        if native is not None:
            check_rpc(lib.mr_rpc_then(native, _ended, _handles.keep(self)))
        if is_done:
            callback()

    def _when_failed(self, callback: Callable) -> None:
        def report() -> None:
            error = self._error
            if error is not None:
                print(f"millrace.rpc: the callback {callback!r} of a future failed:", file=sys.stderr)
                traceback.print_exception(type(error), error, error.__traceback__)

        self._when_done(report)

    def _release(self) -> None:
        """The world is over."""
        with _state:
            native = self._native
            if self._is_waiting and native is not None:
                lib.mr_rpc_cancel(native)  # somebody waits, and destroys it then
                return
            self._native = None
        if native is not None:
            lib.mr_rpc_future_destroy(native)
            self._finish(None, error_of(lib.MR_SHUTTING_DOWN, "the worker has left its world"))

    def _abandon(self) -> None:
        self._native = self._told = None

    def __del__(self, destroy: Callable = lib.mr_rpc_future_destroy) -> None:
        if self._native is not None:
            destroy(self._native)


@c_callback("mr_rpc_then_run")
def _ended(user: Any, status: int, error: Any, result: Any) -> None:
    future = _handles.get(user)
    _handles.drop(user)
    with _state:  # the library frees the call after this
        future._told = None
    future._end(status, text(error) if status else "", result)


def wait_all(futures: Iterable[Future]) -> list[Any]:
    """Waits for all futures. Returns their values, or raises the first error once all have ended."""
    values, errors = [], []
    for future in futures:
        try:
            values.append(future.wait())
        except BaseException as error:  # noqa: BLE001: raised below
            errors.append(error)
    if errors:
        raise errors[0]
    return values


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


# What torch.futures does with futures takes its own only, and programs hand it what rpc_async() returned.
torch.futures.wait_all = _taking_ours(torch.futures.wait_all, wait_all)
torch.futures.collect_all = _taking_ours(torch.futures.collect_all, collect_all)
