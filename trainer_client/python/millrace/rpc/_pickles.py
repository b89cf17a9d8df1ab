"""Arguments and results of Python functions: a pickle, and beside it the tensors and references that are in
it."""
from __future__ import annotations

import io
import pickle
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any, Sequence

import torch

from .._base.library import ffi, lib
from . import _segments
from ._contexts import Context
from ._rref import RRef, adopt
from ._values import Result, fill_tensor, read_tensor, strides_kept, travels, with_strides

if TYPE_CHECKING:
    from ._world import World

_VALUES = ffi.typeof("struct mr_value[]")
CHUNK = 90  # values that go with a call; more go before or after it


# Nothing in them goes beside the pickle, and each is made by pickle's own C code.
_PLAIN = frozenset((int, float, str, bytes, bool, type(None)))
# Neither tensors nor references.
_COMMON = _PLAIN | {tuple, list, dict, set, type, FunctionType, BuiltinFunctionType}


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, in_context: bool) -> None:
        super().__init__(file, protocol=5)
        self.in_context = in_context
        self.places: dict[int, tuple] = {}
        self.things: list[Any] = []

    def persistent_id(self, obj: Any) -> tuple | None:
        if type(obj) in _COMMON:  # pickle asks for each part of each
            return None
        is_tensor = isinstance(obj, torch.Tensor)
        if is_tensor and not travels(obj):  # part of the pickle
            if self.in_context and obj.requires_grad:
                raise _segments.no_gradient(obj)
            return None
        if not is_tensor and not isinstance(obj, RRef):
            return None
        place = self.places.get(id(obj))
        if place is None:
            if is_tensor:
                kind = "parameter" if isinstance(obj, torch.nn.Parameter) else "tensor"
                place = (kind, len(self.things), str(obj.dtype)[6:], tuple(obj.shape), obj.requires_grad)
                if not obj.is_contiguous():
                    place += (strides_kept(obj),)
            else:
                place = ("rref", len(self.things), obj._is_python)
            self.places[id(obj)] = place
            self.things.append(obj)
        return place


class _Unpickler(pickle.Unpickler):
    def __init__(self, content: bytes, things: Sequence[Any], context: Context | None) -> None:
        super().__init__(io.BytesIO(content))
        self.things, self.context = things, context
        self.made: dict[int, Any] = {}

    def persistent_load(self, place: tuple) -> Any:
        kind, index = place[:2]
        made = self.made.get(index)
        if made is None:
            made = self.made[index] = self.rref(*place) if kind == "rref" else self.tensor(*place)
        return made

    def rref(self, _kind: str, index: int, is_python: bool | None) -> Any:
        rref = self.things[index]
        rref._is_python = is_python
        return rref

    def tensor(
        self,
        kind: str,
        index: int,
        dtype: str,
        shape: tuple[int, ...],
        requires_grad: bool,
        strides: tuple[int, ...] | None = None,
    ) -> torch.Tensor:
        tensor, number = self.things[index]
        wanted = getattr(torch, dtype)
        if tensor.dtype != wanted:
            tensor = tensor.view(wanted)
        tensor = tensor.reshape(shape)
        if strides is not None:
            tensor = with_strides(tensor, strides)
        if kind == "parameter":
            tensor = torch.nn.Parameter(tensor, requires_grad=requires_grad)
        return self.context.leaf(tensor, number) if number and self.context is not None else tensor


def _is_plain(thing: Any) -> bool:
    return type(thing) in _PLAIN or (type(thing) is tuple and all(type(part) in _PLAIN for part in thing))


def dump_call(function: Any, args: tuple, kwargs: dict, context: Context | None) -> tuple[bytes, list[Any]]:
    """As dump() of the three."""
    if not kwargs and type(function) is FunctionType and _is_plain(args):
        return pickle.dumps((function, args, kwargs), protocol=5), []
    return dump((function, args, kwargs), context)


def dump(thing: Any, context: Context | None) -> tuple[bytes, list[Any]]:
    """The pickle, and what goes beside it. context: where gradients are wanted."""
    if _is_plain(thing):
        return pickle.dumps(thing, protocol=5), []
    file = io.BytesIO()
    pickler = _Pickler(file, context is not None)
    pickler.dump(thing)
    return file.getvalue(), pickler.things


def load(content: bytes, things: Sequence[Any], context: Context | None) -> Any:
    """`things` as take() gave them."""
    if not things:
        return pickle.loads(content)
    return _Unpickler(content, things, context).load()


def tape_numbers(things: Sequence[Any], context: Context | None, pointer: Any) -> list[int]:
    """Of each thing, on the context's tape; references have none."""
    if context is None:
        return [0] * len(things)
    tensors = [i for i, thing in enumerate(things) if isinstance(thing, torch.Tensor)]
    found = [0] * len(things)
    for i, number in zip(tensors, _segments.numbers(context, pointer, [things[i] for i in tensors])):
        found[i] = number
    return found


def fill(value: Any, thing: Any, number: int, alive: list) -> None:
    """A tensor or a reference."""
    if isinstance(thing, torch.Tensor):
        fill_tensor(value, thing, number, alive)
        return
    value.kind = lib.MR_VALUE_RREF
    value.rref = thing._pointer()
    alive.append(thing)


def take(world: World, values: Sequence[Any], owner: Result | None = None) -> list[Any]:
    """Values that came: (tensor, number) or a reference each. Without an owner all are copied."""
    return [
        adopt(world, value.rref)
        if value.kind == lib.MR_VALUE_RREF
        else (read_tensor(value.tensor, owner), value.gradient)
        for value in values
    ]


def new_values(count: int) -> Any:
    """struct mr_value[count], all zero."""
    return ffi.new(_VALUES, count or 1)
