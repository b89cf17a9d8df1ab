"""Where torch's graph of this worker meets the tapes of all.

A tensor that came from another worker is a leaf of the graph here. One that leaves, or is a root of backward, ends a
segment: what lies between it and
the leaves that it depends on. The library records a segment as one run of a function, whose backward is torch's.
"""
from __future__ import annotations

from typing import Sequence

import torch

from .._library import NULL, ffi, lib
from ..errors import check_rpc
from . import _handles
from ._contexts import Context, inside
from ._values import fill_shape, fill_tensor, read_tensor

FUNCTION = b"python.segment"
_WIDTH = 90  # values of one run, below the library's limit


class _Segment:
    """Outputs, the leaves that came which they depend on, and the parameters."""

    def __init__(
        self,
        context: Context,
        outputs: Sequence[torch.Tensor],
        leaves: Sequence[torch.Tensor],
        parameters: Sequence[torch.Tensor],
    ) -> None:
        self.context = context
        self.outputs, self.leaves, self.parameters = outputs, leaves, parameters

    def backward(self, gradients: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """One for each leaf; those of parameters are added up here."""
        reached = [
            (output, gradient.reshape(output.shape))
            for output, gradient in zip(self.outputs, gradients)
            if gradient is not None
        ]
        inputs = [*self.leaves, *self.parameters]
        if not reached or not inputs:
            return [None] * len(self.leaves)
        # Segments share parts of the graph: it goes with the last of them.
        found = torch.autograd.grad(
            [r[0] for r in reached], inputs, [r[1] for r in reached], retain_graph=True, allow_unused=True
        )
        told: set[int] = set()
        for parameter, gradient in zip(self.parameters, found[len(self.leaves) :]):
            if gradient is not None:
                is_shared = not gradient.is_sparse and gradient.data_ptr() in told
                gradient = gradient.clone() if is_shared else gradient
                told.add(0 if gradient.is_sparse else gradient.data_ptr())
                self.context.add_gradient(parameter, gradient)
        return list(found[: len(self.leaves)])


class _Fan:
    """Hands the gradients of its outputs to each of several segments."""

    def __init__(self, ways: int) -> None:
        self.ways = ways

    def backward(self, gradients: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """The same for each way."""
        return gradients * self.ways


def _reach(context: Context, outputs: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The leaves that came, and all others, that the outputs depend on."""
    came: dict[int, torch.Tensor] = {}
    others: dict[int, torch.Tensor] = {}
    stack = []

    def at_leaf(leaf: torch.Tensor) -> None:
        (came if context.number_of(leaf) else others)[id(leaf)] = leaf

    for output in outputs:
        if output.grad_fn is None:
            at_leaf(output)
        else:
            stack.append(output.grad_fn)
    seen = set(stack)
    while stack:
        node = stack.pop()
        if type(node).__name__ == "AccumulateGrad":
            at_leaf(node.variable)
            continue
        for further, _ in node.next_functions:
            if further is not None and further not in seen:
                seen.add(further)
                stack.append(further)
    return list(came.values()), list(others.values())


def _record(pointer, inputs: Sequence[int], outputs: Sequence[torch.Tensor], saved) -> list[int]:
    values_in = ffi.new("struct mr_value[]", max(len(inputs), 1))
    values_out = ffi.new("struct mr_value[]", max(len(outputs), 1))
    for i, number in enumerate(inputs):
        values_in[i].gradient = number
    for i, output in enumerate(outputs):
        fill_shape(values_out[i], output)
    check_rpc(
        lib.mr_autograd_record(
            pointer, FUNCTION, values_in, len(inputs), values_out, len(outputs), _handles.keep(saved), _handles.drop
        )
    )
    return [values_out[i].gradient for i in range(len(outputs))]


def _split(context: Context, pointer, outputs: list[torch.Tensor]) -> list[int]:
    leaves, parameters = _reach(context, outputs)
    width = _WIDTH // len(outputs) * len(outputs)  # of a fan's inputs
    if len(leaves) <= _WIDTH:
        return _record(
            pointer,
            [context.number_of(leaf) for leaf in leaves],
            outputs,
            _Segment(context, outputs, leaves, parameters),
        )
    level: list[list[int]] = []
    for first in range(0, len(leaves), _WIDTH):
        some = leaves[first : first + _WIDTH]
        segment = _Segment(context, outputs, some, parameters if first == 0 else [])
        level.append(_record(pointer, [context.number_of(leaf) for leaf in some], outputs, segment))
    ways = max(width // len(outputs), 2)
    while len(level) > 1:
        groups = [level[i : i + ways] for i in range(0, len(level), ways)]
        level = [
            _record(pointer, [n for numbers in group for n in numbers], outputs, _Fan(len(group))) for group in groups
        ]
    return level[0]


def numbers(context: Context, pointer, tensors: Sequence[torch.Tensor]) -> list[int]:
    """The tensors' numbers on the tape, of those that leave together; 0 for constants."""
    found = [context.number_of(tensor) if tensor.requires_grad else 0 for tensor in tensors]
    open_ends = [i for i, tensor in enumerate(tensors) if tensor.requires_grad and not found[i]]
    for tensor in (tensors[i] for i in open_ends):
        if tensor.dtype is not torch.float32:
            raise TypeError(
                f"a tensor of {tensor.dtype} that requires grad cannot leave within an autograd context: gradients "
                f"travel as float32; "
                "use .float(), or .detach() if none is wanted"
            )
    for first in range(0, len(open_ends), _WIDTH // 2):
        some = open_ends[first : first + _WIDTH // 2]
        for i, number in zip(some, _split(context, pointer, [tensors[i] for i in some])):
            found[i] = number
    return found


@ffi.callback("mr_rpc_run", error=lib.MR_INTERNAL)
def run(call, _arguments, _count) -> int:
    """Segments are recorded, not called."""
    return lib.mr_rpc_fail(call, b"it is called by no one")


@ffi.callback("mr_rpc_backward", error=lib.MR_INTERNAL)
def backward(call, saved, gradients, count) -> int:
    """For the library, in its backward."""
    segment = _handles.get(saved)
    try:
        came = [read_tensor(gradients[i]) if gradients[i].data != NULL else None for i in range(count)]
        with inside(None), torch.enable_grad():
            found = segment.backward(came)
        values, alive = ffi.new("struct mr_value[]", max(len(found), 1)), []
        for value, gradient in zip(values, found):  # without one it stays none
            if gradient is not None:
                fill_tensor(value, gradient.to_dense() if gradient.is_sparse else gradient, 0, alive)
        return lib.mr_rpc_return_values(call, values, len(found))
    except Exception as error:  # noqa: BLE001: the library carries it to whoever called backward
        return lib.mr_rpc_fail(call, b"%s", ffi.new("char[]", f"{type(error).__name__}: {error}".encode()))
