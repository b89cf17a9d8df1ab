"""Gradients over workers, with the names and meaning of torch.distributed.autograd. Needs torch."""
from __future__ import annotations

from typing import Sequence

import torch

from ._base.library import ffi, lib
from .errors import InvalidArgument, check_rpc
from .rpc import _segments
from .rpc._contexts import Context, find, here, inside, pointer_of, waiting
from .rpc._values import fill_shape
from .rpc._world import current


class context:
    """`with context() as context_id`: records the remote calls of this thread, on all workers that they
    reach, until the end of the block."""

    def __enter__(self) -> int:
        if here.context is not None:
            raise RuntimeError(f"this thread is in autograd context {here.context.id} already")
        world = current()
        out = ffi.new("struct mr_autograd **")
        check_rpc(lib.mr_autograd_begin(world.rpc, out))
        self.context = Context(world, lib.mr_autograd_id(out[0]), out[0])
        world.contexts[self.context.id] = self.context
        self.inside = inside(self.context, out[0])
        self.inside.__enter__()
        return self.context.id

    def __exit__(self, *error: object) -> None:
        self.inside.__exit__(*error)
        self.context.world.contexts.pop(self.context.id, None)
        pointer, self.context.pointer = self.context.pointer, None
        if pointer is not None:  # else the world is over
            lib.mr_autograd_end(pointer)


def backward(context_id: int, roots: Sequence[torch.Tensor], retain_graph: bool = False) -> None:
    """Runs backward from scalar losses (float32 or float64, one element) through all workers. Gradients add
    up in the context, on the owner of each parameter; `.grad` does not change. ValueError: no roots, one that
    is no scalar or requires no grad, or no such context here."""
    if not isinstance(context_id, int):
        raise TypeError(f"backward: context_id={context_id!r}: what `with context() as context_id` gave")
    if not isinstance(roots, (list, tuple)) or not all(isinstance(root, torch.Tensor) for root in roots):
        raise TypeError(f"backward: roots={roots!r}: a list of tensors")
    found = find(current(), context_id)
    pointer = pointer_of(found)
    if not roots:
        raise InvalidArgument("backward: there are no roots")
    for root in roots:
        if root.numel() != 1:
            raise InvalidArgument(f"backward: a root is a scalar, not a tensor of shape {list(root.shape)}")
        if not root.requires_grad:
            raise InvalidArgument("backward: a root does not require grad: nothing it was computed from does")
        if root.grad_fn is None and found.number_of(root) == 0:
            raise InvalidArgument("backward: a root is a leaf: it was not computed from anything")
    numbers = _segments.numbers(found, pointer, roots)
    values = ffi.new("struct mr_value[]", len(roots))
    for value, root, number in zip(values, roots, numbers):
        fill_shape(value, root)
        value.gradient = number
    with waiting():
        status = lib.mr_autograd_backward(pointer, values, len(roots), retain_graph)
    check_rpc(status)


def get_gradients(context_id: int) -> dict[torch.Tensor, torch.Tensor]:
    """Returns {tensor: gradient} for this worker's tensors that require grad, with the sums of that
    context. ValueError: there is no such context here."""
    found = find(current(), context_id)
    with found.lock:
        return dict(found.gradients)


def is_available() -> bool:
    """Whether gradients can go over workers: they can, where this module can be imported."""
    return True


__all__ = ["backward", "context", "get_gradients", "is_available"]
