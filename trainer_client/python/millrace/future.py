"""Calls in flight."""
from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Generator

from ._base.library import NULL, ffi, lib, text
from .errors import ClientClosed, error_of

if TYPE_CHECKING:
    from ._base.changes import Change
    from ._base.connection import Call, Connection

_SLICE_MS = 50  # after which signals are looked after
_PENDING = object()


class Future:
    """The outcome of a call in flight: what the methods that end in `_async` return.

    result() waits for it, `await future` does so in a coroutine, on any event loop of asyncio's. A future
    that is dropped lets its call continue; nobody learns of its outcome.
    """

    def __init__(self, connection: Connection, native: Any, call: Call, change: Change | None = None) -> None:
        self._connection = connection
        self._call: Call | None = call  # holds what the call writes to
        self._lock = threading.Lock()
        self._value: Any = _PENDING
        self._error: BaseException | None = None
        self._change = change  # ends with the outcome
        self._watchers: list[Callable[[], None]] = []  # called when the outcome is taken
        connection._futures[id(self)] = native

    def done(self) -> bool:
        """Whether result() would return at once. Makes progress itself."""
        return self._look(lambda native: lib.mr_future_done(native))

    def _is_over(self) -> bool:
        """The same, and cheap: it does not make progress."""
        return self._look(lambda native: lib.mr_future_wait_for(native, 0))

    def _look(self, at: Callable[[Any], Any]) -> bool:
        """What at(struct mr_future *) says; True when nothing is left of that. A future is one thread's at a
        time: while another waits for it, it is not done."""
        if self._value is not _PENDING:
            return True
        if not self._lock.acquire(blocking=False):
            return False
        connection, token = self._connection, object()
        try:
            connection._enter(token)
            native = connection._futures.get(id(self))
            return native is None or bool(at(native))
        except ClientClosed:
            return True
        finally:
            connection._leave(token)
            self._lock.release()

    # For event loops: _base/loop.py.

    def _notify(self, event_fd: int) -> bool:
        """Has the library write to this eventfd when the call ends. Whether there is something to wait
        for."""
        return not self._look(lambda native: lib.mr_future_notify(native, event_fd))

    def _watch(self, watcher: Callable[[], None]) -> None:
        self._watchers.append(watcher)

    def _unwatch(self, watcher: Callable[[], None]) -> None:
        self._watchers.remove(watcher)

    def result(self, timeout_s: float | None = None) -> Any:
        """What the call without `_async` returns; raises what it raises.

        timeout_s: TimeoutError when the call has not ended by then; it continues, and result() may be called
        again. Without, the call's own deadline ends it.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while self._value is _PENDING:
            left_ms = (
                _SLICE_MS
                if until is None
                else max(0, min(_SLICE_MS, round((until - time.monotonic()) * 1000)))
            )
            if not self._lock.acquire(timeout=left_ms / 1000):
                self._look_at_time(until)
                continue
            try:
                if self._value is _PENDING:
                    self._wait_slice(left_ms, until)
            finally:
                self._lock.release()
        if self._error is not None:
            raise self._error
        return self._value

    wait = result

    def _is_taken(self) -> bool:
        """Whether somebody has had its outcome."""
        return self._value is not _PENDING

    def _look_at_time(self, until: float | None) -> None:
        if until is not None and time.monotonic() >= until:
            raise TimeoutError(f"a call to {self._connection.server} is still in flight")

    def _wait_slice(self, slice_ms: int, until: float | None) -> None:
        """Under the lock: waits a little; keeps the outcome when the call has ended."""
        connection, token = self._connection, object()
        try:
            connection._enter(token)
            native = connection._futures[id(self)]
            if lib.mr_future_wait_for(native, slice_ms):
                self._take(native)
            else:
                self._look_at_time(until)
        except ClientClosed as error:
            self._settle(None, error)
        finally:
            connection._leave(token)

    def _take(self, native: Any) -> None:
        """It has ended: the outcome."""
        call = self._call
        assert call is not None
        reply = ffi.new("struct mr_reply **")
        status = lib.mr_future_wait(native, reply if call.has_reply else NULL)
        error: Exception | None = error_of(status, text(lib.mr_last_error())) if status else None
        lib.mr_future_destroy(self._connection._futures.pop(id(self)))
        try:
            if status and status == call.none_status:
                error = None
            value = None if status or call.finish is None else call.finish(reply[0])
        except Exception as failure:  # of taking the answer apart
            value, error = None, failure
        self._settle(value, error)

    def _settle(self, value: Any, error: BaseException | None) -> None:
        self._error = error
        self._value = value
        self._call = None
        if self._change is not None:
            self._change.end()
        for watcher in list(self._watchers):
            watcher()

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is None or id(self) not in connection._futures:
            return
        if self._change is not None:
            self._change.end()
        token = object()
        try:
            connection._enter(token)
            native = connection._futures.pop(id(self), None)
            if native is not None:
                lib.mr_future_destroy(native)
        except ClientClosed:
            pass  # close() has seen to it
        finally:
            connection._leave(token)

    def __await__(self) -> Generator[Any, None, Any]:
        from ._base.loop import outcome  # which imports asyncio

        return outcome(self).__await__()

    def __repr__(self) -> str:
        state = "in flight" if self._value is _PENDING else "failed" if self._error is not None else "done"
        return f"<millrace.Future of {self._connection.server}: {state}>"
