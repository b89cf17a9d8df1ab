"""Rows as they are stored: what Table.rows() returns, and how rows and states become what the library takes.

A stored row is one record of float32: the values, then the parts of the optimizer's state
(docs/optimizers.md, "Rows that are set"). A part is as wide as the row, or a single number; numbers of
updates are uint32, whose bits stand in the place of a float.
"""
from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import numpy as np

from ._base import arrays
from ._base.arrays import Array, Like
from ._base.library import counted, lib
from .errors import Error
from .feature import TableSpec
from .future import Future
from .optim import Optimizer
from .progress import Bar
from .pushed import Pushed

PIECE_BYTES = 4 << 20  #: of records in a call, when many are set or read
PIECES_IN_FLIGHT = 4


@dataclass(frozen=True)
class Rows:
    """Rows as they are stored, of keys of any shape; numpy's, or torch's as the keys were."""

    values: Array  #: float32 [*keys.shape, dim]; of a key that has no row what a new one would have
    #: by name: [*keys.shape, dim], or [*keys.shape] where a row has one number; None: not asked for
    state: dict[str, Array] | None
    is_stored: Array  #: bool [*keys.shape]: whether the key has a row

    def __repr__(self) -> str:
        stored, of = int(self.is_stored.sum()), tuple(self.values.shape)
        state = "" if self.state is None else ", " + ", ".join(self.state)
        return f"<millrace.Rows {of}, {stored} stored{state}>"


class RowsNotSet(Error):
    """Rows were not set: they hold NaN or Inf, or the table is full, or the node frozen."""

    status = "INVALID_ARGUMENT"


class Part(NamedTuple):
    """A part of the state of each row."""

    name: str
    floats: int
    is_wide: bool  # as wide as the row
    is_count: bool = False  # a uint32


def parts_of(optimizer: Optimizer, dim: int) -> list[Part]:
    """The state of an optimizer's rows, in order."""
    number = optimizer.number
    wide = {
        lib.MR_OPT_MOMENTUM: ["velocity"],
        lib.MR_OPT_ADAGRAD: ["sum"],
        lib.MR_OPT_ADAM: ["m", "v"],
        lib.MR_OPT_ADAMW: ["m", "v"],
        lib.MR_OPT_FTRL: ["z", "n"],
        lib.MR_OPT_GROUP_FTRL: ["z", "n"],
    }.get(number, [])
    parts = [Part(name, dim, True) for name in wide]
    if number == lib.MR_OPT_MOMENTUM and getattr(optimizer, "dampening") > 0:
        parts.append(Part("was_updated", 1, False))
    elif number == lib.MR_OPT_ROWWISE_ADAGRAD:
        parts.append(Part("sum", 1, False))
    elif number in (lib.MR_OPT_ADAM, lib.MR_OPT_ADAMW):
        parts.append(Part("step", 1, False, True))
    elif number in (lib.MR_OPT_FTRL, lib.MR_OPT_GROUP_FTRL):
        parts.append(Part("rate", 1, False))
    if getattr(optimizer, "dense", False):
        parts.append(Part("last_step", 1, False, True))
    return parts


def record_floats(spec: TableSpec, has_state: bool) -> int:
    """Floats of a record: the values, and with has_state the state."""
    return spec.dim + (sum(part.floats for part in parts_of(spec.optimizer, spec.dim)) if has_state else 0)


# ---- many rows, in several calls ----


class Pieces:
    """`count` records of so many floats, in calls of some MiB."""

    def __init__(self, count: int, floats: int) -> None:
        self._bytes, size = 4 * floats, max(1, PIECE_BYTES // (4 * floats))
        self._pieces = [(first, min(first + size, count)) for first in range(0, count, size)]
        self.count = len(self._pieces)

    def run(
        self,
        what: str,
        start: Callable[[int, int], Future],
        take: Callable[[int, int, Any], None],
        progress: bool | None,
        in_flight: int | None = None,
    ) -> None:
        """start(first, end) makes each call, some ahead of take(first, end, result), which gets their results
        in order. When one raises nothing is left in flight. `what`: of the bar that shows where it is."""
        ahead: deque[tuple[tuple[int, int], Future]] = deque()
        with Bar(what, progress if self.count > 1 else False) as bar:

            def take_first() -> None:
                (first, end), future = ahead[0]
                take(first, end, future.result())
                ahead.popleft()
                bar.show(end * self._bytes, self._pieces[-1][1] * self._bytes)

            try:
                for piece in self._pieces:
                    ahead.append((piece, start(*piece)))
                    if len(ahead) >= (in_flight or PIECES_IN_FLIGHT):
                        take_first()
                while ahead:
                    take_first()
            finally:
                for _, future in ahead:
                    _end(future)


def _end(future: Future) -> None:
    """Waits for a call whose outcome nobody wants any more."""
    try:
        future.result()
    except Error:
        pass


def repeats(keys: np.ndarray) -> bool:
    """Whether a key comes several times."""
    return not bool((keys[1:] > keys[:-1]).all()) and np.unique(keys).size < keys.size


# ---- to the server ----


def _sliceable(what: str, value: Any, shape: tuple[int, ...], count: int) -> Any:
    """The value as [count, ...], not copied where it need not be: it may be a file that is mapped."""
    array = value.detach() if arrays.torch_of(value) is not None else np.asarray(value)
    if tuple(array.shape) == shape or (tuple(array.shape) == (count, *shape[-1:]) and len(shape) > 1):
        return array.reshape(count, -1)
    raise ValueError(
        f"{what} have the shape {list(array.shape)}; for {counted(count, 'key')} it is {list(shape)}"
    )


def _counts(what: str, array: np.ndarray) -> np.ndarray:
    counts = array.astype(np.uint32, casting="unsafe", copy=False)
    if array.dtype.kind not in "iuf" or (counts != array).any():
        raise ValueError(f"{what} are whole numbers from 0 to {0xFFFFFFFF}")
    return counts.view(np.float32)


class Source:
    """Rows to be set, and their states, which become records piece by piece."""

    def __init__(
        self, spec: TableSpec, shape: tuple[int, ...], rows: Like, state: Mapping[str, Like] | None
    ) -> None:
        count = int(np.prod(shape))
        self._dim, self._rows = spec.dim, _sliceable("rows", rows, (*shape, spec.dim), count)
        self._parts: list[tuple[Part, Any]] = []
        self.floats = record_floats(spec, state is not None)
        if state is None:
            return
        parts = parts_of(spec.optimizer, spec.dim)
        if set(state) != {part.name for part in parts}:
            wanted = ", ".join(part.name for part in parts) or "none"
            raise ValueError(
                f"state has {', '.join(map(str, state)) or 'nothing'}; that of {spec.optimizer} has {wanted}"
            )
        for part in parts:
            value, wide = state[part.name], (spec.dim,) if part.is_wide else ()
            if not part.is_wide and np.ndim(value) == 0:
                value = np.broadcast_to(np.asarray(value), shape)  # the same for all rows
            self._parts.append((part, _sliceable(f"state {part.name!r}", value, (*shape, *wide), count)))

    def records(self, first: int, end: int) -> np.ndarray:
        """float32 [end - first, floats]"""
        rows = arrays.floats(self._rows[first:end])
        if not self._parts:
            return rows
        records = np.empty((end - first, self.floats), np.float32)
        records[:, : self._dim] = rows
        at = self._dim
        for part, value in self._parts:
            piece = arrays.to_numpy(value[first:end])
            records[:, at : at + part.floats] = (
                _counts(f"state {part.name!r}", piece) if part.is_count else piece
            )
            at += part.floats
        return records


def check_set(table: str, pushed: Pushed) -> None:
    """RowsNotSet unless all rows were set."""
    if pushed.applied == pushed.sent or not pushed.is_known:
        return
    causes = [
        f"{count} {why}"
        for count, why in (
            (pushed.not_finite, "hold NaN or Inf"),
            (pushed.refused, "have no room: raise the table's capacity or the node's memory"),
            (pushed.without_row, "are new, and the node is frozen"),
        )
        if count
    ]
    raise RowsNotSet(f"table {table!r}: of {pushed.sent} rows {'; '.join(causes)}")


# ---- from the server ----


def check_width(records: np.ndarray, spec: TableSpec, floats: int) -> None:
    """ValueError: the server's rows are not as this package knows them."""
    if records.shape[1] != floats:
        raise ValueError(
            f"table {spec.name!r}: the server's rows have {records.shape[1] - 1} floats, not {floats - 1}: "
            "it is of another version"
        )


def rows_in(records: np.ndarray, spec: TableSpec, has_state: bool, shape: Sequence[int], torch: Any) -> Rows:
    """records: float32 [n, record + 1], as the library returns them."""

    def shaped(array: np.ndarray, *more: int) -> Array:
        array = np.ascontiguousarray(array).reshape(*shape, *more)
        return array if torch is None else torch.from_numpy(array)

    check_width(records, spec, record_floats(spec, has_state) + 1)
    state: dict[str, Array] | None = {} if has_state else None
    at = spec.dim
    for part in parts_of(spec.optimizer, spec.dim) if has_state else ():
        values = np.ascontiguousarray(records[:, at : at + part.floats])
        if part.is_count:
            values = values.view(np.uint32)
            values = values if torch is None else values.astype(np.int64)  # torch 1 has no uint32
        state[part.name] = shaped(values, *([spec.dim] if part.is_wide else []))  # type: ignore[index]
        at += part.floats
    return Rows(shaped(records[:, : spec.dim], spec.dim), state, shaped(records[:, -1] != 0))
