"""References to values that live on their owner."""
from __future__ import annotations

from functools import partial
from typing import Any, Callable, Generic, NoReturn, TypeVar

from .._base.library import ffi, lib
from ..errors import InvalidArgument, check_rpc
from . import _handles
from ._contexts import waiting
from ._values import RESULT_PLACE
from ._world import World, WorkerInfo, current

T = TypeVar("T")


class RRef(Generic[T]):
    """A reference to a value: RRef(value) makes one to a value of this worker, and remote() returns one. It
    can be passed to other workers as an argument or a result, or inside one. The value is freed when no
    worker has a reference to it any more."""

    def __init__(self, value: T, type_hint: Any = None) -> None:
        world = current()
        native = ffi.new("struct mr_value *")
        native.kind = lib.MR_VALUE_OBJECT
        native.object = _handles.keep(value)
        out = ffi.new("struct mr_rref **")
        check_rpc(lib.mr_rref_create_from(world.rpc, native, _handles.drop, out))
        self._set(world, out[0], True)

    @classmethod
    def _of(cls, world: World, pointer: Any, is_python: bool | None) -> "RRef":
        """Takes the holder. is_python: None: nobody said so."""
        rref = cls.__new__(cls)
        rref._set(world, pointer, is_python)
        return rref

    def _set(self, world: World, pointer: Any, is_python: bool | None) -> None:
        self._world = world
        self._rank = lib.mr_rref_owner(pointer)
        self._is_python = is_python
        self._native = ffi.gc(pointer, lib.mr_rref_release)
        self._type: Any = None  # _get_type()'s future
        self._methods: set[str] = set()  # that are known to be there
        world.held.add(self)

    def _pointer(self) -> Any:
        if self._native is None:
            raise InvalidArgument("this RRef is of a world that the worker has left")
        return self._native

    def _release(self) -> None:
        native, self._native = self._native, None
        if native is not None:
            ffi.release(native)

    def _abandon(self) -> None:
        if self._native is not None:
            ffi.gc(self._native, None)
            self._native = None

    def owner(self) -> WorkerInfo:
        """Returns the worker that owns the value."""
        return self._world.worker(self._rank)

    def owner_name(self) -> str:
        """Returns the owner's name."""
        return self.owner().name

    def is_owner(self) -> bool:
        """Whether this worker owns the value."""
        return self._rank == self._world.rank

    def confirmed_by_owner(self) -> bool:
        """Whether the owner knows of this reference: waits for its answer, no longer than the worker's
        time-out."""
        with waiting():
            status = lib.mr_rref_confirm(self._pointer(), self._world.milliseconds(-1.0))
        if status not in (lib.MR_OK, lib.MR_DEADLINE_EXCEEDED):
            check_rpc(status)
        return status == lib.MR_OK

    def local_value(self) -> T:
        """On the owner: waits until the value exists, no longer than the worker's time-out, and returns it.
        Raises what the function raised that was to make it. InvalidArgument: this worker is not the owner."""
        return self._local_value(-1.0)

    def _local_value(self, timeout: float) -> T:
        from ._calls import read_native
        from ._errors import raise_remote
        from ._serve import Failed

        value = ffi.new("const struct mr_value **")
        with waiting():
            status = lib.mr_rref_local_value(self._pointer(), self._world.milliseconds(timeout), value)
        check_rpc(status)
        if value[0].kind != lib.MR_VALUE_OBJECT:
            out = ffi.new(RESULT_PLACE)
            check_rpc(lib.mr_rref_to_here(self._pointer(), self._world.milliseconds(timeout), out))
            return read_native(self._world, out[0])
        try:
            thing = _handles.get(value[0].object)
        except KeyError:
            raise InvalidArgument(
                "local_value: the value is an object of the library's or of a C function: calls use it, "
                "Python cannot"
            ) from None
        if isinstance(thing, Failed):
            raise_remote(thing.raised)
        return thing

    def to_here(self, timeout: float = -1.0) -> T:
        """Returns a copy of the value, or on the owner the value itself. Raises what the function raised that
        was to make it. timeout: in seconds; 0: none; -1: the worker's default."""
        from ._calls import fetch, read_native

        if self._is_python is not False and self.is_owner():
            try:
                return self._local_value(timeout)
            except InvalidArgument:
                if self._is_python:
                    raise
        if self._is_python:
            return fetch(self, timeout)
        out = ffi.new(RESULT_PLACE)
        with waiting():
            status = lib.mr_rref_to_here(self._pointer(), self._world.milliseconds(timeout), out)
        if status == lib.MR_INVALID_ARGUMENT and self._is_python is None and not self.is_owner():
            return fetch(self, timeout)  # an object: Python's, if its owner has that
        check_rpc(status)
        return read_native(self._world, out[0])

    def rpc_sync(self, timeout: float = -1.0) -> "_Methods":
        """rref.rpc_sync().name(...) calls a method of the value on its owner."""
        from ._calls import rpc_sync

        return _Methods(self, rpc_sync, timeout)

    def rpc_async(self, timeout: float = -1.0) -> "_Methods":
        """Does the same, and returns a Future."""
        from ._calls import rpc_async

        return _Methods(self, rpc_async, timeout)

    def remote(self, timeout: float = -1.0) -> "_Methods":
        """Does the same; the result stays on the owner, and this returns a reference to it."""
        from ._calls import remote

        return _Methods(self, remote, timeout, is_checked=True)

    def backward(self, dist_autograd_ctx_id: int = -1, retain_graph: bool = False) -> None:
        """Runs backward from this scalar in the context. Without a context, runs torch's own backward from a
        value of this worker."""
        from ._calls import rpc_sync
        from ._serve import backward_at_owner, root_of

        if dist_autograd_ctx_id < 0:
            root_of(self).backward(retain_graph=retain_graph)
        else:
            rpc_sync(self._rank, backward_at_owner, (self, dist_autograd_ctx_id, retain_graph))

    def __reduce__(self) -> NoReturn:
        raise InvalidArgument("an RRef is pickled only as an argument or a result of a remote call")

    def _get_type(self, timeout: float = -1.0, blocking: bool = True) -> Any:
        """The type of the value, or a future of it; its owner is asked once."""
        from ._calls import rpc_async
        from ._future import Future
        from ._serve import type_at_owner

        if self._type is None and self.is_owner():
            self._type = Future()
            self._type.set_result(type(self._local_value(timeout)))
        elif self._type is None:
            self._type = rpc_async(self._rank, type_at_owner, (self,), timeout=timeout)
        return self._type.wait() if blocking else self._type

    def __repr__(self) -> str:
        owner = self.owner()
        return f"RRef(owner=\"{owner.name}\" (rank {owner.id}){', left' if self._native is None else ''})"


class _Methods:
    """What rref.rpc_sync(), rpc_async() and remote() return."""

    def __init__(self, rref: RRef, how: Callable, timeout: float, is_checked: bool = False) -> None:
        """is_checked: what the value does not have is raised at the call, not at the result's first use."""
        self._rref, self._how, self._timeout, self._is_checked = rref, how, timeout, is_checked

    def __getattr__(self, name: str) -> Callable:
        return partial(self._call, name)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        from ._calls import rpc_sync
        from ._serve import find_method, invoke

        if self._is_checked and name not in self._rref._methods:
            rpc_sync(self._rref._rank, find_method, (self._rref, name), timeout=self._timeout)
            self._rref._methods.add(name)
        return self._how(self._rref._rank, invoke, (self._rref, name, args, kwargs), timeout=self._timeout)


def adopt(world: World, pointer: Any) -> RRef:
    """Makes an RRef of a reference among values that are valid for a while, with a hold of its own."""
    lib.mr_rref_retain(pointer)
    return RRef._of(world, pointer, None)
