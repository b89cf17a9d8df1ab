"""What a node says of itself: its cores' state, counters, memory, the world of workers that it is in; and
echo."""
from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Sequence

from ._base import arrays, callbacks
from ._base.arrays import Array, Like
from ._base.connection import Call, Connection
from ._base.library import NULL, ffi, lib, text
from ._base.options import whole
from ._base.structs import name_of, of_struct
from .errors import error_of
from .future import Future

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._base.options import CallOptions

_U16_MAX = 0xFFFF
_U32_MAX = 0xFFFFFFFF
_U64_MAX = 0xFFFFFFFFFFFFFFFF
_CORES_MAX = 16384  # MR_CLIENT_CORES_MAX: nodes may join a cluster during the call
_TOLERANCES = (
    "unknown",
    "tolerates_one",
    "off",
    "alone",
    "away",
    "unsaved",
    "room",
    "version",
    "backup",
    "sync",
)
_CORE_STATES = {"serving": 1, "saving": 2, "restoring": 3, "stopping": 4, "serving_read_only": 5, "failed": 6}


@dataclass(frozen=True)
class CoreState:
    """A core's heartbeat."""

    core: int
    #: "serving", "saving", "restoring", "stopping", "serving_read_only" (a checkpoint), "failed" (see why)
    state: str
    incarnation: int
    uptime_us: int
    busy_share: float  #: 0 to 1, of the last second
    last_step: int
    cached_batches: int
    rows: int
    memory_bytes: int
    rtt_us: int  #: as the client sees it
    rows_refused: int  #: since the server's start, as in FeatureInfo, of all features
    gradients_without_row: int
    gradients_skipped: int
    steps_ignored: int  #: calls whose step was too far from that of others to count
    why: str  #: it serves nothing; "": it has not failed
    node: str  #: its node's name in the cluster; "": the node is in none


@dataclass(frozen=True)
class TableMemory:
    """One table's part of a core's memory."""

    id: int
    rows: int
    index_bytes: int
    values_bytes: int
    state_bytes: int
    slack_bytes: int  #: free places, padding, and what else is kept per row
    filter_bytes: int
    limit_bytes: int  #: of the table on the whole node; 0: only the node's


@dataclass(frozen=True)
class Latency:
    """How long calls took, in seconds; percentiles are at most 2 % off."""

    count: int
    mean_s: float
    p50_s: float
    p99_s: float
    p999_s: float
    max_s: float


@dataclass(frozen=True)
class Annotation:
    """What happened on a node, and when."""

    sequence: int  #: counts from 1 since the node's start
    age_s: float  #: when the node answered
    event: str  #: "annotation": a client set it; otherwise an event of the node's log
    client: str  #: its address; "": the node itself
    text: str


def _annotation(it: Any) -> Annotation:
    return Annotation(it.sequence, it.age_ns / 1e9, text(it.event), text(it.client), text(it.text))


@dataclass(frozen=True)
class ClockOffset:
    """How far a server's clock is ahead of time.monotonic_ns() here. The clocks are named by numbers, equal
    exactly when both are one, as within one machine."""

    own_clock: int
    peer_clock: int
    at_ns: int  #: own time of the exchange
    offset_ns: int  #: the peer's clock minus the own one
    error_ns: int  #: offset_ns is wrong by at most that


def _latency(histogram: Any) -> Latency:
    shares = (0.5, 0.99, 0.999)
    p50_s, p99_s, p999_s = (lib.mr_histogram_percentile_ns(histogram, share) / 1e9 for share in shares)
    mean_s = lib.mr_histogram_mean_ns(histogram) / 1e9
    return Latency(histogram.count, mean_s, p50_s, p99_s, p999_s, histogram.max_ns / 1e9)


@dataclass(frozen=True)
class RecentCall:
    """A call that a core has served."""

    number: int  #: from 1, in the order in which the core's calls were over
    age_s: float  #: how long before the answer to this question its request had arrived
    total_s: float  #: from then until the last of its answer had gone to the port
    wait_s: float | None  #: until its work began; None: this call's phases were not timed, as in bursts
    work_s: float | None  #: until its answer was there
    send_s: float | None
    op: str  #: "lookup", ...
    status: int  #: of the answer; 0: it is good
    table: int  #: id; 0: none, or several
    keys: int  #: of lookups and pushes by key, and of feeds
    request_bytes: int
    reply_bytes: int
    client: str  #: address and port


@dataclass(frozen=True)
class RecentCalls:
    """Some of a core's last calls."""

    calls: list[RecentCall]  #: the oldest first
    next: int  #: position of what follows
    lost: int  #: calls before these that the core no longer had
    left: int  #: calls that follow these


def _recent_calls(calls: list[tuple[Any, str]], state: Any) -> RecentCalls:
    def seconds(call: Any, ns: int) -> float | None:
        return ns / 1e9 if call.is_timed else None

    return RecentCalls(
        calls=[
            of_struct(
                RecentCall,
                call,
                age_s=(state.now_ns - call.arrived_ns) / 1e9,
                total_s=call.total_ns / 1e9,
                wait_s=seconds(call, call.wait_ns),
                work_s=seconds(call, call.work_ns),
                send_s=seconds(call, call.send_ns),
                op=op,
            )
            for call, op in calls
        ],
        next=state.next,
        lost=state.lost,
        left=state.left,
    )


@dataclass(frozen=True)
class CoreMemory:
    """Where every byte of a core is."""

    limit_bytes: int  #: of tables and variables; never exceeded
    mapped_bytes: int  #: of it, taken from the kernel
    allocated_bytes: int  #: of these, in use
    ahead_bytes: int  #: of mapped_bytes: made ready before it is needed
    units_failed: int  #: units that the machine had no memory for
    batch_limit_bytes: int
    batch_mapped_bytes: int
    batch_bytes: int  #: batches kept now
    variable_bytes: int
    scratch_bytes: int  #: working memory of pushes, beside the limits
    checkpoint_bytes: int  #: buffers of a running checkpoint, beside the limits
    tables: list[TableMemory]


@dataclass(frozen=True)
class ClusterNode:
    """A node of a cluster."""

    name: str
    address: str
    core_count: int
    partitions: int  #: of 4096, that it owns
    backups: int  #: with copies: of others' partitions, that it follows
    uncopied: int  #: with copies: that it owns, and no backup is in sync
    is_present: bool  #: it has a session with ZooKeeper
    is_spare: bool  #: ``cluster.role = spare``: it owns only what it takes over from dead nodes
    start_id: int


@dataclass(frozen=True)
class Cluster:
    """The cluster that a node is a member of, as that node knows it."""

    epoch: int  #: of its map; 0: the node has none yet
    asked: int | None  #: which of `nodes` answered; None: the map lacks it
    without_owner: int  #: partitions, of 4096, that have not been given out
    outside: int  #: nodes that have a session with ZooKeeper and are not in the map
    lease_us: int  #: for so long a node serves after ZooKeeper has confirmed it
    lease_left_us: int  #: of the node that answered; 0: it serves nothing now
    has_copies: bool  #: ``cluster.replication`` is 2
    answers_wait: bool  #: to pushes, for copies that are in sync: ``cluster.copies = sync``
    #: whether the others would serve on what a node owns that dies now: "tolerates_one"; or why not: "off",
    #: "alone", "away", "unsaved", "room", "version", "backup", "sync" (enum mr_tolerance); or "unknown"
    tolerance: str
    tolerance_node: int | None  #: which of `nodes` that is about; None: none
    nodes: list[ClusterNode]


@dataclass(frozen=True)
class WorldMember:
    """A worker of a world."""

    name: str  #: "" until it has joined
    rank: int
    has_joined: bool
    is_node: bool
    is_rendezvous: bool
    is_dead: bool
    has_left: bool
    address: str


@dataclass(frozen=True)
class World:
    """The world of workers that a node takes part in, as the node knows it."""

    is_worker: bool
    is_rendezvous: bool
    is_complete: bool
    rank: int
    world_size: int
    joined: int
    threads_max: int
    threads: int
    functions_running: int
    functions_blocked: int
    functions_waiting: int
    calls_served: int
    calls_failed: int
    calls_refused: int
    calls_made: int
    calls_made_failed: int
    calls_under_way: int
    values_owned: int
    values_held: int
    dead_after_ms: int
    contexts_begun: int
    contexts_known: int
    context_oldest_s: int
    members: list[WorldMember]
    functions: list[str]  #: "name(arguments) -> results"


@dataclass(frozen=True)
class ReplayInfo:
    """What a client keeps for a server that was killed."""

    on: bool
    replaying: bool  #: a server restarted, and has not got all of it again
    kept: int  #: pushes, counted per core
    kept_bytes: int
    oldest_step: int  #: of those kept; 0 when there are none
    replayed: int  #: pushes sent again, and taken or known by the server
    given_up: int  #: for want of room, before they were known to be on disk
    dropped: int  #: refused by the restarted server


class NodeCalls(Connection):
    """The part of millrace.Client that looks at the node."""

    def replay_info(self) -> ReplayInfo:
        """What this client keeps for a server that was killed (`replay`)."""
        info = ffi.new("struct mr_replay_info *")
        self._ask(lib.mr_client_replay_info, info)
        return of_struct(ReplayInfo, info)

    def write_metrics(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        """Writes what this client counts as a file for node_exporter's textfile collector; `name` tells
        clients apart. Without it, the program and its process number do."""
        names = [NULL if value is None else ffi.new("char[]", os.fsencode(value)) for value in (path, name)]
        status = self._ask(lib.mr_client_write_metrics, *names)
        if status:
            raise error_of(status, text(lib.mr_last_error()))

    def _heartbeat(self) -> Call:
        states = ffi.new("struct mr_core_state[]", _CORES_MAX)
        return Call(
            lib.mr_heartbeat,
            (states,),
            lambda _: [
                of_struct(
                    CoreState, state, state=name_of(_CORE_STATES, state.state), node=self._node_of(state.core)
                )
                for state in states[0 : self.core_count]
            ],
        )

    def _node_of(self, core: int) -> str:
        place = ffi.new("struct mr_core_place *")
        return ffi.string(place.node).decode() if self._ask(lib.mr_client_core_place, core, place) else ""

    def heartbeat(self, **options: Unpack[CallOptions]) -> list[CoreState]:
        """How each core does."""
        return self._run(self._heartbeat(), options)

    def heartbeat_async(self, **options: Unpack[CallOptions]) -> Future:
        """heartbeat() as a Future."""
        return self._start(self._heartbeat(), options)

    def _stats(self, core: int) -> Call:
        counters: list[tuple[str, int]] = []
        handle = ffi.new_handle(counters)
        return Call(
            lib.mr_stats,
            (whole("core", core, _U32_MAX), callbacks.counters, handle),
            lambda _: dict(counters),
        )

    def stats(self, core: int = 0, **options: Unpack[CallOptions]) -> dict[str, int]:
        """Every counter of one core by its name."""
        return self._run(self._stats(core), options)

    def stats_async(self, core: int = 0, **options: Unpack[CallOptions]) -> Future:
        """stats() as a Future."""
        return self._start(self._stats(core), options)

    def clock_offset(self, core: int = 0, **options: Unpack[CallOptions]) -> ClockOffset:
        """How far the clock of a core's node is ahead: of eight exchanges the one with the shortest round
        trip, as NTP does it."""
        offsets = (self._run(self._clock_offset(core), options) for _ in range(lib.MR_CLOCK_EXCHANGES))
        return min(offsets, key=lambda offset: offset.error_ns)

    def _clock_offset(self, core: int) -> Call:
        out = ffi.new("struct mr_clock_offset *")
        return Call(
            lib.mr_clock_offset, (whole("core", core, _U32_MAX), out), lambda _: of_struct(ClockOffset, out)
        )

    def _latencies(self, core: int) -> Call:
        histograms: list[tuple[tuple[str, str], Any]] = []
        handle = ffi.new_handle(histograms)
        return Call(
            lib.mr_latencies,
            (whole("core", core, _U32_MAX), callbacks.phase_latencies, handle),
            lambda _: {key: _latency(histogram) for key, histogram in histograms},
        )

    def latencies(self, core: int = 0, **options: Unpack[CallOptions]) -> dict[tuple[str, str], Latency]:
        """How long calls to a core have taken since its start, by operation ("lookup", ...) and phase:
        "wait", "work", "send"."""
        return self._run(self._latencies(core), options)

    def latencies_async(self, core: int = 0, **options: Unpack[CallOptions]) -> Future:
        """latencies() as a Future."""
        return self._start(self._latencies(core), options)

    def _facts(self, core: int) -> Call:
        found: list[tuple[str, str]] = []
        handle = ffi.new_handle(found)
        return Call(
            lib.mr_facts, (whole("core", core, _U32_MAX), callbacks.facts, handle), lambda _: dict(found)
        )

    def facts(self, core: int = 0, **options: Unpack[CallOptions]) -> dict[str, str]:
        """What the node of a core is: its configuration ("config.port.mtu"), and what it runs on
        ("machine.kernel", "dpdk"). Needs the role operator."""
        return self._run(self._facts(core), options)

    def facts_async(self, core: int = 0, **options: Unpack[CallOptions]) -> Future:
        """facts() as a Future."""
        return self._start(self._facts(core), options)

    def annotate(self, what: str, **options: Unpack[CallOptions]) -> None:
        """Annotates this time for recordings (millrace perf record): a line such as "epoch 3", at most 143
        bytes."""
        self._run(Call(lib.mr_annotate, (what.encode(),)), options)

    def annotate_async(self, what: str, **options: Unpack[CallOptions]) -> Future:
        """annotate() as a Future."""
        return self._start(Call(lib.mr_annotate, (what.encode(),)), options)

    def _annotations(self, since: int, core: int) -> Call:
        found: list[Any] = []
        handle = ffi.new_handle(found)
        return Call(
            lib.mr_annotations,
            (
                whole("core", core, _U32_MAX),
                whole("since", since, _U64_MAX),
                NULL,
                NULL,
                callbacks.node_annotations,
                handle,
            ),
            lambda _: [_annotation(it) for it in found],
        )

    def annotations(self, since: int = 0, core: int = 0, **options: Unpack[CallOptions]) -> list[Annotation]:
        """The annotations after number `since` of the node that has the core, the oldest first: what clients
        set with annotate(), and, for operators, what the node's log says at level info and above. It keeps
        the last 256.
        """
        return self._run(self._annotations(since, core), options)

    def annotations_async(self, since: int = 0, core: int = 0, **options: Unpack[CallOptions]) -> Future:
        """annotations() as a Future."""
        return self._start(self._annotations(since, core), options)

    def _recent_calls(self, core: int, slow_s: float, position: int) -> Call:
        calls: list[tuple[Any, str]] = []
        handle, state = ffi.new_handle(calls), ffi.new("struct mr_recent_calls_state *")
        slow_ns = whole("slow_s in ns", round(slow_s * 1e9), _U64_MAX)
        return Call(
            lib.mr_recent_calls,
            (
                whole("core", core, _U32_MAX),
                slow_ns,
                whole("position", position, _U64_MAX),
                state,
                callbacks.recent_calls,
                handle,
            ),
            lambda _: _recent_calls(calls, state),
        )

    def recent_calls(
        self, core: int = 0, slow_s: float = 0.0, position: int = 0, **options: Unpack[CallOptions]
    ) -> RecentCalls:
        """The last calls of a core: up to 256 from `position` on (0, then `next` of the answer before), of
        the last 512. With slow_s only those that took so long or longer, with some before and after each;
        the core selects them from the first such question on until none has come for 10 s. For operators."""
        return self._run(self._recent_calls(core, slow_s, position), options)

    def recent_calls_async(
        self, core: int = 0, slow_s: float = 0.0, position: int = 0, **options: Unpack[CallOptions]
    ) -> Future:
        """recent_calls() as a Future."""
        return self._start(self._recent_calls(core, slow_s, position), options)

    def own_latencies(self) -> dict[str, Latency]:
        """How long this client's own calls have taken, by operation, each from the call to its last
        answer."""
        histograms: list[tuple[str, Any]] = []
        handle = ffi.new_handle(histograms)
        status = self._ask(lib.mr_client_latencies, callbacks.latencies, handle)
        if status:
            raise error_of(status, text(lib.mr_last_error()))
        return {op: _latency(histogram) for op, histogram in histograms}

    def _memory(self, core: int) -> Call:
        memory, tables = ffi.new("struct mr_core_memory *"), []  # type: ignore[var-annotated]
        handle = ffi.new_handle(tables)
        return Call(
            lib.mr_memory,
            (whole("core", core, _U32_MAX), memory, callbacks.tables, handle),
            lambda _: of_struct(
                CoreMemory, memory, tables=[of_struct(TableMemory, table) for table in tables]
            ),
        )

    def memory(self, core: int = 0, **options: Unpack[CallOptions]) -> CoreMemory:
        """Where every byte of a core is."""
        return self._run(self._memory(core), options)

    def memory_async(self, core: int = 0, **options: Unpack[CallOptions]) -> Future:
        """memory() as a Future."""
        return self._start(self._memory(core), options)

    def _world(self) -> Call:
        world = ffi.new("struct mr_world *")
        items: list[Any] = []  # members as structs, functions as strings: a visitor has one arg for both
        handle = ffi.new_handle(items)
        visitor = ffi.new(
            "struct mr_world_visitor *",
            {"member": callbacks.members, "function": callbacks.lines, "arg": handle},
        )

        def made(_: Any, held: Any = handle) -> World:
            return of_struct(
                World,
                world,
                functions=[item for item in items if isinstance(item, str)],
                members=[of_struct(WorldMember, item) for item in items if not isinstance(item, str)],
            )

        return Call(lib.mr_world, (world, visitor), made)

    def world(self, **options: Unpack[CallOptions]) -> World:
        """The world of workers that the node takes part in. UnknownOp: it takes no part in remote calls."""
        return self._run(self._world(), options)

    def world_async(self, **options: Unpack[CallOptions]) -> Future:
        """world() as a Future."""
        return self._start(self._world(), options)

    def _cluster(self) -> Call:
        state = ffi.new("struct mr_cluster_state *")
        nodes: list[Any] = []
        handle = ffi.new_handle(nodes)

        def made(_: Any, held: Any = handle) -> Cluster | None:
            if not state.is_member:
                return None
            return of_struct(
                Cluster,
                state,
                asked=None if state.self == _U32_MAX else state.self,
                tolerance=_TOLERANCES[state.tolerance],
                tolerance_node=None if state.tolerance_node == _U16_MAX else state.tolerance_node,
                nodes=[ClusterNode(**node) for node in nodes],
            )

        return Call(lib.mr_cluster, (state, callbacks.cluster_members, handle), made)

    def cluster(self, **options: Unpack[CallOptions]) -> Cluster | None:
        """The cluster as the first node that answers knows it; None: the server is in none."""
        return self._run(self._cluster(), options)

    def cluster_async(self, **options: Unpack[CallOptions]) -> Future:
        """cluster() as a Future."""
        return self._start(self._cluster(), options)

    def _echo(self, tensors: Sequence[Like], core: int) -> Call:
        structs = ffi.new("struct mr_tensor[]", len(tensors))
        held = [arrays.describe(struct, *arrays.typed(value)) for struct, value in zip(structs, tensors)]
        torches = [arrays.torch_of(value) for value in tensors]

        def answer(reply: Any, held: Any = held) -> list[Array]:
            return [
                arrays.untyped(array, dtype, torch)
                for (array, dtype), torch in zip(arrays.tensors_of(reply), torches)
            ]

        return Call(lib.mr_echo, (whole("core", core, _U32_MAX), structs, len(tensors)), answer, True)

    def echo(
        self, tensors: Sequence[Like] = (), core: int = 0, **options: Unpack[CallOptions]
    ) -> list[Array]:
        """The same tensors, there and back, or nothing: to measure."""
        return self._run(self._echo(tensors, core), options)

    def echo_async(
        self, tensors: Sequence[Like] = (), core: int = 0, **options: Unpack[CallOptions]
    ) -> Future:
        """echo() as a Future."""
        return self._start(self._echo(tensors, core), options)
