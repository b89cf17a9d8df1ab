"""Rows of several tables with one call."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Sequence, Tuple, Union

import numpy as np

from ._base import arrays
from ._base.arrays import F32_ARRAY, U32_ARRAY, U64_ARRAY, Array, Like, f32_pointer, torch_of
from ._base.connection import Call, Connection
from ._base.library import NULL, ffi, lib
from .future import Future
from .table import Table

if TYPE_CHECKING:
    from typing import Optional

    from typing_extensions import Unpack

    from ._base.options import CallOptions

_KEYS, _GRADIENTS = (ffi.typeof(name) for name in ("struct mr_table_keys[]", "struct mr_table_gradients[]"))

#: table, keys [n], offsets [bags + 1] or None (no bags), weights [n] or None; the last two may be left out
TableKeys = Union[
    Tuple[Table, Like],
    Tuple[Table, Like, "Optional[Like]"],
    Tuple[Table, Like, "Optional[Like]", "Optional[Like]"],
]
#: table, keys, gradients; or table, keys, offsets or None, gradients, and perhaps weights
TableGradients = Union[
    Tuple[Table, Like, Like],
    Tuple[Table, Like, "Optional[Like]", Like],
    Tuple[Table, Like, "Optional[Like]", Like, "Optional[Like]"],
]


def _arrays_of(table: Table, keys: Like, offsets: Like | None, weights: Like | None) -> tuple:
    """A TableKeys with arrays: u64 keys, u32 [bags + 1] offsets or None, f32 weights or None. ValueError:
    they do not fit."""
    array = arrays.keys(keys)
    if offsets is not None:
        return table, array, arrays.offsets(offsets, array.size, True), arrays.weights(weights, array.size)
    if weights is not None:
        raise ValueError(f"table {table.name!r}: weights without offsets; they are of bags")
    return table, array, None, None


def _struct_of(
    table: Table, keys: np.ndarray, offsets: np.ndarray | None, weights: np.ndarray | None
) -> tuple[tuple, tuple[int, ...], int]:
    """A struct mr_table_keys as a tuple, over these arrays' memory, the shape of its rows, and about how many
    bytes all of it takes in messages."""
    count, dim, key = keys.size, table.spec.dim, ffi.from_buffer(U64_ARRAY, keys)
    if offsets is None:
        return (table.id, count, key, NULL, NULL, 0), (*keys.shape, dim), count * (8 + 4 * dim)
    bags, offset = offsets.size - 1, ffi.from_buffer(U32_ARRAY, offsets)
    weight = NULL if weights is None else ffi.from_buffer(F32_ARRAY, weights)
    return (table.id, count, key, offset, weight, bags), (bags, dim), 8 * count + 4 * dim * bags


class TableCalls(Connection):
    """The part of millrace.Client that is about several tables at once."""

    def _lookup_arrays(self, tables: Sequence[tuple], kinds: Sequence[Any] = ()) -> Call:
        """tables: as _arrays_of() makes them. kinds: of results, torch or None for numpy's, as all are
        without."""
        made = [_struct_of(*table) for table in tables]
        structs, shapes = ffi.new(_KEYS, [struct for struct, _, _ in made]), [shape for _, shape, _ in made]

        def rows(reply: Any) -> list[Array]:
            found = arrays.all_rows_of(reply, shapes)
            for i, torch in enumerate(kinds):
                found[i] = found[i] if torch is None else torch.from_numpy(found[i])
            return found

        nbytes = sum(more for _, _, more in made)
        return Call(lib.mr_lookup_tables, (structs, len(tables)), rows, True, held=tables, nbytes=nbytes)

    def _lookup_tables(self, tables: Sequence[TableKeys]) -> Call:
        made = [_arrays_of(table, keys, *(*rest, None, None)[:2]) for table, keys, *rest in tables]
        return self._lookup_arrays(made, [torch_of(keys) for _, keys, *_ in tables])

    def lookup_tables(  # type: ignore[misc]
        self, tables: Sequence[TableKeys], **options: Unpack[CallOptions]
    ) -> List[Array]:
        """Rows and bags of several tables, in one call and one message to each core.

        tables: [(table, keys), (table, keys, offsets), (table, keys, offsets, weights), ...], as of
            Table.lookup() and Table.lookup_bags(). A table may be there several times.

        What those return, in this order. If it fails for one of them, it fails for all. ValueError: offsets
        or weights that do not fit the keys, or weights without offsets.
        """
        return self._run(self._lookup_tables(tables), options)

    def lookup_tables_async(  # type: ignore[misc]
        self, tables: Sequence[TableKeys], **options: Unpack[CallOptions]
    ) -> Future:
        """lookup_tables() as a Future."""
        return self._start(self._lookup_tables(tables), options)

    def _push_tables(self, tables: Sequence[TableGradients]) -> Call:
        made, held, changes, nbytes = [], [], [], 0
        for table, keys, *rest in tables:
            offsets, gradients, weights = (None, *rest, None) if len(rest) == 1 else (*rest, None)[:3]
            memory = _arrays_of(table, keys, offsets, weights)
            struct, _, more = _struct_of(*memory)
            count, what = (struct[1], "key") if offsets is None else (struct[5], "bag")
            dim = table.spec.dim
            values = arrays.gradients(gradients, count, what, table.name, dim)
            made.append((struct, dim, f32_pointer(values)))
            held.append((memory, values))
            changes.append((table.id, memory[1]))
            nbytes += more
        structs = ffi.new(_GRADIENTS, made)
        return Call(
            lib.mr_push_gradients_tables,
            (structs, len(tables)),
            held=held,
            changes=tuple(changes),
            nbytes=nbytes,
        )

    def push_gradients_tables(  # type: ignore[misc]
        self, tables: Sequence[TableGradients], **options: Unpack[CallOptions]
    ) -> None:
        """Runs the optimizers of several tables, in one call and one message to each core.

        tables: [(table, keys, gradients), (table, keys, offsets, gradients),
            (table, keys, offsets, gradients, weights), ...], as of Table.push_gradients() and
            Table.push_gradients_bags(). Each table is there once.

        Applied at most once; each core applies what a message has for it, or nothing of it. ValueError: as of
        lookup_tables(), or the shape of gradients.
        """
        self._run(self._push_tables(tables), options)

    def push_gradients_tables_async(  # type: ignore[misc]
        self, tables: Sequence[TableGradients], **options: Unpack[CallOptions]
    ) -> Future:
        """push_gradients_tables() as a Future."""
        return self._start(self._push_tables(tables), options)
