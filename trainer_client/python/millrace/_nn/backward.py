"""Gradients out of torch's backward.

While the engine runs a backward pass, the gradients of what came from servers are collected. At its end each
table's and each batch's are pushed in one call, but for those that wait for an optimizer's step().
"""
from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Any, Callable, Iterator, Optional, Sequence

import numpy as np
import torch

from .anchor import Anchor
from .pushes import Gradients, Rows, by_key
from .staging import Staged, placed


class Backward(Gradients):
    """What one backward pass has collected so far."""

    def __init__(self) -> None:
        super().__init__()
        self.is_over = False
        self._staged: list[tuple[Staged, Callable[[np.ndarray], None]]] = []
        self._held: dict[int, tuple[Anchor, list, dict]] = {}  # what waits for step(): Rows or arrays
        self._left: dict[int, tuple[Anchor, bool]] = {}  # what does not; whether it is of a batch

    def _waits(self, anchor: Optional[Anchor], part: Any, options: dict) -> bool:
        if anchor is None:
            return False
        if anchor.optimizer is None:
            self._left[id(anchor)] = anchor, False
            return False
        self._held.setdefault(id(anchor), (anchor, [], options))[1].append(part)
        return True

    def add_rows(self, table: Any, rows: Rows, options: dict, anchor: Optional[Anchor] = None) -> None:
        if not self._waits(anchor, rows, options):
            super().add_rows(table, rows, options)

    def add_variable(
        self, variable: Any, gradient: np.ndarray, options: dict, anchor: Optional[Anchor] = None
    ) -> None:
        if not self._waits(anchor, gradient, options):
            super().add_variable(variable, gradient, options)

    def add_batch(
        self, batch: Any, feature: Any, gradient: np.ndarray, options: dict, anchor: Optional[Anchor] = None
    ) -> None:
        if anchor is not None:
            anchor.check_step()
            self._left[id(anchor)] = anchor, True
        super().add_batch(batch, feature, gradient, options)

    def stage(self, gradient: torch.Tensor, take: Callable[[np.ndarray], None]) -> None:
        """A gradient in a device's memory, which `take` gets at the end of the pass."""
        self._staged.append((Staged(gradient), take))

    def push(self) -> None:
        for staged, take in self._staged:
            take(staged.arrived())
        self.is_over = True
        for anchor, parts, options in self._held.values():
            if isinstance(parts[0], Rows):
                anchor.add_rows(*by_key(anchor.feature, parts), options)
            else:
                anchor.add_variable(sum(parts[1:], parts[0]), options)
        for anchor, is_batch in self._left.values():
            anchor.note_pushed(is_batch)
        super().push()
        for anchor, _, _ in self._held.values():
            anchor.run_accumulated_hooks()


class End:
    """What the engine calls at the end of a pass. It alone holds this, and drops it when the pass fails."""

    def __init__(self, backward: Backward) -> None:
        self.backward = backward

    def __call__(self) -> None:
        with _runs(self):  # also where another thread of the engine's has collected
            self.backward.push()


_running = threading.local()  # .end: weak, so that a pass that failed takes what it collected along


@contextlib.contextmanager
def _runs(end: End) -> Iterator[None]:
    before = getattr(_running, "end", None)
    _running.end = weakref.ref(end)
    try:
        yield
    finally:
        _running.end = before


def running() -> Backward:
    """That of the pass which the engine runs on this thread."""
    reference = getattr(_running, "end", None)
    end = None if reference is None else reference()
    if end is None or end.backward.is_over:
        try:
            end = End(Backward())
            _running.end = weakref.ref(end)
            torch.autograd.Variable._execution_engine.queue_callback(end)
        except BaseException:  # whose traceback may keep it
            _running.end = None
            raise
    return end.backward


class FromServers(torch.autograd.Function):
    """Tensors from servers as what has a gradient; takes[i] gets that of the i-th, f32 in the CPU's memory.
    One node of the graph for all of a step: each costs its time."""

    @staticmethod
    def forward(  # type: ignore[override]  # torch: any
        ctx: Any,
        made: list[torch.Tensor],
        takes: list[Callable[[np.ndarray], None]],
        *anchors: Optional[Anchor],
    ) -> tuple[torch.Tensor, ...]:
        ctx.takes = takes
        ctx.set_materialize_grads(False)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *gradients: Optional[torch.Tensor]) -> tuple[None, ...]:  # type: ignore[override]
        if torch.is_grad_enabled():
            raise RuntimeError(
                "gradients of gradients (create_graph=True) do not go through what lives at a Millrace "
                "server: "
                "take them with respect to the tensors that came from there, by torch.autograd.grad()"
            )
        # Copies: until the end of the pass others may change a gradient, as by a hook of a parameter whose
        # .grad it has become.
        for gradient, take in zip(gradients, ctx.takes):
            if gradient is None:
                continue
            if gradient.device.type != "cpu":
                running().stage(gradient, take)
            else:
                take(np.array(gradient.detach().to(torch.float32).numpy(), order="C"))
        return (None, None) + (None,) * len(gradients)


def ddp_share() -> float:
    """What a gradient counts in this forward: torch's DistributedDataParallel averages those of its
    processes, and a server adds them up."""
    distributed, parallel = torch.distributed, torch.nn.parallel
    if not distributed.is_available() or not distributed.is_initialized():
        return 1.0
    ddp: Any = parallel.DistributedDataParallel
    active = ddp._get_active_ddp_module()
    return 1.0 if active is None else 1.0 / distributed.get_world_size(active.process_group)


def _shared(take: Callable[[np.ndarray], None], share: float) -> Callable[[np.ndarray], None]:
    return take if share == 1 else lambda gradient: take(gradient * np.float32(share))


def tensors(
    values: Sequence[np.ndarray],
    places: Sequence[torch.Tensor],
    takes: Sequence[Optional[Callable[[np.ndarray], None]]],
    anchors: Sequence[Optional[Anchor]],
) -> list[torch.Tensor]:
    """The values as tensors of their places' devices and types. takes: what gets their gradients; None where
    there is nothing to learn."""
    made = [placed(torch.from_numpy(one), place) for one, place in zip(values, places)]
    share = ddp_share()
    learning = {i: _shared(take, share) for i, take in enumerate(takes) if take is not None}
    if learning:
        its = [made[i] for i in learning], list(learning.values()), *(anchors[i] for i in learning)
        for i, tensor in zip(learning, FromServers.apply(*its)):
            made[i] = tensor
    return made
