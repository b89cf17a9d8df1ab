"""Where torch's graph of this worker meets the tapes of all.

A tensor that came from another worker is a leaf of the graph here. One that leaves, or is a root of backward,
ends a segment: what lies between it and the leaves that it depends on. The library records a segment as one
run of a function, whose backward is torch's.
"""
from __future__ import annotations

import threading
from typing import Any, Sequence

import torch

from .._base.library import NULL, callback, ffi, lib
from ..errors import check_rpc
from . import _handles, _parameters as parameters_of
from ._contexts import Context, inside
from ._values import fill_shape, fill_tensor, read_tensor

FUNCTION = b"python.segment"
_WIDTH = 90  # values of one run, below the library's limit


class _Came(threading.local):
    """Gradients for the ends of the segment that this thread goes back through."""

    gradients: Sequence[torch.Tensor | None] = ()


_came = _Came()


class _End(torch.autograd.Function):
    """Ties a node to the tensors as they are now: what is done to one in place later is none of its
    history."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # torch: any
        """A scalar that stands for all."""
        ctx.shapes = [tensor.shape for tensor in tensors]
        return torch.zeros(())

    @staticmethod
    def backward(  # type: ignore[override]  # as above
        ctx: Any, _gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        """The gradients that came."""
        return tuple(
            None if gradient is None else gradient.reshape(shape)
            for gradient, shape in zip(_came.gradients, ctx.shapes)
        )


class _Segment:
    """An end, the leaves that came which it depends on, and the parameters: their nodes in torch's graph.
    With parameters, the last of the run's inputs is that of the context's PassEnd."""

    def __init__(
        self, context: Context, end: torch.Tensor, leaves: Sequence[torch.Tensor], reach: "_Reach"
    ) -> None:
        self.context = context
        self.end, self.leaves, self.reach = end, leaves, reach

    def backward(self, gradients: list[torch.Tensor | None], number: int) -> list[torch.Tensor | None]:
        """One for each leaf; those of parameters are left with the PassEnd. number: of the pass."""
        accumulators = self.reach.accumulators
        parameters = [accumulator.variable for accumulator in accumulators]
        further = [parameters_of.ARRIVED] if parameters else []
        inputs = [*self.leaves, *parameters]
        if not inputs or all(gradient is None for gradient in gradients):
            return [None] * len(self.leaves) + further
        parameters_of.defer_hooks(parameters)
        self.context.pass_end.begin(number)
        self.context.pass_end.delay(self.reach.sinks)
        before, _came.gradients = _came.gradients, gradients
        try:  # segments share parts of the graph: it goes with the last of them
            with parameters_of.deferring():
                found = torch.autograd.grad([self.end], inputs, retain_graph=True, allow_unused=True)
        finally:
            _came.gradients = before
        self.context.pass_end.add(accumulators, found[len(self.leaves) :])
        return [*found[: len(self.leaves)], *further]


class _Fan:
    """Hands the gradients of its outputs to each of several segments."""

    def __init__(self, ways: int) -> None:
        self.ways = ways

    def backward(self, gradients: list[torch.Tensor | None], _number: int) -> list[torch.Tensor | None]:
        """The same for each way."""
        return gradients * self.ways


class _Reach:
    """What an end depends on: leaves that came, the nodes of all others in torch's graph, and nodes of
    DistributedDataParallel that have something done at the end of a backward."""

    def __init__(self, context: Context, end: torch.Tensor) -> None:
        came: dict[int, torch.Tensor] = {}
        self.accumulators: list[Any] = []
        self.sinks: list[Any] = []
        stack = [end.grad_fn]
        seen = set(stack)
        while stack:
            node = stack.pop()
            kind = type(node).__name__
            if kind == "AccumulateGrad":
                leaf = node.variable
                context.refuse_strange(leaf)
                if context.number_of(leaf):
                    came[id(leaf)] = leaf
                else:
                    self.accumulators.append(node)
                continue
            if kind == "_DDPSinkBackward":
                self.sinks.append(node)
            for further, _ in node.next_functions:
                if further is not None and further not in seen:
                    seen.add(further)
                    stack.append(further)
        self.leaves = list(came.values())

    @classmethod
    def of_none(cls) -> "_Reach":
        """Of leaves only."""
        reach = cls.__new__(cls)
        reach.accumulators, reach.sinks, reach.leaves = [], [], []
        return reach


def _record(
    pointer: Any,
    inputs: Sequence[int],
    outputs: Sequence[torch.Tensor],
    saved: Any,
    function: bytes = FUNCTION,
) -> list[int]:
    """Returns the outputs' numbers on the tape."""
    values_in = ffi.new("struct mr_value[]", max(len(inputs), 1))
    values_out = ffi.new("struct mr_value[]", max(len(outputs), 1))
    for i, number in enumerate(inputs):
        values_in[i].gradient = number
    for i, output in enumerate(outputs):
        fill_shape(values_out[i], output)
    check_rpc(
        lib.mr_autograd_record(
            pointer,
            function,
            values_in,
            len(inputs),
            values_out,
            len(outputs),
            _handles.keep(saved),
            _handles.drop,
        )
    )
    return [values_out[i].gradient for i in range(len(outputs))]


def _pass_end_number(context: Context, pointer: Any) -> int:
    """Of the value that each segment with parameters depends on: its node runs once all these have run."""
    end = context.pass_end
    with end.lock:
        if end.number == 0:
            end.number = _record(pointer, [], [parameters_of.ARRIVED], end, parameters_of.FUNCTION)[0]
        return end.number


def _split(context: Context, pointer: Any, outputs: list[torch.Tensor]) -> list[int]:
    with torch.enable_grad():
        end = _End.apply(*outputs)
    reach = _Reach(context, end)
    further = [_pass_end_number(context, pointer)] if reach.accumulators else []
    leaves = reach.leaves
    width = _WIDTH // len(outputs) * len(outputs)  # of a fan's inputs
    if len(leaves) <= _WIDTH:
        return _record(
            pointer,
            [*(context.number_of(leaf) for leaf in leaves), *further],
            outputs,
            _Segment(context, end, leaves, reach),
        )
    level: list[list[int]] = []
    for first in range(0, len(leaves), _WIDTH):
        some = leaves[first : first + _WIDTH]
        segment = _Segment(context, end, some, reach if first == 0 else _Reach.of_none())
        inputs = [context.number_of(leaf) for leaf in some]
        level.append(_record(pointer, inputs + further if first == 0 else inputs, outputs, segment))
    ways = max(width // len(outputs), 2)
    while len(level) > 1:
        groups = [level[i : i + ways] for i in range(0, len(level), ways)]
        level = [
            _record(pointer, [n for numbers in group for n in numbers], outputs, _Fan(len(group)))
            for group in groups
        ]
    return level[0]


def no_gradient(tensor: torch.Tensor) -> TypeError:
    """Why a tensor that requires grad cannot leave."""
    layout = "" if tensor.layout is torch.strided else f", {tensor.layout},"
    return TypeError(
        f"a tensor of {tensor.dtype}{layout} that requires grad cannot leave within an autograd context: "
        "gradients travel as dense "
        "float32 or float64; use .float(), .to_dense(), or .detach() if none is wanted"
    )


def numbers(context: Context, pointer: Any, tensors: Sequence[torch.Tensor]) -> list[int]:
    """The tensors' numbers on the tape, of those that leave together; 0 for constants."""
    found = [context.number_of(tensor) if tensor.requires_grad else 0 for tensor in tensors]
    open_ends = [i for i, tensor in enumerate(tensors) if tensor.requires_grad and not found[i]]
    for tensor in (tensors[i] for i in open_ends):
        if tensor.dtype not in (torch.float32, torch.float64):
            raise no_gradient(tensor)
    for first in range(0, len(open_ends), _WIDTH // 2):
        some = open_ends[first : first + _WIDTH // 2]
        for i, number in zip(some, _split(context, pointer, [tensors[i] for i in some])):
            found[i] = number
    return found


@callback("mr_rpc_run", error=lib.MR_INTERNAL)
def run(call: Any, _arguments: Any, _count: int) -> int:
    """Segments are recorded, not called."""
    return lib.mr_rpc_fail(call, b"it is called by no one")


@callback("mr_rpc_backward", error=lib.MR_INTERNAL)
def backward(call: Any, saved: Any, gradients: Any, count: int) -> int:
    """For the library, in its backward."""
    world = _handles.get(lib.mr_rpc_user(call))()
    if world is None or world.is_closed:
        lib.mr_rpc_fail(call, b"the worker is leaving")
        return lib.MR_SHUTTING_DOWN
    segment = _handles.get(saved)
    try:
        came = [read_tensor(gradients[i]) if gradients[i].data != NULL else None for i in range(count)]
        with inside(None), torch.enable_grad():
            found = segment.backward(came, lib.mr_rpc_pass(call))
        values = ffi.new("struct mr_value[]", max(len(found), 1))
        alive: list[Any] = []
        for value, gradient in zip(values, found):  # without one it stays none
            if gradient is not None:
                fill_tensor(value, gradient.to_dense() if gradient.is_sparse else gradient, 0, alive)
        return lib.mr_rpc_return_values(call, values, len(found))
    except Exception as error:  # noqa: BLE001: the library carries it to whoever called backward
        return lib.mr_rpc_fail(call, b"%s", ffi.new("char[]", f"{type(error).__name__}: {error}".encode()))
