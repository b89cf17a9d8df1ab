"""A connection to a node or a hub: its life, and how calls run on it.

No thread may be in the library with a client, and no future of it be left, when that is destroyed. So each
thread that goes in leaves a token in `_inside` before it looks whether the client is still open; close()
first says that it is not, and then waits until the others are out. Waiting is done in slices for that, and
for Ctrl-C: Python runs signal handlers only between calls.
"""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
import weakref
from threading import get_ident
from typing import Any, Callable, Mapping, NamedTuple, Optional, TypeVar

from .changes import Changes, Watch
from .library import NULL, ffi, lib, text
from .options import Slot, milliseconds, whole
from ..errors import ClientClosed, error_of
from ..future import Future

_SLICE_MS = 50
_U32_MAX = 0xFFFFFFFF
#: A call of more may be larger than a message. It is then made in parts, and is in flight when all but the
#: last few have been sent.
_LONG_BYTES = 4 << 20
_T = TypeVar("_T")


class Call(NamedTuple):
    """A call to be made: function(client, options, *arguments[, reply]). Whoever holds it holds the memory it
    writes to."""

    function: Callable[..., int]
    arguments: tuple
    finish: Optional[
        Callable[[Any], Any]
    ] = None  #: makes the result; of what the call wrote, or of its reply:
    has_reply: bool = False  #: it answers with tensors, and finish() gets, and owns, the struct mr_reply
    none_status: int = 0  #: a status that is no error: None is returned
    held: Any = None  #: what the arguments point to
    changes: tuple = ()  #: of tables: (number, keys that it changes; None: it may be any)
    nbytes: int = 0  #: about, of the keys and rows that it is about


def _spin_us(seconds: float | None) -> int:
    if seconds is None:
        return 0  # the library's default
    if not seconds >= 0:
        raise ValueError(f"busy_poll_s is {seconds}; it is a number of seconds from 0 on, or math.inf")
    return _U32_MAX if seconds == math.inf else max(1, min(round(seconds * 1e6), _U32_MAX - 1))


class Connection:
    """What millrace.Client and millrace.Hub have in common. See Client for the arguments."""

    def __init__(
        self,
        server: str | None = None,
        *,
        key_file: str | None = None,
        client_id: str | None = None,
        deadline_s: float = 10.0,
        connect_s: float = 10.0,
        replay: bool | None = None,
        replay_bytes: int = 0,
        progress_thread: bool = False,
        memory_bytes: int = 0,
        receive_buffer_bytes: int = 0,
        udp_bytes_max: int = 0,
        busy_poll_s: float | None = None,
        offload: bool = True,
        bundle: bool = True,
        any_node: bool = False,
    ) -> None:
        self._handle: Any = None
        self._before_close: list[Callable[[], Any]] = []
        self._why_closed = "the client was not connected"
        self._inside: dict[Any, int] = {}  # who is in the library with this client: tokens, and their threads
        self._owned: list[Any] = []  # the library's client until somebody takes it to destroy it
        self._futures: dict[int, Any] = {}  # struct mr_future * by the id() of their Future
        self._slots: list[Slot] = []
        self._changes: Optional[Changes] = None  # what it changes, once somebody watches that
        self._held: list[Any] = []  # what lives as long as the client
        self._drivers: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # of event loops
        self._has_progress_thread = progress_thread
        self.server = server = server or self._default_server()
        self.key_file = key_file
        names = [
            ffi.new("char[]", os.fsencode(name)) if name else NULL for name in (server, key_file, client_id)
        ]
        options = ffi.new(
            "struct mr_client_options *",
            {
                "server": names[0],
                "key_file": names[1],
                "client_id": names[2],
                "deadline_ms": milliseconds("deadline_s", deadline_s),
                "connect_ms": milliseconds("connect_s", connect_s),
                "receive_buffer_bytes": whole("receive_buffer_bytes", receive_buffer_bytes, _U32_MAX),
                "memory_bytes": whole("memory_bytes", memory_bytes, _U32_MAX),
                "udp_bytes_max": whole("udp_bytes_max", udp_bytes_max, _U32_MAX),
                "busy_poll_us": _spin_us(busy_poll_s),
                "replay": bool(replay),
                "replay_bytes": whole("replay_bytes", replay_bytes, _U32_MAX),
                "progress_thread": progress_thread,
                "no_offload": not offload,
                "no_bundle": not bundle,
                "any_node": any_node,
            },
        )
        self._owned.append(_connect(options, names))
        self._handle = self._owned[0]
        self._why_closed = f"the client of {server} is closed"
        _open.add(self)

    @classmethod
    def _default_server(cls) -> str:
        """The address when none is given. ValueError: there is none."""
        raise NotImplementedError

    # ---- its life ----

    def on_close(self, function: Callable[[], Any]) -> None:
        """Has close() call it first, while calls still go through: to wait for those that nobody has waited
        for."""
        self._before_close.append(function)

    def close(self) -> None:
        """Ends the connection and all calls in flight: whoever waits for them gets ClientClosed. Arrays that
        calls returned stay valid. Pushes of modules of millrace.nn are waited for first; their errors are
        raised at the end."""
        before, self._before_close = self._before_close, []
        try:
            for function in before:
                function()
        finally:
            self._end()

    def _end(self, limit_s: float = math.inf) -> None:
        self._handle = None
        for driver in list(self._drivers.values()):
            driver._wake()
        me, until = get_ident(), time.monotonic() + limit_s
        while (
            self._owned
            and time.monotonic() < until
            and any(thread != me for thread in list(self._inside.values()))
        ):
            time.sleep(0.001)
        self._reap()

    def _reap(self) -> None:
        """Closed: whoever comes when nobody is inside any more destroys what is left. That is a call of the
        closing thread's own when a signal handler in the midst of it closes the client."""
        if self._inside:
            return
        try:
            handle = self._owned.pop()
        except IndexError:
            return
        while self._futures:
            lib.mr_future_destroy(self._futures.popitem()[1])
        lib.mr_client_destroy(handle)

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._handle is None

    def __enter__(self: _T) -> _T:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._end()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self._end()

    def __repr__(self) -> str:
        return f"<millrace.{type(self).__name__} {self.server}{' (closed)' if self.closed else ''}>"

    def _forked(self) -> None:
        """In a child process: the sockets are the parent's."""
        self._handle, self._before_close = None, []
        self._why_closed = (
            f"this client of {self.server} was made before fork(); make another in the child process"
        )
        self._inside, self._futures, self._owned = {}, {}, []

    def _closed_error(self) -> ClientClosed:
        while _exiting and threading.current_thread().daemon:
            time.sleep(3600)  # such threads end with the process, whatever they are at
        return ClientClosed(self._why_closed)

    def _enter(self, token: Any) -> Any:
        """The library's client, which stays until the token is given to _leave(): also when this raises."""
        self._inside[token] = get_ident()
        handle = self._handle
        if handle is None:
            raise self._closed_error()
        return handle

    def _leave(self, token: Any) -> None:
        self._inside.pop(token, None)
        if self._handle is None:
            self._reap()

    # ---- calls ----

    def _run(self, call: Call, options: Mapping[str, object]) -> Any:
        """Makes a call and waits for its end."""
        function, arguments, finish, has_reply, none_status, _, changes, nbytes = call
        if nbytes > _LONG_BYTES or (changes and self._changes is not None):
            return self._start(call, options).result()
        try:
            slot = self._slots.pop()
        except IndexError:
            slot = Slot()
        try:
            handle = self._enter(slot)
            if options:
                slot.set(options)
            status = (
                function(handle, slot.options, *arguments, NULL)
                if has_reply
                else function(handle, slot.options, *arguments)
            )
            if status:
                raise error_of(status, text(lib.mr_last_error()))
            future = slot.future[0]
            try:
                while not lib.mr_future_wait_for(future, _SLICE_MS):
                    if self._handle is None:
                        raise self._closed_error()
                status = lib.mr_future_wait(future, slot.reply if has_reply else NULL)
                if status and status != none_status:
                    raise error_of(status, text(lib.mr_last_error()))
            finally:
                lib.mr_future_destroy(future)
        finally:
            if options:
                slot.clear()
            self._leave(slot)
        reply = slot.reply[0]
        self._slots.append(slot)
        if finish is None or status:
            return None
        return finish(reply) if has_reply else finish(None)

    def _start(self, call: Call, options: Mapping[str, object]) -> Future:
        """Makes a call and returns at once; of a long one, when it is in flight."""
        slot = Slot()
        change = None
        if call.changes and self._changes is not None:
            change = self._changes.begin(call.changes)
        try:
            handle = self._enter(slot)
            slot.set(options)
            arguments = call.arguments + (NULL,) if call.has_reply else call.arguments
            call = call._replace(held=(call.held, options.get("pushed")))
            if call.nbytes > _LONG_BYTES and threading.current_thread() is threading.main_thread():
                status, line = self._make_apart(call, slot, arguments)
            else:
                status = call.function(handle, slot.options, *arguments)
                line = text(lib.mr_last_error()) if status else ""
            if status:
                raise error_of(status, line)
            return Future(self, slot.future[0], call, change)
        except BaseException:
            if change is not None:
                change.end()
            raise
        finally:
            self._leave(slot)

    def _make_apart(self, call: Call, slot: Slot, arguments: tuple) -> tuple[int, str]:
        """Has the library make a call with a future, on a thread of its own: it may take long, and Ctrl-C
        must come through. The call goes on then, as one does whose future is dropped. Its status, and the
        line that goes with that."""
        result: list[tuple[int, str]] = []
        failed: list[BaseException] = []
        taken = threading.Lock()  # by this thread as it wants the result no more, or by the other before that
        me = get_ident()

        def drop() -> None:
            if result[0][0] == 0:
                lib.mr_future_destroy(slot.future[0])

        def make() -> None:
            token = object()
            try:
                handle = self._enter(token)
                self._inside[token] = me  # which does not wait for it when it closes the client
                status = call.function(handle, slot.options, *arguments)
                result.append((status, text(lib.mr_last_error()) if status else ""))
                if not taken.acquire(blocking=False):
                    drop()
            except BaseException as error:  # noqa: BLE001: raised below
                failed.append(error)
            finally:
                self._leave(token)

        thread = threading.Thread(target=make, daemon=True, name="millrace-call")
        try:
            thread.start()
            thread.join()
        except BaseException:
            if not taken.acquire(blocking=False):
                drop()
            raise
        if failed:
            raise failed[0]
        return result[0]

    def _watch(self) -> Watch:
        """Watches what this client changes in tables from now on, and what it has in flight."""
        if self._changes is None:
            self._changes = Changes(self)
        return self._changes.watch()

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """A function that only looks: function(client, *arguments)."""
        token = object()
        try:
            return function(self._enter(token), *arguments)
        finally:
            self._leave(token)

    @property
    def core_count(self) -> int:
        """How many data cores the server has; in a cluster, all its nodes together."""
        return self._ask(lib.mr_client_core_count)

    @property
    def incarnation(self) -> int:
        """The number of the server's start, for people: it may come again where the checkpoint directory
        changed."""
        return self._ask(lib.mr_client_incarnation)

    @property
    def start_id(self) -> int:
        """Random bits of the server's start: another value each time that it was found restarted."""
        return self._ask(lib.mr_client_start_id)

    def fileno(self) -> int:
        """A descriptor that is readable when progress() has something to do, for an event loop of your
        own."""
        return self._ask(lib.mr_client_fd)

    def progress(self) -> int:
        """Receives, sends and completes what can be without waiting. Returns how many calls ended."""
        return self._ask(lib.mr_client_progress)

    def timeout_s(self) -> float | None:
        """After how long progress() should be called even if the descriptor is quiet; None: no need."""
        milliseconds_left = self._ask(lib.mr_client_timeout_ms)
        return None if milliseconds_left < 0 else milliseconds_left / 1000


_open: weakref.WeakSet[Connection] = weakref.WeakSet()
_exiting = False


def _create(options: Any) -> Any:
    client, error = ffi.new("struct mr_client **"), ffi.new("char[768]")
    status = lib.mr_client_create(options, client, error, 768)
    line = text(error)
    if status == lib.MR_UNREACHABLE and "nothing listens" in line:
        line += "; for development, millrace.dev() starts one on this machine"
    return error_of(status, line) if status else client[0]


def _connect(options: Any, names: list[Any]) -> Any:
    """On a thread of its own: it may take long, and Ctrl-C must come through."""
    result: list[Any] = []
    abandoned = threading.Lock()

    def connect() -> None:
        assert names  # that the struct points to
        client = _create(options)
        result.append(client)
        if abandoned.acquire(blocking=False):
            return
        if not isinstance(client, Exception):
            lib.mr_client_destroy(client)

    if threading.current_thread() is not threading.main_thread():
        result.append(_create(options))
    else:
        thread = threading.Thread(target=connect, daemon=True, name="millrace-connect")
        try:
            thread.start()
            thread.join()
        except BaseException:
            if not abandoned.acquire(blocking=False) and result and not isinstance(result[0], Exception):
                lib.mr_client_destroy(result[0])
            raise
    if isinstance(result[0], Exception):
        raise result[0]
    return result[0]


def _close_all() -> None:
    global _exiting
    _exiting = True
    for connection in list(_open):
        connection._end(limit_s=0.2)


def _after_fork() -> None:
    for connection in list(_open):
        connection._forked()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork)
