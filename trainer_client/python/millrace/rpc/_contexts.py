"""Autograd contexts of this worker: what came in with a number on the tape, and the gradients of what lives
here."""
from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

from .._base.library import NULL, lib
from ..errors import InvalidArgument, check_rpc
from . import _handles, _parameters
from ._gate import gate

if TYPE_CHECKING:
    from ._world import World


class _Arrived(torch.autograd.Function):
    """Stands between a leaf that came and the program, so that operations in place are none on a leaf."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # torch: any
        """Another tensor over the leaf's memory, which torch does not take for a view of it."""
        empty = torch.empty(0, dtype=leaf.dtype)
        return empty.set_(leaf.detach())  # type: ignore[call-overload]  # torch: storages only

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # as above
        """The same."""
        return gradient


class Context:
    """One context on one worker. `pointer` is the library's, where this worker began it."""

    def __init__(self, world: World, number: int, pointer: Any = None) -> None:
        self.world = world
        self.id = number
        self.pointer = pointer
        self.lock = threading.Lock()
        self.leaves: dict[int, tuple[torch.Tensor, int]] = {}  # by id() of the tensor
        self.arrived: dict[
            int, tuple[torch.Tensor, int, int]
        ] = {}  # what the program has of them; its version
        self.gradients: dict[torch.Tensor, torch.Tensor] = {}
        self.pass_end = _parameters.PassEnd(self)

    def leaf(self, tensor: torch.Tensor, number: int) -> torch.Tensor:
        """A tensor that came: gradients for it go to `number` on the tape. What is returned may be changed in
        place, unless it is a parameter."""
        leaf = tensor.detach() if not isinstance(tensor, torch.nn.Parameter) else tensor
        leaf.requires_grad_(True)
        setattr(leaf, "came_in", self.id)
        with self.lock:
            self.leaves[id(leaf)] = (leaf, number)
        if leaf is tensor:
            return leaf
        with torch.enable_grad():
            arrived = _Arrived.apply(leaf)
        with self.lock:
            self.arrived[id(arrived)] = (arrived, number, arrived._version)
        return arrived

    def number_of(self, tensor: torch.Tensor) -> int:
        """Of one that came, and is as it came; 0: it is none."""
        found = self.leaves.get(id(tensor))
        if found is not None and found[0] is tensor:
            return found[1]
        arrived = self.arrived.get(id(tensor))
        if arrived is not None and arrived[0] is tensor and arrived[2] == tensor._version:
            return arrived[1]
        return 0

    def refuse_strange(self, leaf: torch.Tensor) -> None:
        """What came in another context leads to no worker in this one: its gradient would be lost."""
        context_id = getattr(leaf, "came_in", self.id)
        if context_id != self.id:
            raise RuntimeError(
                f"a tensor of shape {list(leaf.shape)} came from another worker in autograd context "
                f"{context_id}, and is used in "
                f"context {self.id}: gradients do not go from one context to another; use .detach() if none "
                "is wanted"
            )

    def add_gradient(self, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        """Adds up, as `.grad` does, which is left alone."""
        with self.lock:
            before = self.gradients.get(parameter)
            self.gradients[parameter] = gradient if before is None else _parameters.add(before, gradient)

    def dropped(self) -> None:
        """The library's end of it."""
        self.world.contexts.pop(self.id, None)


class _Here(threading.local):
    """The context that this thread is in, the library's pointer to it, and whether the thread counts as
    computing."""

    context: Context | None = None
    pointer: Any = NULL
    ticket: Any = None


here = _Here()


def _pack(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    # Another tensor over the same memory: an optimizer's step gives the parameter other memory, and this
    # keeps the old values.
    alias = tensor.detach()
    return alias, alias._version


def _unpack(packed: tuple[torch.Tensor, int]) -> torch.Tensor:
    tensor, version = packed
    if tensor._version != version:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            "a tensor "
            "of shape "
            f"{list(tensor.shape)} is at version {tensor._version}; expected version {version}"
        )
    return tensor


class inside:
    """The thread computes in a context, or (None) in none."""

    def __init__(self, context: Context | None, pointer: Any = NULL) -> None:
        self.context, self.pointer = context, pointer
        self.hooks = torch.autograd.graph.saved_tensors_hooks(_pack, _unpack) if context is not None else None

    def __enter__(self) -> None:
        self.before = here.context, here.pointer, here.ticket
        here.context, here.pointer = self.context, self.pointer
        if here.ticket is None:
            here.ticket = gate.enter()
        if self.hooks is not None:
            self.hooks.__enter__()

    def __exit__(self, *error: object) -> None:
        if self.hooks is not None:
            self.hooks.__exit__(*error)
        if self.before[2] is None:
            gate.leave(here.ticket)
        here.context, here.pointer, here.ticket = self.before


class waiting:
    """The thread waits for others, and computes nothing meanwhile."""

    def __enter__(self) -> None:
        self.was_computing = here.ticket is not None
        if self.was_computing:
            gate.leave(here.ticket)
            here.ticket = None

    def __exit__(self, *_error: object) -> None:
        if self.was_computing:
            here.ticket = gate.enter()


def of_call(world: World, pointer: Any) -> Context:
    """The context of a call that came; new here, it is kept until the library drops it."""
    number = lib.mr_autograd_id(pointer)
    context = world.contexts.get(number)
    if context is not None:
        return context
    with world.lock:
        context = world.contexts.get(number)
        if context is None:
            context = world.contexts[number] = Context(world, number)
            # A run that no gradient reaches: what is saved with it goes with the context.
            check_rpc(
                lib.mr_autograd_record(
                    pointer, b"python.segment", NULL, 0, NULL, 0, _handles.keep(context), _handles.drop
                )
            )
    return context


def find(world: World, number: int) -> Context:
    """By the id that the context manager gave."""
    context = world.contexts.get(number)
    if context is None:
        raise InvalidArgument(
            f'there is no autograd context {number} on worker "{world.name}": it has ended, or no call in it '
            "came "
            f"here"
        )
    return context


def pointer_of(context: Context) -> Any:
    """The library's pointer, which a worker has that began the context, or executes a call in it."""
    if context.pointer is not None:
        return context.pointer
    if here.context is context:
        return here.pointer
    raise InvalidArgument(
        f"autograd context {context.id} is another worker's: use it there, or within a call in it"
    )
