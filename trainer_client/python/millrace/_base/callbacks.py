"""What the library calls for each item of an answer, on the thread that waits for it. `arg` is a handle of a
list."""
from __future__ import annotations

from typing import Any

from .library import ffi

_MOVING_NUMBERS = ("id", "first", "count", "mib_s", "state", "rows", "bytes", "left_bytes", "us")


def _append(arg: Any, item: Any) -> None:
    ffi.from_handle(arg).append(item)


def _collect(struct: str) -> Any:
    """A visitor that appends copies of a struct."""
    return ffi.callback(
        f"void(void *, const struct {struct} *)",
        lambda arg, item: _append(arg, ffi.new(f"struct {struct} *", item[0])),
    )


counters = ffi.callback(
    "void(void *, const char *, uint64_t)",
    lambda arg, name, value: _append(arg, (ffi.string(name).decode(), value)),
)
# Histograms are gone after the visit, too: copies are kept.
phase_latencies = ffi.callback(
    "void(void *, const char *, const char *, const struct mr_histogram *)",
    lambda arg, op, phase, histogram: _append(
        arg,
        (
            (ffi.string(op).decode(), ffi.string(phase).decode()),
            ffi.new("struct mr_histogram *", histogram[0]),
        ),
    ),
)
latencies = ffi.callback(
    "void(void *, const char *, const struct mr_histogram *)",
    lambda arg, op, histogram: _append(
        arg, (ffi.string(op).decode(), ffi.new("struct mr_histogram *", histogram[0]))
    ),
)
facts = ffi.callback(
    "void(void *, const char *, const char *)",
    lambda arg, name, value: _append(
        arg, (ffi.string(name).decode("utf-8", "replace"), ffi.string(value).decode("utf-8", "replace"))
    ),
)
node_annotations = _collect("mr_annotation")
lines = ffi.callback(
    "void(void *, const char *)", lambda arg, line: _append(arg, ffi.string(line).decode("utf-8", "replace"))
)
tables = _collect("mr_table_memory")
recent_calls = ffi.callback(
    "void(void *, const struct mr_recent_call *)",
    lambda arg, call: _append(
        arg, (ffi.new("struct mr_recent_call *", call[0]), ffi.string(call.op).decode())
    ),
)
members = _collect("mr_world_member")
# Strings are gone after the visit.
cluster_members = ffi.callback(
    "void(void *, const struct mr_cluster_member *)",
    lambda arg, node: _append(
        arg,
        {
            "name": ffi.string(node.name).decode(),
            "address": ffi.string(node.address).decode(),
            "core_count": node.core_count,
            "partitions": node.partitions,
            "backups": node.backups,
            "uncopied": node.uncopied,
            "is_present": bool(node.is_present),
            "is_spare": bool(node.is_spare),
            "start_id": node.start_id,
        },
    ),
)
moves = ffi.callback(
    "void(void *, const struct mr_moving *)",
    lambda arg, move: _append(
        arg,
        {
            "source": ffi.string(getattr(move, "from")).decode(),
            "target": ffi.string(move.to).decode(),
            **{name: getattr(move, name) for name in _MOVING_NUMBERS},
        },
    ),
)
packets = ffi.callback(
    "void(void *, const struct mr_captured *)",
    lambda arg, packet: _append(
        arg,
        {
            "time_ns": packet.time_ns,
            "data": bytes(ffi.buffer(packet.bytes, packet.captured_bytes)),
            "packet_bytes": packet.packet_bytes,
            "lost": packet.lost,
            "is_sent": bool(packet.is_sent),
        },
    ),
)
saves = _collect("mr_save_info")
