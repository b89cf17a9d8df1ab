"""Batches: keys that are fed ahead, looked up by the batch's number, and applied exactly once."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Sequence, Tuple, Union

import numpy as np

from ._base import arrays
from ._base.arrays import Like, f32_pointer, rows_of, u32_pointer, u64_pointer
from ._base.connection import Call, Connection
from ._base.library import counted, ffi, free, lib
from ._base.options import whole
from ._base.structs import of_struct
from .future import Future
from .table import Table
from .variable import Variable

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._base.options import CallOptions

_U64_MAX, _U32_MAX = 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFF
Keys = Union[
    Tuple[Table, Like, Like], Tuple[Table, Like, Like, Like]
]  #: table, keys, offsets and perhaps weights


@dataclass(frozen=True)
class BatchState:
    """Which batches of a stream every core has applied: all sequence numbers below `watermark`, and some
    above it."""

    watermark: int
    bitmap: np.ndarray  #: u64: bit i of it all is number watermark + i

    def __contains__(self, number: int) -> bool:
        word, bit = divmod(number - self.watermark, 64)
        return word < 0 or (word < len(self.bitmap) and bool(int(self.bitmap[word]) >> bit & 1))


@dataclass(frozen=True)
class Stream:
    """What a node knows of a stream of batches."""

    stream: int
    plan: str  #: 48 hexadecimal digits; "": of no hub's plan; "unknown": from a checkpoint that does not tell
    differs: bool  #: cores have it for different plans
    applied: int  #: batches, of the core that has fewest
    twice: int  #: times that a core applied a batch again: 0, unless something is wrong
    used: int  #: of two streams the higher was used later


def _plan_text(words: Sequence[int]) -> str:
    if all(word == _U64_MAX for word in words):
        return "unknown"
    return "".join(f"{word:016x}" for word in words) if any(words) else ""


class BatchCalls(Connection):
    """The part of millrace.Client that is about batches."""

    def _feed(self, batch_id: int, tables: Sequence[Keys], samples: int, read_only: bool) -> Call:
        samples = whole("samples", samples, _U32_MAX)
        held: list[Any] = []
        structs = ffi.new("struct mr_batch_keys[]", len(tables))
        for struct, (table, keys, offsets, *weights) in zip(structs, tables):
            array = arrays.keys(keys)
            starts = arrays.offsets(offsets, array.size, True)
            bags = starts.size - 1
            if samples == 0 or bags % samples != 0:
                raise ValueError(
                    f"{counted(bags, 'bag')} of {table.name!r} for {counted(samples, 'sample')}: each sample "
                    "has as many"
                )
            factors = arrays.weights(weights[0] if weights else None, array.size)
            pointers = u64_pointer(array), u32_pointer(starts), f32_pointer(factors)
            held.append(pointers)
            struct.table, struct.samples, struct.slots = table.id, samples, bags // samples
            struct.keys, struct.offsets, struct.weights = pointers
        arguments = (whole("batch_id", batch_id, _U64_MAX), structs, len(tables), bool(read_only))
        return Call(lib.mr_feed_sample, arguments, held=held)

    def feed(  # type: ignore[misc]
        self,
        batch_id: int,
        tables: Sequence[Keys],
        samples: int,
        read_only: bool = False,
        **options: Unpack[CallOptions],
    ) -> None:
        """The server looks the rows of a batch up now and keeps them for lookup_batch(), as a hub does.

        tables: [(table, keys, offsets), ...] or (table, keys, offsets, weights). Bag (sample s, slot j) is
        keys[offsets[s * slots + j]:offsets[s * slots + j + 1]]; offsets: [samples * slots + 1]. read_only:
        makes no rows, and the batch is freed with its lookup. BatchCacheFull: feed again later. The same id
        again is fine. ValueError: shapes, or bags that are not as many for each sample.
        """
        self._run(self._feed(batch_id, tables, samples, read_only), options)

    def feed_async(  # type: ignore[misc]
        self,
        batch_id: int,
        tables: Sequence[Keys],
        samples: int,
        read_only: bool = False,
        **options: Unpack[CallOptions],
    ) -> Future:
        """feed() as a Future."""
        return self._start(self._feed(batch_id, tables, samples, read_only), options)

    def _lookup_batch(self, batch_id: int, table: Table) -> Call:
        return Call(
            lib.mr_lookup_batch,
            (whole("batch_id", batch_id, _U64_MAX), table.id),
            lambda reply: rows_of(reply, None),
            True,
        )

    def lookup_batch(self, batch_id: int, table: Table, **options: Unpack[CallOptions]) -> np.ndarray:
        """The pooled bags of a batch that was fed, as float32 [samples, slots, dim]. UnknownBatch,
        BatchExpired."""
        return self._run(self._lookup_batch(batch_id, table), options)

    def lookup_batch_async(self, batch_id: int, table: Table, **options: Unpack[CallOptions]) -> Future:
        """lookup_batch() as a Future."""
        return self._start(self._lookup_batch(batch_id, table), options)

    def _push_batch(self, batch_id: int, gradients: Sequence[tuple[Union[Table, Variable], Like]]) -> Call:
        structs = ffi.new("struct mr_batch_gradient[]", len(gradients))
        held: list[Any] = []
        for struct, (feature, gradient) in zip(structs, gradients):
            array = arrays.floats(gradient)
            struct.feature = feature.id
            held.append(arrays.describe(struct.gradient, array, lib.MR_F32))
        applied = ffi.new("bool *")
        arguments = (whole("batch_id", batch_id, _U64_MAX), structs, len(gradients), applied)
        changes = tuple((feature.id, None) for feature, _ in gradients)
        return Call(lib.mr_push_gradients_batch, arguments, lambda _: applied[0], held=held, changes=changes)

    def push_gradients_batch(
        self,
        batch_id: int,
        gradients: Sequence[tuple[Union[Table, Variable], Like]],
        **options: Unpack[CallOptions],
    ) -> bool:
        """Runs the optimizers with the gradients of a batch, exactly once, whoever pushes it and however
        often. False: it was applied before. gradients: [(table, [samples, slots, dim]), (variable, its
        shape), ...]."""
        return self._run(self._push_batch(batch_id, gradients), options)

    def push_gradients_batch_async(
        self,
        batch_id: int,
        gradients: Sequence[tuple[Union[Table, Variable], Like]],
        **options: Unpack[CallOptions],
    ) -> Future:
        """push_gradients_batch() as a Future."""
        return self._start(self._push_batch(batch_id, gradients), options)

    def _forget(self, batch_ids: Like) -> Call:
        ids = arrays.keys(batch_ids)
        return Call(lib.mr_forget_batches, (u64_pointer(ids), ids.size))

    def forget_batches(self, batch_ids: Like, **options: Unpack[CallOptions]) -> None:
        """Drops what the server keeps of these batches."""
        self._run(self._forget(batch_ids), options)

    def forget_batches_async(self, batch_ids: Like, **options: Unpack[CallOptions]) -> Future:
        """forget_batches() as a Future."""
        return self._start(self._forget(batch_ids), options)

    def _batch_state(self, stream: int) -> Call:
        watermark, bitmap, words = ffi.new("uint64_t *"), ffi.new("uint64_t **"), ffi.new("uint32_t *")

        def state(_: Any) -> BatchState:
            try:
                return BatchState(
                    watermark[0], np.array(ffi.unpack(bitmap[0], words[0]) if words[0] else [], np.uint64)
                )
            finally:
                free(bitmap[0])

        return Call(lib.mr_batch_state, (whole("stream", stream, _U32_MAX), watermark, bitmap, words), state)

    def batch_state(self, stream: int, **options: Unpack[CallOptions]) -> BatchState:
        """Which batches of a stream (the upper 16 bits of their ids) every core has applied."""
        return self._run(self._batch_state(stream), options)

    def batch_state_async(self, stream: int, **options: Unpack[CallOptions]) -> Future:
        """batch_state() as a Future."""
        return self._start(self._batch_state(stream), options)

    def _streams(self) -> Call:
        structs, count = ffi.new("struct mr_stream **"), ffi.new("uint32_t *")

        def made(_: Any) -> list[Stream]:
            try:
                return [
                    of_struct(Stream, structs[0][i], plan=_plan_text(structs[0][i].plan))
                    for i in range(count[0])
                ]
            finally:
                free(structs[0])

        return Call(lib.mr_streams, (structs, count), made)

    def streams(self, **options: Unpack[CallOptions]) -> list[Stream]:
        """The streams of batches that the node has a record of, by number."""
        return self._run(self._streams(), options)

    def streams_async(self, **options: Unpack[CallOptions]) -> Future:
        """streams() as a Future."""
        return self._start(self._streams(), options)

    def _forget_streams(self, streams: Sequence[int]) -> Call:
        numbers = ffi.new("uint32_t[]", [whole("stream", stream, 65535) for stream in streams])
        return Call(lib.mr_forget_streams, (numbers, len(numbers)), held=[numbers])

    def forget_streams(self, streams: Sequence[int], **options: Unpack[CallOptions]) -> None:
        """Drops all that the node knows of these streams: their plans would be trained on from the start.
        AlreadyStarted: one is in use."""
        self._run(self._forget_streams(streams), options)

    def forget_streams_async(self, streams: Sequence[int], **options: Unpack[CallOptions]) -> Future:
        """forget_streams() as a Future."""
        return self._start(self._forget_streams(streams), options)
