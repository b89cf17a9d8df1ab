"""The client of a hub, which reads samples, feeds their keys to a node and hands out batches."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from ._base import arrays
from ._base.arrays import Like, u64_pointer
from ._base.connection import Call, Connection
from ._base.library import NULL, ffi, lib
from ._base.options import choice, whole
from ._base.structs import of_struct, string
from .future import Future
from .table import Table

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._base.options import CallOptions

_U64_MAX, _U32_MAX = 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFF
_PARTS = {"train": lib.MR_PART_TRAIN, "held_out": lib.MR_PART_HELD_OUT}


@dataclass(frozen=True)
class SampleInfo:
    """What a pass over samples is of."""

    samples: int  #: of this part; 0 for standard input and files that are followed
    slots: int
    dense: int
    stream: int
    batches: int  #: all epochs; 0 as well while the end of the input has not come
    keys: int  #: distinct; 0 for standard input and files that are followed
    broken_lines: int


@dataclass(frozen=True)
class Batch:
    """Samples for one trainer alone; their keys are at the node, under `id`: Client.lookup_batch()."""

    id: int
    samples: int
    epoch: int
    dense: np.ndarray  #: float32 [samples, dense]
    labels: np.ndarray  #: float32 [samples]


@dataclass(frozen=True)
class HubStatus:
    """Counters of a hub."""

    samples_read: int
    batches_handed_out: int
    batches_applied: int
    batches_handed_again: int
    batches_expired: int
    broken_lines: int
    trainers: int
    batches_fed: int
    batches_waiting: int
    epoch: int
    at_end: bool


class Hub(Connection):
    """A connection to a hub. The arguments are those of Client, but the address has no default. A context
    manager."""

    @classmethod
    def _default_server(cls) -> str:
        raise ValueError("no hub is given: name its address, as in Hub('10.0.0.1:7800')")

    def _plan(
        self,
        path: str,
        format: str,
        batch_samples: int,
        epochs: int,
        shuffle_seed: int,
        held_out_share: float,
        part: str,
        strict: bool,
        run: int,
        table: Union[Table, str],
    ) -> Call:
        names = [string(name) for name in (path, format, table.name if isinstance(table, Table) else table)]
        plan = ffi.new(
            "struct mr_sample_plan *",
            {
                "path": names[0],
                "format": names[1],
                "table": names[2],
                "part": choice("part", part, _PARTS),
                "strict": strict,
                "batch_samples": whole("batch_samples", batch_samples, _U32_MAX),
                "epochs": whole("epochs", epochs, _U32_MAX),
                "shuffle_seed": whole("shuffle_seed", shuffle_seed, _U64_MAX),
                "held_out_share": held_out_share,
                "run": whole("run", run, _U32_MAX),
            },
        )
        info = ffi.new("struct mr_sample_info *")
        return Call(lib.mr_start_sample, (plan, info), lambda _: of_struct(SampleInfo, info), held=names)

    def start(
        self,
        path: str,
        format: str,
        batch_samples: int,
        table: Union[Table, str],
        *,
        epochs: int = 1,
        shuffle_seed: int = 0,
        held_out_share: float = 0.0,
        part: str = "train",
        strict: bool = False,
        run: int = 0,
        **options: Unpack[CallOptions],
    ) -> SampleInfo:
        """Starts reading. The first trainer's plan counts; the same again joins it; another is AlreadyStarted
        while the first is not at its end.

        path: on the hub's machine: a file, or several and patterns with commas between them; "-": its
        standard input; "kafka:TOPIC": a topic of its brokers. format: "libsvm", "criteo", "flights", or the
        name of another that the hub was given (millrace-hub --format); "batches" of standard input and
        topics. batch_samples: of a topic, messages of a batch. table: that the keys belong to, on the node
        that the hub feeds. shuffle_seed: 0: in file order. held_out_share: 0 to 0.9, chosen at random by
        sample; part: "train" or "held_out". strict: stop at the first broken line, with BadMessage. run:
        another number starts afresh; the same plan and run continues after what was applied.
        """
        return self._run(
            self._plan(
                path, format, batch_samples, epochs, shuffle_seed, held_out_share, part, strict, run, table
            ),
            options,
        )

    def start_async(
        self,
        path: str,
        format: str,
        batch_samples: int,
        table: Union[Table, str],
        *,
        epochs: int = 1,
        shuffle_seed: int = 0,
        held_out_share: float = 0.0,
        part: str = "train",
        strict: bool = False,
        run: int = 0,
        **options: Unpack[CallOptions],
    ) -> Future:
        """start() as a Future."""
        return self._start(
            self._plan(
                path, format, batch_samples, epochs, shuffle_seed, held_out_share, part, strict, run, table
            ),
            options,
        )

    def _read(self, done: Like) -> Call:
        ids = arrays.keys(done)
        batch = ffi.new("struct mr_batch *")

        def taken(_: Any) -> Batch:
            (_, _), (dense, _), (labels, _) = arrays.tensors_of(batch.reply)[:3]
            return Batch(batch.id, batch.samples, batch.epoch, dense, labels)

        return Call(
            lib.mr_read_sample,
            (u64_pointer(ids) if ids.size else NULL, ids.size, batch),
            taken,
            none_status=lib.MR_NOT_READY,
        )

    def read(self, done: Like = (), **options: Unpack[CallOptions]) -> Batch | None:
        """The next batch, for this trainer alone; None when there may be more later. EndOfData once
        everything is handed out and applied.

        done: ids of batches that this trainer has pushed, or will not push (read-only ones).
        """
        return self._run(self._read(done), options)

    def read_async(self, done: Like = (), **options: Unpack[CallOptions]) -> Future:
        """read() as a Future."""
        return self._start(self._read(done), options)

    def _status(self) -> Call:
        status = ffi.new("struct mr_hub_status *")
        return Call(lib.mr_hub_status, (status,), lambda _: of_struct(HubStatus, status))

    def status(self, **options: Unpack[CallOptions]) -> HubStatus:
        """What the hub has read, handed out and seen applied."""
        return self._run(self._status(), options)

    def status_async(self, **options: Unpack[CallOptions]) -> Future:
        """status() as a Future."""
        return self._start(self._status(), options)
