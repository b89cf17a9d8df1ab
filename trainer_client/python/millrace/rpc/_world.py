"""The world that this process is a worker of: joining it, and leaving."""
from __future__ import annotations

import atexit
import gc
import os
import re
import threading
import time
import warnings
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._base.library import NULL, counted, ffi, lib, text
from ..errors import Error, InvalidArgument, UnknownWorker, check_rpc, error_of
from . import _file_rendezvous, _future, _handles
from ._parts import Parts
from ._options import BackendType, Place, RpcBackendOptions, find_place, milliseconds

if TYPE_CHECKING:
    from ._contexts import Context

_ERROR_BYTES = 1200
_SHUTDOWN_STEP_MS = 200
_EXIT_S = 5.0
_MEMORY_BYTES = 256 << 20  # the library's default


_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,%d}" % (lib.MR_RPC_NAME_BYTES - 1))


def check_name(name: Any) -> None:
    """InvalidArgument: it cannot be a worker's."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"name={name!r}: a worker's name has 1 to {lib.MR_RPC_NAME_BYTES - 1} letters, digits and "
            'characters of "-_.:"'
        )


@dataclass(frozen=True)
class WorkerInfo:
    """A worker's name, and its rank as `id`."""

    name: str
    id: int

    def __post_init__(self) -> None:
        check_name(self.name)


class World:
    """This process as a worker. The library frees it once nothing uses its memory any more."""

    def __init__(self, name: str, place: Place, options: RpcBackendOptions) -> None:
        self.name, self.rank = name, place.rank
        self.is_open = place.world_size is None  # workers join and leave one by one
        self.world_size = options.world_size_max if place.world_size is None else place.world_size
        self.timeout_s = options.rpc_timeout
        self.timeout_ms = 0  # of calls that name none, as mr_rpc_call_options has it
        self.python_functions = options.python_functions
        self.meeting_file = place.file
        self.lock = threading.Lock()
        self.ready = threading.Event()
        self.is_closed = False
        self.is_abandoned = False
        self.rpc = NULL
        self.workers: dict[int, WorkerInfo] = {}
        self.by_name: dict[str, int] = {}  # not in an open world, where a name may pass to another
        self.contexts: dict[int, Context] = {}
        self.turns: Any = None  # api.py's
        self.held: weakref.WeakSet = weakref.WeakSet()  # references
        self.parts = Parts(place.rank, options.parts_bytes_max, options.rpc_timeout)
        self.viewed_bytes = 0
        self.view_bytes_max = (options.memory_bytes or _MEMORY_BYTES) // 4

    def milliseconds(self, timeout: float) -> int:
        """A call's `timeout`, in seconds, as the library has it; -1: this worker's default."""
        return self.timeout_ms if timeout == -1.0 else milliseconds(timeout)

    def rank_of(self, to: Any) -> int:
        """Returns the rank for a name, a rank, or a WorkerInfo."""
        if isinstance(to, str):
            rank = self._look_up(to) if self.is_open else self.by_name.get(to)
            if rank is None:
                raise UnknownWorker(
                    f"no worker of this world is called \"{to}\"; there are {', '.join(sorted(self.by_name))}"
                )
            return rank
        rank = to if isinstance(to, int) else getattr(to, "id", None)
        if not isinstance(rank, int):
            raise InvalidArgument(f"to={to!r}: a worker's name, its rank, or its WorkerInfo")
        if not 0 <= rank < self.world_size:
            raise UnknownWorker(
                f"there is no rank {rank} in this world of {counted(self.world_size, 'worker')}"
            )
        return rank

    def _look_up(self, name: str) -> int:
        info = ffi.new("struct mr_rpc_worker *")
        check_rpc(lib.mr_worker_by_name(self.rpc, name.encode(), info))
        return info.rank

    def worker(self, rank: int) -> WorkerInfo:
        """Name and rank of a worker that has joined."""
        worker = self.workers.get(rank)
        if worker is None:
            info = ffi.new("struct mr_rpc_worker *")
            check_rpc(lib.mr_worker_info(self.rpc, rank, info))
            worker = self.workers[rank] = WorkerInfo(text(info.name), rank)
        return worker

    def need_python(self, what: str) -> None:
        """Python functions are on here, too: what comes back is a pickle."""
        if not self.python_functions:
            raise error_of(lib.MR_UNAUTHORIZED, f"{what}: {self.off_line()}")

    def off_line(self) -> str:
        """How they are turned on."""
        return (
            f'Python functions are off on worker "{self.name}" (rank {self.rank}): '
            "MILLRACE_PYTHON_FUNCTIONS=on, or "
            f"allow_python_functions=True "
            "in its RpcBackendOptions, turns them on; every worker of the world that has the key can then "
            "run any "
            "code there"
        )

    def learn_workers(self) -> None:
        """Names and ranks, once all have joined."""
        self.by_name = {self.worker(rank).name: rank for rank in range(self.world_size)}

    def release_all(self) -> None:
        """Releases the program's references and futures, which cannot be used any more."""
        for thing in [*self.held, *_future.of_world(self)]:
            thing._release()
        _future.destroy_ended()
        gc.collect()

    def abandon(self) -> None:
        """In the child of a fork: the worker belongs to the parent. Nothing here may report its end to the
        library, and so to the others."""
        self.is_closed = self.is_abandoned = True
        for thing in list(self.held):
            thing._abandon()
        for context in self.contexts.values():
            context.pointer = None
        ffi.gc(self.rpc, None)

    def forget_file(self) -> None:
        """Whoever reads it from now on does not find this world."""
        if self.meeting_file is not None:
            _file_rendezvous.remove(self.meeting_file)

    def close(self) -> None:
        """Ends the worker's threads."""
        self.is_closed = True
        self.forget_file()
        self.release_all()
        for context in list(self.contexts.values()):
            if context.pointer is not None:
                lib.mr_autograd_end(context.pointer)
                context.pointer = None
        lib.mr_rpc_close(self.rpc)


_current: World | None = None
_worlds: weakref.WeakSet[World] = weakref.WeakSet()
_lock = threading.Lock()


def current() -> World:
    """The world that init_rpc() joined."""
    world = _current
    if world is None:
        raise InvalidArgument(
            "there is no world: call millrace.rpc.init_rpc() before, and shutdown() after all else"
        )
    return world


def _native_options(world: World, options: RpcBackendOptions, rendezvous: str, alive: list) -> Any:
    from . import _parameters, _segments, _serve

    functions = [
        (b"python.call", b"tensor, ...", b"...", _serve.call, NULL),
        (b"python.remote", b"tensor, ...", b"object", _serve.remote, NULL),
        (b"python.fetch", b"ref", b"...", _serve.fetch, NULL),
        (b"python.part", b"string, ...", b"", _serve.part, NULL),
        (b"python.rest", b"string, i64", b"...", _serve.rest, NULL),
        (_segments.FUNCTION, b"...", b"...", _segments.run, _segments.backward),
        (_parameters.FUNCTION, b"...", b"...", _segments.run, _segments.backward),
    ]
    native = ffi.new("struct mr_rpc_options *")
    array = ffi.new("struct mr_rpc_function[]", len(functions))
    alive += [array, native]

    def string(value: str | None) -> Any:
        if value is None:
            return NULL
        alive.append(ffi.new("char[]", value.encode()))
        return alive[-1]

    user = _handles.keep(weakref.ref(world))
    for i, (name, arguments, results, run, backward) in enumerate(functions):
        strings = [ffi.new("char[]", s) for s in (name, arguments, results)]
        alive += strings
        array[i].name, array[i].arguments, array[i].results = strings
        array[i].run, array[i].backward, array[i].user = run, backward, user
        array[i].flags = lib.MR_RPC_SERIAL
        if name == _parameters.FUNCTION:
            array[i].flags |= lib.MR_RPC_RETAINED
    native.rendezvous = string(rendezvous)
    native.rendezvous_is_node = options.rendezvous_is_node
    native.listen = string(options.listen)
    native.key_file = string(options.key)
    native.init_timeout_ms = max(round(options.init_timeout_s * 1000), 1)
    native.timeout_ms = milliseconds(options.rpc_timeout)
    native.dead_after_ms = max(round(options.dead_after_s * 1000), 1)
    native.executor_threads = options.num_worker_threads
    native.busy_poll_us = 0 if options.busy_poll_s is None else max(round(options.busy_poll_s * 1e6), 1)
    native.memory_bytes = options.memory_bytes
    native.message_bytes = options.message_bytes
    native.long_memory_bytes = options.long_memory_bytes
    native.functions, native.function_count = array, len(functions)
    native.is_open = world.is_open
    return native


def _join(world: World, options: RpcBackendOptions, rendezvous: str) -> None:
    alive: list = []
    out, error = ffi.new("struct mr_rpc **"), ffi.new("char[]", _ERROR_BYTES)
    status = lib.mr_rpc_init(
        world.name.encode(),
        world.rank,
        world.world_size,
        _native_options(world, options, rendezvous, alive),
        out,
        error,
        _ERROR_BYTES,
    )
    if status:
        raise error_of(status, text(error))
    world.rpc = ffi.gc(out[0], lib.mr_rpc_destroy)
    _worlds.add(world)
    if not world.is_open:
        world.learn_workers()


def init_rpc(
    name: str,
    backend: Any = None,
    rank: int = -1,
    world_size: int | None = None,
    rpc_backend_options: RpcBackendOptions | None = None,
) -> None:
    """Joins the world, and returns once all workers have.

    $RANK and $WORLD_SIZE stand for a rank or world_size that is not given. Rank 0 listens at $MASTER_ADDR and
    $MASTER_PORT, or as init_method of the options says. Without a world_size workers join and leave one by
    one, each with a rank that none has had before; this returns once those who are there know this one.
    """
    global _current
    check_name(name)
    if backend not in (None, "millrace") and not isinstance(backend, BackendType):
        raise TypeError(f"backend={backend!r}: there is one, millrace.rpc.BackendType.MILLRACE")
    options = rpc_backend_options if rpc_backend_options is not None else RpcBackendOptions()
    if not isinstance(options, RpcBackendOptions):
        raise TypeError(
            f"rpc_backend_options is {type(options).__module__}.{type(options).__qualname__}: use "
            f"millrace.rpc.RpcBackendOptions, "
            "which takes torch's arguments"
        )
    with _lock:
        if _current is not None:
            raise InvalidArgument(
                f'init_rpc("{name}"): this process is worker "{_current.name}" (rank {_current.rank}) '
                "already; shutdown() leaves that world"
            )
        place = find_place(options, rank, world_size)
        world = World(name, place, options)
        if world.python_functions and options.key is None:
            warnings.warn(
                "Python functions are on, and there is no key: whoever reaches this worker's port can run "
                "code here. key_file, or $MILLRACE_KEY_FILE, names one",
                stacklevel=2,
            )
        try:
            _join(world, options, place.rendezvous)
            _future.offer_to_torch()
            _current = world
        except BaseException:
            world.forget_file()
            raise
        finally:
            world.ready.set()


def get_worker_info(worker_name: str | None = None) -> WorkerInfo:
    """Returns the WorkerInfo of that worker; of this one if none is named."""
    world = current()
    return world.worker(world.rank if worker_name is None else world.rank_of(worker_name))


def get_rpc_timeout() -> float:
    """Returns the default time-out of calls, in seconds; 0: none."""
    return current().timeout_s


def set_rpc_timeout(timeout: float) -> None:
    """Sets the default time-out of the calls that begin from now on, in seconds; 0: none."""
    world = current()
    world.timeout_ms = milliseconds(timeout)
    world.timeout_s = timeout


def is_available() -> bool:
    """Whether remote calls can be made: they can, where this module can be imported."""
    return True


def _leave(world: World, timeout: float) -> None:
    """Waits for the others. References are kept until nobody begins anything new, as in torch."""
    until = time.monotonic() + timeout if timeout > 0 else None
    while True:
        left_ms = (
            _SHUTDOWN_STEP_MS
            if until is None
            else min(_SHUTDOWN_STEP_MS, max(round((until - time.monotonic()) * 1000), 1))
        )
        status = lib.mr_rpc_shutdown(world.rpc, left_ms)
        if not status:
            return
        error = error_of(status, text(lib.mr_rpc_last_error()))
        if status != lib.MR_DEADLINE_EXCEEDED or (until is not None and time.monotonic() >= until):
            raise error
        if lib.mr_rpc_staying(world.rpc) == 0:
            world.release_all()


def shutdown(graceful: bool = True, timeout: float = 0) -> None:
    """Leaves the world. graceful: waits until all workers have called this and nothing is in flight, and
    serves this worker's functions until then. In a world without a world_size it waits for its own calls and
    functions only.

    timeout: in seconds; 0: none. After DeadlineExceeded, whose text says who is missing, the worker is still
    a member. References cannot be used afterwards; received tensors stay valid.
    """
    global _current
    world = current()
    try:
        if graceful:
            _leave(world, timeout)
    except Error as error:
        if error.status == "DEADLINE_EXCEEDED":
            raise
        _drop(world)
        raise
    _drop(world)


def _drop(world: World) -> None:
    global _current
    with _lock:
        if _current is world:
            _current = None
    world.close()


@atexit.register
def _at_exit() -> None:
    """Without shutdown() the others see a worker that died. Running functions get some seconds to end."""
    global _current
    world = _current
    _current = None
    if world is None:
        return
    closing = threading.Thread(target=world.close, daemon=True)
    closing.start()
    closing.join(_EXIT_S)
    ffi.gc(world.rpc, None)  # what still looks into it is not to find it gone


def _forget_after_fork() -> None:
    global _current, _lock
    _lock = threading.Lock()
    for world in list(_worlds):
        world.abandon()
    _current = None


os.register_at_fork(after_in_child=_forget_after_fork)
