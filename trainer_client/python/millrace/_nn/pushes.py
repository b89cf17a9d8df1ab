"""Gradients on their way to the servers.

Those for a table go in one call, so that its optimizer runs once, and so do those for a batch. All calls
leave at once and without waiting; who needs them applied waits later.
"""
from __future__ import annotations

import atexit
import collections
import functools
import sys
import threading
import weakref
from typing import Any, Callable, NamedTuple, Optional

import numpy as np
import torch

from .._base import arrays, steps
from .._base.library import lib
from ..errors import ClientClosed, Error


class Rows(NamedTuple):
    """Gradients of bags: keys u64 [n], offsets u32 [bags + 1], weights f32 [n] or None, gradients f32 [bags,
    dim].

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

    def add(
        self, feature: int, wait: Callable[[], Any], is_taken: Callable[[], bool] = lambda: False
    ) -> None:
        """`wait` returns when the push has ended, or raises its error. is_taken: whether somebody has waited
        for it."""
        with self._lock:
            queue = self._of[feature]
            while queue and queue[0][1]():
                queue.popleft()
            queue.append((wait, is_taken))

    def _oldest(self, feature: int, leave: int) -> Optional[tuple]:
        with self._lock:
            queue = self._of[feature]
            return queue[0] if len(queue) > leave else None

    def _remove(self, feature: int, push: tuple) -> bool:
        """Whether it was still there: of several threads that wait for it one removes it."""
        with self._lock:
            queue = self._of[feature]
            if not queue or queue[0] is not push:
                return False
            queue.popleft()
            return True

    def _tell(self, error: Any) -> bool:
        """Whether nobody has been told of this error: a push may be of several features."""
        with self._lock:
            told, error._is_told = getattr(error, "_is_told", False), True
        return not told

    def wait(self, feature: int, leave: int = 0) -> None:
        """Waits until at most `leave` pushes of the feature are in flight. Raises the error of one that
        failed, once."""
        while len(self._of.get(feature, ())) > leave:
            push = self._oldest(feature, leave)
            if push is None:  # another thread has waited for it
                return
            try:
                push[0]()
            except Error as error:
                if self._remove(feature, push) and self._tell(error):
                    raise
            else:
                self._remove(feature, push)

    def flush(self) -> None:
        """Waits for all, then raises the first error."""
        failed: Optional[Error] = None
        for feature in list(self._of):
            while self._oldest(feature, 0) is not None:
                try:
                    self.wait(feature)
                except Error as error:
                    failed = failed or error
        if failed is not None:
            raise failed


_pushes: "weakref.WeakKeyDictionary[Any, Pushes]" = weakref.WeakKeyDictionary()
_pushes_lock = threading.Lock()


def pushes_of(client: Any) -> Pushes:
    """The pushes of this client, which waits for them before it closes."""
    known = _pushes.get(client)
    if known is not None:
        return known
    with _pushes_lock:
        known = _pushes.get(client)
        if known is None:
            known = _pushes[client] = Pushes()
            client.on_close(known.flush)
        return known


@atexit.register
def _end() -> None:
    """A program that ends without a look at its last pushes gets them out, and ends with an error if one
    failed."""
    for pushes in list(_pushes.values()):
        try:
            pushes.flush()
        except ClientClosed:  # by an exception, which was reported
            pass
        except Error as error:
            print(f"millrace: a push of gradients failed: {error}", file=sys.stderr)
            lib.mr_fail_at_exit()


class Gradients:
    """What is to be pushed together."""

    def __init__(self) -> None:
        self._rows: dict[tuple, tuple[Any, list[Rows], dict]] = {}
        self._variables: dict[tuple, tuple[Any, np.ndarray, dict]] = {}
        self._batches: dict[
            tuple, tuple[Any, dict, dict]
        ] = {}  # (client, batch id): batch, {feature id: ...}, options

    def add_rows(self, table: Any, rows: Rows, options: dict) -> None:
        """Gradients of a table's bags."""
        key = (table.client, table.id, *sorted(options.items()))
        self._rows.setdefault(key, (table, [], options))[1].append(rows)

    def add_variable(self, variable: Any, gradient: np.ndarray, options: dict) -> None:
        """The gradient of a variable, its shape."""
        key = (variable.client, variable.id, *sorted(options.items()))
        before = self._variables.get(key)
        self._variables[key] = variable, gradient if before is None else before[1] + gradient, options

    def add_batch(self, batch: Any, feature: Any, gradient: np.ndarray, options: dict) -> None:
        """The gradient of a feature in a batch. All go in one call, so its options are those of the first."""
        _, gradients, first = self._batches.setdefault((feature.client, batch.id), (batch, {}, options))
        for name in ("learning_rate", "step"):
            if options.get(name) != first.get(name):
                raise ValueError(
                    f"batch {batch.id} has {name}={first.get(name)} and, for {feature.name!r}, "
                    f"{name}={options.get(name)}: "
                    "a batch is pushed in one call, so give all its modules the same "
                    "(millrace.nn.set_call_options)"
                )
        before = gradients.get(feature.id)
        gradients[feature.id] = feature, gradient if before is None else before[1] + gradient

    def push(self) -> None:
        """Sends it all."""
        calls: dict[Any, list[Callable[..., None]]] = collections.defaultdict(list)  # by client
        tables: dict[tuple, dict[int, tuple[Any, Rows, dict]]] = collections.defaultdict(dict)
        for table, parts, options in self._rows.values():
            options = steps.named(table.client, [table], options)
            push = tables[(table.client, *sorted(options.items()))]
            if table.id in push:  # by a step that a module named itself
                push = tables[(table.client, table.id, *sorted(options.items()))]
            push[table.id] = table, together(parts), options
        for (client, *_), its_tables in tables.items():
            calls[client].append(functools.partial(_push_tables, client, list(its_tables.values())))
        for variable, gradient, options in self._variables.values():
            calls[variable.client].append(functools.partial(_push_variable, variable, gradient, options))
        for (client, _), (batch, gradients, options) in self._batches.items():
            calls[client].append(
                functools.partial(_push_batch, client, batch, list(gradients.values()), options)
            )
        for its in calls.values():
            for call in its:
                call(more=call is not its[-1])


def _in_flight(feature: Any, future: Any) -> None:
    pushes_of(feature.client).add(feature.id, future.result, future._is_taken)


def _push_tables(client: Any, tables: list[tuple[Any, Rows, dict]], more: bool) -> None:
    """Of tables with the same options."""
    future = client.push_gradients_tables_async(
        [(table, rows.keys, rows.offsets, rows.gradients, rows.weights) for table, rows, _ in tables],
        **{**tables[0][2], "more": more},
    )
    for table, _, _ in tables:
        _in_flight(table, future)


def _push_variable(variable: Any, gradient: np.ndarray, options: dict, more: bool) -> None:
    _in_flight(variable, variable.push_gradient_async(gradient, **{**options, "more": more}))


def _push_batch(client: Any, batch: Any, gradients: list, options: dict, more: bool) -> None:
    options = {**steps.named(client, [feature for feature, _ in gradients], options), "more": more}
    push = getattr(batch, "push_async", None)
    if push is not None:  # one that counts what becomes of it
        wait, is_taken = push(client, gradients, **options)
    else:
        future = client.push_gradients_batch_async(batch.id, gradients, **options)
        wait, is_taken = future.result, future._is_taken
    for feature, _ in gradients:
        pushes_of(client).add(feature.id, wait, is_taken)


def _offsets(rows: Rows) -> np.ndarray:
    return np.arange(len(rows.keys) + 1) if rows.offsets is None else rows.offsets.astype(np.int64)


def _weights(rows: Rows) -> np.ndarray:
    return np.ones(len(rows.keys), np.float32) if rows.weights is None else rows.weights


def together(parts: list[Rows]) -> Rows:
    """Several sets of bags as one: so the optimizer runs once for a key, as torch's would."""
    if len(parts) == 1:
        return parts[0]
    keys = np.concatenate([part.keys for part in parts])
    gradients = np.concatenate([part.gradients for part in parts])
    if all(part.offsets is None for part in parts):
        return Rows(keys, None, None, gradients)
    begins = np.cumsum([0] + [len(part.keys) for part in parts])
    ends = [_offsets(part)[1:] + begin for part, begin in zip(parts, begins)]
    weights = (
        None
        if all(part.weights is None for part in parts)
        else np.concatenate([_weights(part) for part in parts])
    )
    return Rows(keys, np.concatenate([[0], *ends]).astype(np.uint32), weights, gradients)


def _spread(table: Any, rows: Rows) -> np.ndarray:
    """Each key's gradient: its bag's, over the bag's divisor, times its weight."""
    if rows.offsets is None:
        return rows.gradients
    return arrays.gradients_of_keys(rows.gradients, rows.offsets, rows.weights, table.pooling)


def by_frequency(table: Any, rows: Rows) -> Rows:
    """Each key's gradient over how often the key is there (scale_grad_by_freq of torch's modules)."""
    _, place, counts = np.unique(rows.keys, return_inverse=True, return_counts=True)
    return Rows(rows.keys, None, None, _spread(table, rows) / counts[place].astype(np.float32)[:, None])


def by_key(table: Any, parts: list[Rows]) -> tuple[np.ndarray, np.ndarray]:
    """Keys, sorted and each once, and the sums of their gradients."""
    keys, place = np.unique(np.concatenate([part.keys for part in parts]), return_inverse=True)
    spread = torch.from_numpy(
        np.concatenate([_spread(table, part) for part in parts]).astype(np.float32, copy=False)
    )
    return (
        keys,
        spread.new_zeros(len(keys), spread.shape[1]).index_add(0, torch.from_numpy(place), spread).numpy(),
    )
