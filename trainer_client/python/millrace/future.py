"""Calls under way."""
from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from ._library import NULL, ffi, lib, text
from .errors import ClientClosed, error_of

if TYPE_CHECKING:
    from ._connection import Call, Connection

_SLICE_MS = 50  # after which signals are looked after
_PENDING = object()


class Future:
    """The outcome of a call that is under way: what the methods that end in `_async` return.

    result() waits for it. A future that is dropped lets its call go on; nobody hears of
    its outcome.
    """

    def __init__(self, connection: Connection, native: Any, call: Call) -> None:
        self._connection = connection
        self._call: Call | None = call  # holds what the call writes to
        self._lock = threading.Lock()
        self._value: Any = _PENDING
        self._error: BaseException | None = None
        connection._futures[id(self)] = native

    def done(self) -> bool:
        """Whether result() would return at once. Makes progress itself."""
        if self._value is not _PENDING:
            return True
        connection, token = self._connection, object()
        try:
            connection._enter(token)
            native = connection._futures.get(id(self))
            return native is None or bool(lib.mr_future_done(native))
        except ClientClosed:
            return True
        finally:
            connection._leave(token)

    def result(self, timeout_s: float | None = None) -> Any:
        """What the call without `_async` returns; raises what it raises.

        timeout_s: TimeoutError when the call has not ended by then; it goes on, and result() may be called again. Without,
        the call's own deadline ends it.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while self._value is _PENDING:
            left_ms = _SLICE_MS if until is None else max(0, min(_SLICE_MS, round((until - time.monotonic()) * 1000)))
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

    def _look_at_time(self, until: float | None) -> None:
        if until is not None and time.monotonic() >= until:
            raise TimeoutError(f"a call to {self._connection.server} is still under way")

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
        error = error_of(status, text(lib.mr_last_error())) if status else None
        lib.mr_future_destroy(self._connection._futures.pop(id(self)))
        try:
            value = None if error is not None or call.finish is None else call.finish(reply[0])
        except Exception as failure:  # of taking the answer apart
            value, error = None, failure
        self._settle(value, error)

    def _settle(self, value: Any, error: BaseException | None) -> None:
        self._error = error
        self._value = value
        self._call = None

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is None or id(self) not in connection._futures:
            return
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

    def __repr__(self) -> str:
        state = "under way" if self._value is _PENDING else "failed" if self._error is not None else "done"
        return f"<millrace.Future of {self._connection.server}: {state}>"
