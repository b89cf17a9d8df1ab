"""Futures in coroutines: the event loop drives the client, and never waits in the library.

There is a driver for each loop and client. While a coroutine waits for a future, it watches the client's
descriptor, to make progress when packets come, keeps the client's timer, and watches an eventfd of its own,
which the library writes
to when a call that is waited for ends: other threads, or the library's own, may have driven the client
meanwhile.
"""
from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import weakref
from typing import TYPE_CHECKING, Any

from ..errors import ClientClosed

if TYPE_CHECKING:
    from .connection import Connection
    from ..future import Future

_ROUND_S = 0.1  # a round checks all futures, notified or not, and whether anybody still waits
_EVENTFD_BYTES = 8


def _eventfd() -> int:
    """A new eventfd that does not block. Python has one of its own from 3.10 on."""
    fd: int = ctypes.CDLL(None, use_errno=True).eventfd(0, os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "eventfd")
    return fd


class Driver:
    """Of one client in one loop. All methods run in the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: Connection) -> None:
        self._loop = weakref.ref(loop)
        self._connection = weakref.ref(connection)  # a loop must not keep a client open that nobody uses
        self._waiting: dict[asyncio.Future[None], Future] = {}
        self._event_fd = _eventfd()
        self._fd = (
            -1
        )  # the client's descriptor, as one of our own: the loop can let go of it after the client is gone
        self._timer: asyncio.TimerHandle | None = None
        self._round: asyncio.TimerHandle | None = None
        self._idle = False

    def __del__(self) -> None:
        for fd in (self._event_fd, self._fd):
            if fd >= 0:
                os.close(fd)

    async def wait(self, future: Future, connection: Connection) -> None:
        """Returns once future.result() does not block."""
        loop = asyncio.get_running_loop()
        self._begin(loop, connection)
        waiter = loop.create_future()
        self._waiting[waiter] = future
        future._watch(self._wake)
        try:
            if future._notify(self._event_fd):
                self._arm(loop, connection)
                await waiter
        finally:
            future._unwatch(self._wake)
            del self._waiting[waiter]

    def _begin(self, loop: asyncio.AbstractEventLoop, connection: Connection) -> None:
        self._idle = False
        if self._round is not None:
            return
        loop.add_reader(self._event_fd, self._ended)
        if not connection._has_progress_thread:
            self._fd = os.dup(connection.fileno())
            loop.add_reader(self._fd, self._progress)
        self._round = loop.call_later(_ROUND_S, self._look_round)

    def _stop(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self._event_fd)
        if self._fd >= 0:
            loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
        for handle in (self._timer, self._round):
            if handle is not None:
                handle.cancel()
        self._timer = self._round = None

    def _wake(self) -> None:
        """Another thread has taken a future's outcome, or closed the client."""
        loop = self._loop()
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._finish, len(self._waiting))

    def _look_round(self) -> None:
        loop = self._loop()
        assert loop is not None
        self._finish(len(self._waiting))
        if self._waiting:
            self._idle = False
        elif self._idle:
            self._stop(loop)
            return
        else:
            self._idle = True
        self._round = loop.call_later(_ROUND_S, self._look_round)

    def _progress(self) -> None:
        connection, loop = self._connection(), self._loop()
        if connection is None or loop is None:
            return
        try:
            ended = connection.progress()
            self._arm(loop, connection)
        except ClientClosed:
            self._finish(len(self._waiting))
            self._stop(loop)
            return
        if ended:
            self._ended()

    def _arm(self, loop: asyncio.AbstractEventLoop, connection: Connection) -> None:
        """The loop shall come by then, or before."""
        if connection._has_progress_thread:
            return
        left_s = connection.timeout_s()
        if left_s is None:
            return
        at_s = loop.time() + left_s
        if self._timer is not None:
            if self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at_s, self._timed)

    def _timed(self) -> None:
        self._timer = None
        if self._waiting:
            self._progress()

    def _ended(self) -> None:
        try:
            self._finish(int.from_bytes(os.read(self._event_fd, _EVENTFD_BYTES), sys.byteorder))
        except BlockingIOError:
            pass

    def _finish(self, most: int) -> None:
        """Wakes those whose futures have ended: at most `most` of them, probably the first ones."""
        for waiter, future in list(self._waiting.items()):
            if waiter.done() or not future._is_over():
                continue
            waiter.set_result(None)
            most -= 1
            if most <= 0:
                return


def _driver(connection: Connection) -> Driver:
    loop = asyncio.get_running_loop()
    driver = connection._drivers.get(loop)
    if driver is None:
        driver = connection._drivers[loop] = Driver(loop, connection)
    return driver


async def outcome(future: Future) -> Any:
    """What future.result() returns, without waiting in the library."""
    connection = future._connection
    while not future._is_over():
        await _driver(connection).wait(future, connection)
    return future.result()
