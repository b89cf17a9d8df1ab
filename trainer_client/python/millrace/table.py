"""Tables: rows by key."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping

import numpy as np

from . import stored
from ._base import arrays, steps
from ._base.arrays import (
    F32_ARRAY,
    U32_ARRAY,
    U64_ARRAY,
    Array,
    Like,
    f32_pointer,
    rows_of,
    torch_of,
    u32_pointer,
    u64_pointer,
)
from ._base.connection import Call
from ._base.library import NULL, ffi, lib
from .feature import TableSpec
from .future import Future
from .pushed import Pushed
from .stored import Rows

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._base.options import CallOptions
    from .client import Client


def lookup_of(
    table: Table,
    keys: np.ndarray,
    offsets: np.ndarray | None,
    weights: np.ndarray | None,
    finish: Callable[[Any], Any],
) -> Call:
    """The lookup of rows, or with offsets of bags. u64 keys, u32 [bags + 1] offsets, f32 weights."""
    count, dim, key = keys.size, table.spec.dim, ffi.from_buffer(U64_ARRAY, keys)
    if offsets is None:
        return Call(lib.mr_lookup, (table.id, key, count), finish, True, nbytes=count * (8 + 4 * dim))
    bags, offset = offsets.size - 1, ffi.from_buffer(U32_ARRAY, offsets)
    weight = NULL if weights is None else ffi.from_buffer(F32_ARRAY, weights)
    of_bags, nbytes = (table.id, key, weight, offset, bags), 8 * count + 4 * dim * bags
    return Call(lib.mr_lookup_bags, of_bags, finish, True, nbytes=nbytes)


class Table:
    """A table on a node: rows of `dim` floats by 64-bit keys. Made by Client.table().

    Keys are whole numbers; negative ones count as the 64 bits that they are. Gradients and rows are float32.
    A call may be larger than a message: the library divides it then, and an `_async` one returns when all but
    its last parts have been sent. It has one deadline and one outcome; UnknownOutcome when a part of a push
    failed and others were applied.
    What lookups return is over the library's own memory, numpy's or torch's as the keys were. Each method has
    a twin that ends in `_async` and returns a Future. All take the keyword arguments of CallOptions.
    """

    def __init__(self, client: Client, id: int, spec: TableSpec) -> None:
        self.client, self.id, self.spec = client, id, spec

    @property
    def name(self) -> str:
        """As it was created."""
        return self.spec.name

    @property
    def dim(self) -> int:
        """Floats in a row."""
        return self.spec.dim

    @property
    def pooling(self) -> str:
        """How bags are reduced: "sum", "mean", "sqrtn" or "none"."""
        return self.spec.pooling

    def __repr__(self) -> str:
        of = f"{self.client.server}: {self.id}, dim {self.dim}, {self.spec.optimizer}"
        return f"<millrace.Table {self.name!r} of {of}>"

    # ---- rows by key ----

    def _lookup(self, keys: Like) -> Call:
        array, torch = arrays.keys(keys), torch_of(keys)
        shape = (*array.shape, self.spec.dim)
        return lookup_of(self, array, None, None, lambda reply: rows_of(reply, torch, shape))

    def lookup(self, keys: Like, **options: Unpack[CallOptions]) -> Array:
        """The rows of `keys`, as float32 [*keys.shape, dim]; [n, dim] for n keys. Keys that have no row get
        one, unless the table does not admit them or the node is frozen. With a dense optimizer they are as
        the `step` that the call names finds them, else as their last gradient has left them."""
        return self.client._run(self._lookup(keys), options)

    def lookup_async(self, keys: Like, **options: Unpack[CallOptions]) -> Future:
        """lookup() as a Future."""
        return self.client._start(self._lookup(keys), options)

    def _push_gradients(self, keys: Like, gradients: Like) -> Call:
        array, dim = arrays.keys(keys), self.spec.dim
        count = array.size
        values = arrays.gradients(gradients, count, "key", self.name, dim)
        return Call(
            lib.mr_push_gradients,
            (self.id, u64_pointer(array), count, dim, f32_pointer(values)),
            changes=((self.id, array),),
            nbytes=count * (8 + 4 * dim),
        )

    def push_gradients(self, keys: Like, gradients: Like, **options: Unpack[CallOptions]) -> None:
        """Runs the optimizer on these rows. gradients: [n, dim] for n keys. Gradients of a key that is there
        several times are summed first. Applied at most once; UnknownOutcome when the server was lost before
        it answered, unless the client has `replay`. ValueError: the gradients' shape."""
        self.client._run(self._push_gradients(keys, gradients), options)

    def push_gradients_async(self, keys: Like, gradients: Like, **options: Unpack[CallOptions]) -> Future:
        """push_gradients() as a Future."""
        return self.client._start(self._push_gradients(keys, gradients), options)

    # ---- rows as they are stored ----

    def _set_rows(self, keys: np.ndarray, records: np.ndarray, has_state: bool) -> Call:
        return Call(
            lib.mr_set_rows,
            (self.id, u64_pointer(keys), keys.size, records.shape[1], has_state, f32_pointer(records)),
            changes=((self.id, keys),),
            nbytes=keys.nbytes + records.nbytes,
        )

    def set_rows(
        self,
        keys: Like,
        rows: Like,
        state: Mapping[str, Like] | None = None,
        *,
        progress: bool | None = None,
        **options: Unpack[CallOptions],
    ) -> Pushed:
        """Sets rows, whatever the table's optimizer. rows: [*keys.shape, dim], of any float type.

        state: the optimizer's, by name, as rows() returns it; a part that is one number for each row may be
            one number for all, and a dense optimizer's last_step may be left out. None: that of new rows.
        progress: show a bar on standard error, if there is more than one call to make; None: on a terminal
            and in a notebook.

        Keys without a row get one, unless the table is full or the node frozen. Of a key that comes several
        times the last row counts. Rows that hold NaN or Inf are left out. Goes in pieces of some MiB, with
        little memory: `rows` may be a mapped file. Each piece is a push: applied in the order of pushes that
        were waited for, and at most once. With a dense optimizer rows are as the `step` that the call names
        is to find them, else the next step. Returns what became of the rows: `applied` is as large as
        `sent` if all are set. ValueError: shapes, or names in `state`.
        """
        total, array = options.pop("pushed", None) or Pushed(), arrays.keys(keys)
        call, state = steps.to_set(self, state, options)
        source, flat = stored.Source(self.spec, array.shape, rows, state), array.reshape(-1)
        results: dict[int, Pushed] = {}

        def start(first: int, end: int) -> Future:
            results[first] = Pushed()
            made = self._set_rows(flat[first:end], source.records(first, end), state is not None)
            return self.client._start(made, {**call, "pushed": results[first]})

        def take(first: int, end: int, _: None) -> None:
            total._add(results.pop(first))

        total._clear()
        pieces = stored.Pieces(flat.size, source.floats)
        # Calls in flight may be served in any order.
        pieces.run(
            f"set {self.name}",
            start,
            take,
            progress,
            1 if pieces.count > 1 and stored.repeats(flat) else None,
        )
        if state is not None:
            steps.restored(self, call)
        return total

    def set_rows_async(
        self, keys: Like, rows: Like, state: Mapping[str, Like] | None = None, **options: Unpack[CallOptions]
    ) -> Future:
        """set_rows() as a Future, in one call."""
        array, (call, state) = arrays.keys(keys), steps.to_set(self, state, options)
        records = stored.Source(self.spec, array.shape, rows, state).records(0, array.size)
        future = self.client._start(self._set_rows(array, records, state is not None), call)
        if state is not None:
            steps.restored(self, call)
        return future

    def _rows(self, keys: np.ndarray, state: bool) -> Call:
        return Call(
            lib.mr_get_rows,
            (self.id, u64_pointer(keys), keys.size, state),
            lambda r: rows_of(r, None),
            True,
            nbytes=keys.size * (8 + 4 * stored.record_floats(self.spec, state)),
        )

    def rows(
        self, keys: Like, state: bool = False, *, progress: bool | None = None, **options: Unpack[CallOptions]
    ) -> Rows:
        """The rows of `keys` as they are stored, with state=True also the optimizer's state. Makes no rows
        and leaves no trace. A row and its state are of the same moment: with a dense optimizer, as the
        `step` that the call names finds them, else the next step. Goes in pieces, as set_rows()."""
        array, torch = arrays.keys(keys), torch_of(keys)
        floats, flat = stored.record_floats(self.spec, state) + 1, array.reshape(-1)
        call = steps.stored(self, options)
        records = np.empty((flat.size, floats), np.float32)

        def start(first: int, end: int) -> Future:
            return self.client._start(self._rows(flat[first:end], state), call)

        def take(first: int, end: int, piece: np.ndarray) -> None:
            stored.check_width(piece, self.spec, floats)
            records[first:end] = piece

        stored.Pieces(flat.size, floats).run(f"read {self.name}", start, take, progress)
        return stored.rows_in(records, self.spec, state, array.shape, torch)

    def rows_async(self, keys: Like, state: bool = False, **options: Unpack[CallOptions]) -> Future:
        """rows() as a Future, in one call."""
        array, torch = arrays.keys(keys), torch_of(keys)
        call = self._rows(array, state)
        return self.client._start(
            call._replace(
                finish=lambda r: stored.rows_in(rows_of(r, None), self.spec, state, array.shape, torch)
            ),
            steps.stored(self, options),
        )

    # ---- bags ----

    def _lookup_bags(self, keys: Like, offsets: Like, weights: Like | None, include_last: bool) -> Call:
        array, torch = arrays.keys(keys), torch_of(keys)
        starts = arrays.offsets(offsets, array.size, include_last)
        factors = arrays.weights(weights, array.size)
        return lookup_of(self, array, starts, factors, lambda reply: rows_of(reply, torch))

    def lookup_bags(
        self,
        keys: Like,
        offsets: Like,
        weights: Like | None = None,
        include_last_offset: bool = True,
        **options: Unpack[CallOptions],
    ) -> Array:
        """Bags of rows, reduced on the server as the table's pooling says, as float32 [bags, dim].

        keys: [n]. offsets: [bags + 1]; bag b is keys[offsets[b]:offsets[b + 1]]. With
        include_last_offset=False, torch's default, the last one is left out. weights: [n], of each key,
        finite: sum(w * x) over 1 (sum), sum(w) (mean) or sqrt(sum(w**2)) (sqrtn). ValueError: shapes, or
        offsets that do not fit the keys.
        """
        return self.client._run(self._lookup_bags(keys, offsets, weights, include_last_offset), options)

    def lookup_bags_async(
        self,
        keys: Like,
        offsets: Like,
        weights: Like | None = None,
        include_last_offset: bool = True,
        **options: Unpack[CallOptions],
    ) -> Future:
        """lookup_bags() as a Future."""
        return self.client._start(self._lookup_bags(keys, offsets, weights, include_last_offset), options)

    def _push_bags(
        self, keys: Like, offsets: Like, gradients: Like, weights: Like | None, include_last: bool
    ) -> Call:
        array, dim = arrays.keys(keys), self.spec.dim
        starts = arrays.offsets(offsets, array.size, include_last)
        factors, bags = arrays.weights(weights, array.size), starts.size - 1
        values = arrays.gradients(gradients, bags, "bag", self.name, dim)
        return Call(
            lib.mr_push_gradients_bags,
            (
                self.id,
                u64_pointer(array),
                f32_pointer(factors),
                u32_pointer(starts),
                bags,
                dim,
                f32_pointer(values),
            ),
            changes=((self.id, array),),
            nbytes=8 * array.size + 4 * dim * bags,
        )

    def push_gradients_bags(
        self,
        keys: Like,
        offsets: Like,
        gradients: Like,
        weights: Like | None = None,
        include_last_offset: bool = True,
        **options: Unpack[CallOptions],
    ) -> None:
        """push_gradients() for bags: gradients [bags, dim] are those of the reduced values, keys, offsets and
        weights those of the lookup. ValueError: shapes, or offsets that do not fit the keys."""
        self.client._run(self._push_bags(keys, offsets, gradients, weights, include_last_offset), options)

    def push_gradients_bags_async(
        self,
        keys: Like,
        offsets: Like,
        gradients: Like,
        weights: Like | None = None,
        include_last_offset: bool = True,
        **options: Unpack[CallOptions],
    ) -> Future:
        """push_gradients_bags() as a Future."""
        return self.client._start(
            self._push_bags(keys, offsets, gradients, weights, include_last_offset), options
        )
