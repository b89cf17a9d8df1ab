"""Tables: rows by key."""
from __future__ import annotations

from typing import TYPE_CHECKING

from ._base import arrays
from ._base.arrays import Array, Like, f32_pointer, rows_of, torch_of, u32_pointer, u64_pointer
from ._base.connection import Call
from ._base.library import counted, lib
from .feature import TableSpec
from .future import Future

if TYPE_CHECKING:
    from typing import Unpack

    from ._base.options import CallOptions
    from .client import Client


class Table:
    """A table on a node: rows of `dim` floats by 64-bit keys. Made by Client.table().

    Keys are whole numbers; negative ones count as the 64 bits that they are. Gradients and rows are float32.
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
        return f"<millrace.Table {self.name!r} of {self.client.server}: {self.id}, dim {self.dim}, {self.spec.optimizer}>"

    # ---- rows by key ----

    def _lookup(self, keys: Like) -> Call:
        array, torch = arrays.keys(keys), torch_of(keys)
        shape = (*array.shape, self.spec.dim)
        return Call(
            lib.mr_lookup,
            (self.id, u64_pointer(array), array.size),
            lambda reply: rows_of(reply, torch, shape),
            True,
        )

    def lookup(self, keys: Like, **options: Unpack[CallOptions]) -> Array:
        """The rows of `keys`, as float32 [*keys.shape, dim]; [n, dim] for n keys. Keys that have no row get
        one, unless the table does not admit them or the node is frozen."""
        return self.client._run(self._lookup(keys), options)

    def lookup_async(self, keys: Like, **options: Unpack[CallOptions]) -> Future:
        """lookup() as a Future."""
        return self.client._start(self._lookup(keys), options)

    def _push_gradients(self, keys: Like, gradients: Like) -> Call:
        array, values = arrays.keys(keys), arrays.floats(gradients)
        dim = self.spec.dim
        if values.size != array.size * dim or values.ndim == 0 or (values.size and values.shape[-1] != dim):
            raise ValueError(
                f"gradients have the shape {values.shape}; for {counted(array.size, 'key')} of {self.name!r} "
                f"they are [{array.size}, {dim}]"
            )
        return Call(
            lib.mr_push_gradients,
            (self.id, u64_pointer(array), array.size, dim, f32_pointer(values)),
            changes=((self.id, array),),
        )

    def push_gradients(self, keys: Like, gradients: Like, **options: Unpack[CallOptions]) -> None:
        """Runs the optimizer on these rows. gradients: [n, dim] for n keys. Gradients of a key that is there
        several times are summed first. Applied at most once; UnknownOutcome when the server was lost before
        it answered, unless the client has `replay`."""
        self.client._run(self._push_gradients(keys, gradients), options)

    def push_gradients_async(self, keys: Like, gradients: Like, **options: Unpack[CallOptions]) -> Future:
        """push_gradients() as a Future."""
        return self.client._start(self._push_gradients(keys, gradients), options)

    # ---- bags ----

    def _bags(self, keys: Like, offsets: Like, weights: Like | None, include_last: bool) -> tuple:
        """keys; keys, weights, offsets as pointers, and how many bags there are."""
        array = arrays.keys(keys)
        starts = arrays.offsets(offsets, array.size, include_last)
        factors = arrays.weights(weights, array.size)
        return array, u64_pointer(array), f32_pointer(factors), u32_pointer(starts), starts.size - 1

    def _lookup_bags(self, keys: Like, offsets: Like, weights: Like | None, include_last: bool) -> Call:
        _, key, weight, offset, bags = self._bags(keys, offsets, weights, include_last)
        torch = torch_of(keys)
        return Call(
            lib.mr_lookup_weighted_bags,
            (self.id, key, weight, offset, bags),
            lambda reply: rows_of(reply, torch),
            True,
        )

    def lookup_bags(
        self,
        keys: Like,
        offsets: Like,
        weights: Like | None = None,
        include_last_offset: bool = True,
        **options: Unpack[CallOptions],
    ) -> Array:
        """Bags of rows, reduced on the server as the table's pooling says, as float32 [bags, dim].

        offsets: [bags + 1]; bag b is keys[offsets[b]:offsets[b + 1]]. With include_last_offset=False, torch's
        default,
        the last one is left out. weights: of each key, finite: sum(w * x) over 1 (sum), sum(w) (mean) or
        sqrt(sum(w**2)) (sqrtn).
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
        array, key, weight, offset, bags = self._bags(keys, offsets, weights, include_last)
        values, dim = arrays.floats(gradients), self.spec.dim
        if values.size != bags * dim or values.ndim == 0 or (values.size and values.shape[-1] != dim):
            raise ValueError(
                f"gradients have the shape {values.shape}; for {counted(bags, 'bag')} of {self.name!r} "
                f"they are [{bags}, {dim}]"
            )
        return Call(
            lib.mr_push_gradients_weighted_bags,
            (self.id, key, weight, offset, bags, dim, f32_pointer(values)),
            changes=((self.id, array),),
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
        weights those of the lookup."""
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
