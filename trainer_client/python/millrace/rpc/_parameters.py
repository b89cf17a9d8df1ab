"""The end of a backward pass on one worker: gradients of the parameters that live here.

Each segment of torch's graph (_segments.py) finds a part of a parameter's gradient. The sum is known once the
pass has been through all segments here, and only then hooks see it: those of tensors, and those of torch's
AccumulateGrad nodes, among which are those of DistributedDataParallel. Its reducer writes the mean over all
processes to `.grad` when it has seen every parameter, so nothing reads a gradient before.
"""
from __future__ import annotations

import collections
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Iterator, Sequence

import torch

if TYPE_CHECKING:
    from ._contexts import Context

FUNCTION = b"python.parameters"
#: What a segment gives the pass' end as gradient: that it has run.
ARRIVED = torch.zeros(())


class _Deferring(threading.local):
    """Whether this thread goes back through a segment: the hooks of leaves wait for the end of the pass."""

    is_on = False


_deferring = _Deferring()


@contextmanager
def deferring() -> Iterator[None]:
    """Hooks that defer_hooks() has found do not run within this block."""
    before, _deferring.is_on = _deferring.is_on, True
    try:
        yield
    finally:
        _deferring.is_on = before


class _Deferred:
    """A leaf's hook, but for segments."""

    def __init__(self, hook: Callable[[torch.Tensor], Any]) -> None:
        self.hook = hook

    def __call__(self, gradient: torch.Tensor) -> Any:
        return None if _deferring.is_on else self.hook(gradient)


def defer_hooks(parameters: Sequence[torch.Tensor]) -> None:
    """Their hooks run at the end of the pass, with the whole gradient. Other threads' are as before."""
    for parameter in parameters:
        hooks = parameter._backward_hooks
        if hooks:
            for key, hook in list(hooks.items()):
                if not isinstance(hook, _Deferred) and key in hooks:
                    hooks[key] = _Deferred(hook)


def _nothing(*_: Any) -> None:
    """A hook that does nothing."""


def _node_has_hooks(accumulator: Any) -> bool:
    """Whether Python code has registered hooks on the node: their dictionaries come with a handle only."""
    for register in (accumulator.register_hook, getattr(accumulator, "register_prehook", None)):
        if register is not None:
            handle = register(_nothing)
            hooks = handle.hooks_dict_ref()
            handle.remove()
            if hooks:
                return True
    return False


def _has_process_group() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


class _Feed(torch.autograd.Function):
    """Feeds gradients to leaves, through their AccumulateGrad nodes."""

    @staticmethod
    def forward(  # type: ignore[override]  # torch: any
        ctx: Any, gradients: list, reducers: list, *_parameters: torch.Tensor
    ) -> torch.Tensor:
        """A scalar that stands for all. gradients: one for each, or None; reducers: have to do something once
        all gradients are there."""
        ctx.gradients, ctx.reducers = gradients, reducers
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, _gradient: torch.Tensor) -> tuple:  # type: ignore[override]  # as above
        """The gradients."""
        for reducer in ctx.reducers:
            torch.autograd.Variable._execution_engine.queue_callback(reducer._delay_all_reduce)
        return (None, None, *ctx.gradients)


_accumulating = threading.Lock()  # `.grad` is another's meanwhile


class PassEnd:
    """Of one context on one worker: parts of gradients that a pass has found so far. Saved with a run on the
    tape, on which all segments with parameters depend."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.lock = threading.Lock()
        self.number = 0  # of its value on the tape; 0: not recorded yet
        self.pass_number = 0
        self.parts: dict[torch.Tensor, tuple[Any, torch.Tensor | None]] = {}  # with the node
        self.reducers: list[tuple[Any, Callable[[], None]]] = []  # with what makes one due again

    def begin(self, number: int) -> None:
        """Drops what an earlier pass has left, which failed elsewhere and never came to its end here."""
        with self.lock:
            if number == self.pass_number:
                return
            self.pass_number, self.parts = number, {}
            reducers, self.reducers = self.reducers, []
        for _, make_due in reducers:
            make_due()

    def add(self, accumulators: Sequence[Any], gradients: Sequence[torch.Tensor | None]) -> None:
        """What a segment has found. A gradient may be None: hooks learn that there is none."""
        uses = collections.Counter(_memory(gradient) for gradient in gradients if gradient is not None)
        with self.lock:
            for accumulator, gradient in zip(accumulators, gradients):
                parameter = accumulator.variable
                if gradient is not None:
                    gradient = _own(gradient, parameter, uses[_memory(gradient)] > 1)
                _, before = self.parts.get(parameter, (None, None))
                self.parts[parameter] = accumulator, add(before, gradient)

    def delay(self, sinks: Sequence[Any]) -> None:
        """DistributedDataParallel with a static graph reduces after its first backward: that is at the end of
        the pass, not of the segment that its output is in."""
        for sink in sinks:
            module = sink.ddp_weakref() if hasattr(sink, "ddp_weakref") else None
            if module is not None:
                # Only with a static graph does it have that attribute.
                is_due = module.static_graph and not module._static_graph_delay_allreduce_enqueued
                if is_due:
                    module._static_graph_delay_allreduce_enqueued = True
                reducer = module.reducer
                make_due = partial(setattr, module, "_static_graph_delay_allreduce_enqueued", False)
            else:  # torch 1: the state is a copy, of this forward
                state = sink.state_dict
                is_due = state["static_graph"] and state["num_iterations"] == 1
                state["num_iterations"] += is_due
                reducer = sink.reducer
                make_due = partial(state.__setitem__, "num_iterations", 1)
            if is_due:
                with self.lock:
                    self.reducers.append((reducer, make_due))

    def backward(self, _gradients: list, _number: int) -> list:
        """All segments that the pass goes through here have run."""
        with self.lock:
            parts, self.parts = self.parts, {}
            reducers = [reducer for reducer, _ in self.reducers]
            self.reducers = []
        is_seen = _has_process_group()
        hooked = {}
        for parameter, (accumulator, gradient) in parts.items():
            if is_seen or parameter._backward_hooks or _node_has_hooks(accumulator):
                hooked[parameter] = gradient
            elif gradient is not None:
                self.context.add_gradient(parameter, gradient)
        if hooked:
            self._accumulate(hooked, reducers, is_seen)
        return []

    def _accumulate(
        self, parts: dict[torch.Tensor, torch.Tensor | None], reducers: list, is_reduced: bool
    ) -> None:
        """As torch does with `.grad`, which is as before afterwards: hooks and reducers look there."""
        parameters = list(parts)
        with self.context.lock:
            sums = [self.context.gradients.get(parameter) for parameter in parameters]
        with _accumulating:
            before = [parameter.grad for parameter in parameters]
            try:
                for parameter, value in zip(parameters, sums):
                    parameter.grad = None if value is None else value.clone()
                with torch.enable_grad():
                    end = _Feed.apply(list(parts.values()), reducers, *parameters)
                torch.autograd.backward([end])
                # Copies: DistributedDataParallel writes to its own again.
                found = [
                    parameter.grad.clone() if is_reduced and parameter.grad is not None else parameter.grad
                    for parameter in parameters
                ]
            finally:
                for parameter, gradient in zip(parameters, before):
                    parameter.grad = gradient
        with self.context.lock:
            for parameter, gradient in zip(parameters, found):
                if gradient is not None:
                    self.context.gradients[parameter] = gradient


def _memory(gradient: torch.Tensor) -> int:
    return (gradient._values() if gradient.is_sparse else gradient).data_ptr()


def _own(gradient: torch.Tensor, parameter: torch.Tensor, is_shared: bool) -> torch.Tensor:
    """Its own memory, laid out as the parameter's, as torch keeps gradients. is_shared: autograd gives
    several leaves the same tensor."""
    if gradient.is_sparse:
        is_whole = gradient._indices().is_contiguous() and gradient._values().is_contiguous()
        return gradient.clone() if is_shared or not is_whole else gradient
    if gradient.layout is not torch.strided:
        return gradient
    if gradient.stride() == parameter.stride():
        return gradient.clone() if is_shared else gradient
    return torch.empty_like(parameter, dtype=gradient.dtype, requires_grad=False).copy_(gradient)


def add(before: Any, gradient: Any) -> Any:
    """The sum of two tensors, each of which may be None or sparse."""
    if before is None or gradient is None:
        return gradient if before is None else before
    return gradient + before if before.is_sparse else before + gradient  # torch adds sparse to dense only
