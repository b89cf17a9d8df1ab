"""Gradients on their way from torch's backward to the servers.

While the engine runs a backward pass, the gradients of what came from servers are collected. At its end each table's and each
batch's are pushed in one call, all calls at once and without waiting; who needs them applied waits later.
"""
from __future__ import annotations

import atexit
import collections
import sys
import threading
import weakref
from typing import Any, Callable, NamedTuple, Optional

import numpy as np
import torch

from .errors import ClientClosed, Error


class Rows(NamedTuple):
    """Gradients of bags: keys u64 [n], offsets u32 [bags + 1], weights f32 [n] or None, gradients f32 [bags, dim].

    offsets None: each key is a bag of its own.
    """
    keys: np.ndarray
    offsets: Optional[np.ndarray]
    weights: Optional[np.ndarray]
    gradients: np.ndarray


class Pushes:
    """The pushes of one client that nobody has waited for, by feature, oldest first. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[int, collections.deque] = collections.defaultdict(collections.deque)

    def add(self, feature: int, wait: Callable[[], Any]) -> None:
        """`wait` returns when the push is over, or raises what became of it."""
        with self._lock:
            self._of[feature].append(wait)

    def _take(self, feature: int, leave: int) -> Optional[Callable[[], Any]]:
        with self._lock:
            queue = self._of[feature]
            return queue.popleft() if len(queue) > leave else None

    def wait(self, feature: int, leave: int = 0) -> None:
        """Waits until at most `leave` pushes of the feature are under way. Raises the error of one that failed, once."""
        while (wait := self._take(feature, leave)) is not None:
            wait()

    def flush(self) -> None:
        """Waits for all. Raises the first error, behind the last of them."""
        failed: Optional[Error] = None
        for feature in list(self._of):
            while (wait := self._take(feature, 0)) is not None:
                try:
                    wait()
                except Error as error:
                    failed = failed or error
        if failed is not None:
            raise failed


_pushes: "weakref.WeakKeyDictionary[Any, Pushes]" = weakref.WeakKeyDictionary()
_pushes_lock = threading.Lock()


def pushes_of(client: Any) -> Pushes:
    """Those of this client. It is told to wait for them before it closes."""
    with _pushes_lock:
        known = _pushes.get(client)
        if known is None:
            known = _pushes[client] = Pushes()
            client.on_close(known.flush)
        return known


@atexit.register
def _end() -> None:
    """A program that ends without a look at its last pushes gets them out, and is told of those that failed."""
    for pushes in list(_pushes.values()):
        try:
            pushes.flush()
        except ClientClosed:  # by an exception, which has been told
            pass
        except Error as error:
            print(f"millrace: a push of gradients failed: {error}", file=sys.stderr)


class Backward:
    """What one backward pass has collected so far."""

    def __init__(self) -> None:
        self.is_over = False
        self._rows: dict[tuple, tuple[Any, list[Rows], dict]] = {}
        self._variables: dict[tuple, tuple[Any, np.ndarray, dict]] = {}
        self._batches: dict[tuple, tuple[Any, dict, dict]] = {}  # (client, batch id): batch, {feature id: ...}, options

    def add_rows(self, table: Any, rows: Rows, options: dict) -> None:
        """Gradients of a table's bags."""
        key = (table.client, table.id, *options.items())
        self._rows.setdefault(key, (table, [], options))[1].append(rows)

    def add_variable(self, variable: Any, gradient: np.ndarray, options: dict) -> None:
        """The gradient of a variable, its shape."""
        key = (variable.client, variable.id, *options.items())
        before = self._variables.get(key)
        self._variables[key] = variable, gradient if before is None else before[1] + gradient, options

    def add_batch(self, batch: Any, feature: Any, gradient: np.ndarray, options: dict) -> None:
        """The gradient of a feature in a batch."""
        gradients = self._batches.setdefault((feature.client, batch.id), (batch, {}, options))[1]
        before = gradients.get(feature.id)
        gradients[feature.id] = feature, gradient if before is None else before[1] + gradient

    def push(self) -> None:
        """Sends it all. The engine calls this at the end of the pass."""
        self.is_over = True
        left = len(self._rows) + len(self._variables) + len(self._batches)
        for table, parts, options in self._rows.values():
            left -= 1
            _push_rows(table, together(parts), {**options, "more": left > 0})
        for variable, gradient, options in self._variables.values():
            left -= 1
            future = variable.push_gradient_async(gradient, **options, more=left > 0)
            pushes_of(variable.client).add(variable.id, future.result)
        for (client, _), (batch, gradients, options) in self._batches.items():
            left -= 1
            _push_batch(client, batch, list(gradients.values()), {**options, "more": left > 0})


def _push_rows(table: Any, rows: Rows, options: dict) -> None:
    if rows.offsets is None:
        future = table.push_gradients_async(rows.keys, rows.gradients, **options)
    else:
        future = table.push_gradients_bags_async(rows.keys, rows.offsets, rows.gradients, weights=rows.weights, **options)
    pushes_of(table.client).add(table.id, future.result)


def _push_batch(client: Any, batch: Any, gradients: list, options: dict) -> None:
    push = getattr(batch, "push_async", None)
    if push is not None:  # one that counts what becomes of it
        wait = push(client, gradients, **options)
    else:
        wait = client.push_gradients_batch_async(batch.id, gradients, **options).result
    for feature, _ in gradients:
        pushes_of(client).add(feature.id, wait)


def _offsets(rows: Rows) -> np.ndarray:
    return np.arange(len(rows.keys) + 1) if rows.offsets is None else rows.offsets.astype(np.int64)


def _weights(rows: Rows) -> np.ndarray:
    return np.ones(len(rows.keys), np.float32) if rows.weights is None else rows.weights


def together(parts: list[Rows]) -> Rows:
    """Several sets of bags as one: so the optimizer runs once for a key, as torch's would."""
    if len(parts) == 1:
        return parts[0]
    keys, gradients = (np.concatenate(arrays) for arrays in zip(*((part.keys, part.gradients) for part in parts)))
    if all(part.offsets is None for part in parts):
        return Rows(keys, None, None, gradients)
    begins = np.cumsum([0] + [len(part.keys) for part in parts])
    ends = [_offsets(part)[1:] + begin for part, begin in zip(parts, begins)]
    weights = None if all(part.weights is None for part in parts) else np.concatenate([_weights(part) for part in parts])
    return Rows(keys, np.concatenate([[0], *ends]).astype(np.uint32), weights, gradients)


_running = threading.local()  # .backward: weak, so that a pass that failed takes what it collected along


def running() -> Backward:
    """That of the pass which the engine runs on this thread."""
    reference = getattr(_running, "backward", None)
    backward = None if reference is None else reference()
    if backward is None or backward.is_over:
        backward = Backward()
        torch.autograd.Variable._execution_engine.queue_callback(backward.push)
        _running.backward = weakref.ref(backward)
    return backward


class FromServer(torch.autograd.Function):
    """Values from a server as a tensor; `take` gets their gradient, f32 in the CPU's memory."""

    @staticmethod
    def forward(ctx, anchor: torch.Tensor, values: torch.Tensor, place: torch.Tensor, take) -> torch.Tensor:
        ctx.take = take
        return values.to(place.device, place.dtype) if values.dtype != place.dtype or values.device != place.device \
            else values.detach()

    @staticmethod
    def backward(ctx, gradient: torch.Tensor):
        if torch.is_grad_enabled():
            raise RuntimeError("gradients of gradients (create_graph=True) do not go through what lives at a Millrace server: "
                               "take them with respect to the tensors that came from there, by torch.autograd.grad()")
        ctx.take(gradient.detach().to("cpu", torch.float32).contiguous().numpy())
        return None, None, None, None


_anchor = torch.empty(0, requires_grad=True)  # so that torch makes a node for values that are nobody's parameter


def tensor(values: np.ndarray, place: torch.Tensor, take: Optional[Callable[[np.ndarray], None]]) -> torch.Tensor:
    """The values as a tensor of place's device and type. take: None if there is nothing to learn."""
    made = torch.from_numpy(values)
    if take is None:
        return made.to(place.device, place.dtype)
    return FromServer.apply(_anchor, made, place, take)
