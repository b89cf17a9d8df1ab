"""Calls about more rows than one message carries, divided into several.

A lookup is divided in its own order. A push is divided by key, so that the optimizer runs once for each key
as it would in one call; gradients of bags that share keys become those of their keys first.
"""
from __future__ import annotations

from typing import Any, Callable, Iterator, NamedTuple, Optional

import numpy as np

from . import arrays

#: for each core: a server takes messages of transport.message_mib_max, 16 MiB unless it is configured
#: otherwise
PIECE_BYTES = 8 << 20


class TableRows(NamedTuple):
    """What one table has in a call: keys u64 [n], offsets u32 [bags + 1] from 0 to n, weights f32 [n], and of
    a push the gradients f32 [n or bags, dim]."""

    keys: np.ndarray
    offsets: Optional[np.ndarray] = None
    weights: Optional[np.ndarray] = None
    gradients: Optional[np.ndarray] = None

    def nbytes(self, dim: int) -> int:
        """About how long the messages are that have this."""
        return 8 * self.keys.size + 4 * dim * self.row_count

    @property
    def is_well_formed(self) -> bool:
        """Whether offsets begin at 0 and do not fall."""
        offsets = self.offsets
        return offsets is None or (offsets[0] == 0 and bool((offsets[1:] >= offsets[:-1]).all()))

    @property
    def row_count(self) -> int:
        """How many rows are looked up or pushed."""
        return self.keys.size if self.offsets is None else self.offsets.size - 1


def limit_bytes(client: Any) -> int:
    """How much one call may carry, shared out among the server's cores by the keys' hash."""
    return PIECE_BYTES * client.core_count


def _part(rows: TableRows, first: int, end: int) -> TableRows:
    """Keys or bags [first, end)."""
    gradients = None if rows.gradients is None else rows.gradients[first:end]
    if rows.offsets is None:
        return TableRows(rows.keys[first:end], None, None, gradients)
    begin, stop = int(rows.offsets[first]), int(rows.offsets[end])
    offsets = np.ascontiguousarray(rows.offsets[first : end + 1] - rows.offsets[first])
    return TableRows(
        rows.keys[begin:stop], offsets, None if rows.weights is None else rows.weights[begin:stop], gradients
    )


def _cut(rows: TableRows, places: np.ndarray, dim: int, limit: int) -> Iterator[TableRows]:
    """Parts of at most `limit` bytes each, which begin at some of the places, from 0 to the number of
    rows."""
    begins = np.arange(rows.row_count + 1) if rows.offsets is None else rows.offsets.astype(np.int64)
    ends = 8 * begins[places] + 4 * dim * places  # the bytes before each place
    at = 0
    while at < len(places) - 1:
        next_at = max(at + 1, int(np.searchsorted(ends, ends[at] + limit, "right")) - 1)
        yield _part(rows, int(places[at]), int(places[next_at]))
        at = next_at


def of_lookup(rows: TableRows, dim: int, limit: int) -> list[TableRows]:
    """Parts whose answers make the whole one, one after the other."""
    return list(_cut(rows, np.arange(rows.row_count + 1), dim, limit))


def _by_key(rows: TableRows, pooling: str) -> TableRows:
    """The gradients of bags as those of their keys."""
    if rows.offsets is None:
        return rows
    assert rows.gradients is not None
    gradients = arrays.gradients_of_keys(rows.gradients, rows.offsets, rows.weights, pooling)
    return TableRows(rows.keys, None, None, gradients)


def of_push(rows: TableRows, dim: int, limit: int, pooling: str) -> list[TableRows]:
    """Parts that have no key in common. Gradients of a key that comes several times stay in their order."""
    assert rows.gradients is not None
    is_sorted = bool((rows.keys[1:] > rows.keys[:-1]).all())
    if is_sorted or np.unique(rows.keys).size == rows.keys.size:
        return list(_cut(rows, np.arange(rows.row_count + 1), dim, limit))
    rows = _by_key(rows, pooling)
    assert rows.gradients is not None
    order = np.argsort(rows.keys, kind="stable")
    keys = rows.keys[order]
    places = np.concatenate([[0], np.flatnonzero(keys[1:] != keys[:-1]) + 1, [keys.size]])
    return list(_cut(TableRows(keys, None, None, rows.gradients[order]), places, dim, limit))


def groups(parts: list[tuple[int, TableRows, int]], limit: int) -> list[list[tuple[int, TableRows]]]:
    """Parts of several tables, each with its table's place and dim, as calls of at most `limit` bytes; a
    table is in a call once."""
    made: list[list[tuple[int, TableRows]]] = []
    size = limit + 1
    for place, rows, dim in parts:
        if size + rows.nbytes(dim) > limit or made[-1][-1][0] == place:
            made.append([])
            size = 0
        made[-1].append((place, rows))
        size += rows.nbytes(dim)
    return made


def together(parts: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """The answers of a lookup's parts as one."""
    return np.concatenate(parts).reshape(shape)


class Calls(NamedTuple):
    """Calls in place of one that would be too large."""

    calls: list[Any]  #: of Call
    join: Callable[[list[Any]], Any]  #: makes the result of theirs, in this order
