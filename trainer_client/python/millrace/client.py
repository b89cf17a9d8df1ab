"""The client of a node."""
from __future__ import annotations

import os
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Sequence, Union

from ._base.connection import Call
from ._base.library import ffi, free, lib
from ._base.options import choice
from ._base.structs import string
from .batch import BatchCalls
from .capture import CaptureCalls
from .checkpoint import CheckpointCalls
from .errors import Error, FeatureMismatch, UnknownTable, UnknownVariable
from .feature import FeatureInfo, Spec, TableSpec, VariableSpec, check_options, spec_of
from .future import Future
from .moves import MoveCalls
from .node import NodeCalls
from .table import Table
from .tables import TableCalls
from .top import Top, TopSample, sample_rates, take_sample
from .variable import Variable

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._base.options import CallOptions

_FREEZE = {"off": 0, "admit": 1, "all": 2}


class Client(BatchCalls, CaptureCalls, CheckpointCalls, MoveCalls, NodeCalls, TableCalls):
    """A connection to one node, for any number of threads. A context manager: leaving it closes the client.

    server: "10.0.0.1:7700", "[fd00::1]:7700", "name:7700"; port 7700 when left out. Of a cluster, some or all
        of its nodes with commas in between, "a:7700,b:7700": the first that answers names the others. None:
        $MILLRACE_SERVER, as `millrace dev -- COMMAND` sets it.
    key_file: pre-shared key, 64 hex digits; None: $MILLRACE_KEY_FILE, else no key.
    client_id: 32 hex digits that name this client across restarts; None: random. One process at a time.
    deadline_s: default of every call, in seconds.
    connect_s: how long to wait for the server now, in seconds.
    replay: keep a copy of each push until it is in a checkpoint on disk, and give a server that was restarted
        what it lacks: each is applied once (docs/replay.md). Also $MILLRACE_REPLAY.
    replay_bytes: for those copies, per core; 0: 64 MiB.
    progress_thread: a thread of the library's own keeps calls going while Python computes.
    memory_bytes: for requests and replies, per core; 0: 256 MiB, of which only what is used takes memory.
    receive_buffer_bytes: of a socket; 0: 4 MiB.
    udp_bytes_max: largest UDP payload; 0: from the route's MTU.
    busy_poll_s: a waiting call spins so long before it sleeps, in seconds; None: 50 us, and once more about
        when a long answer is due, but not while others are found to want the processor; math.inf: always.
    offload, bundle: False: no UDP_SEGMENT; each small call in a packet of its own.
    any_node: of a cluster: connected as soon as one of its nodes answers, for cluster().

    Raises Unreachable (also for a wrong key: a server does not answer whoever lacks it), InvalidArgument, and
    ValueError without an address.
    """

    _top_before: TopSample | None = None

    @classmethod
    def _default_server(cls) -> str:
        server = os.environ.get("MILLRACE_SERVER")
        if not server:
            raise ValueError(
                "no server is given: name its address, as in Client('10.0.0.1:7700'), or set "
                "MILLRACE_SERVER; for development, millrace.dev() starts one on this machine"
            )
        return server

    def top(self, **options: Unpack[CallOptions]) -> Top:
        """What each core and table does, as a table; rates are over the time since the last call of this
        client's top()."""
        cores = self.heartbeat(**options)
        now = take_sample(self.start_id, [self.stats(state.core, **options) for state in cores])
        before, self._top_before = self._top_before, now
        interval_s, rates = sample_rates(before, now)
        try:
            features = self.features(**options)
        except Error:
            if not any(state.why for state in cores):
                raise
            features = []  # a node that serves nothing refuses to list them
        return Top(self.server, interval_s, cores, rates, features)

    # ---- features ----

    def _create(self, specs: Sequence[Spec]) -> Call:
        features = ffi.new("struct mr_feature[]", [spec.to_feature()[0] for spec in specs])
        ids = ffi.new("uint32_t[]", len(specs))

        def made(_: Any) -> list[Union[Table, Variable]]:
            return [
                Table(self, n, spec) if isinstance(spec, TableSpec) else Variable(self, n, spec)
                for n, spec in zip(ids, specs)
            ]

        return Call(lib.mr_create, (features, len(specs), ids), made)

    def create(self, specs: Sequence[Spec], **options: Unpack[CallOptions]) -> list[Union[Table, Variable]]:
        """Makes tables and variables, and returns them in this order. The same again is fine; another
        description under a known name is FeatureMismatch, a field out of its range InvalidArgument."""
        return self._run(self._create(list(specs)), options)

    def create_async(self, specs: Sequence[Spec], **options: Unpack[CallOptions]) -> Future:
        """create() as a Future."""
        return self._start(self._create(list(specs)), options)

    def table(
        self, name: str, dim: int | None = None, *, deadline_s: float | None = None, **description: Any
    ) -> Table:
        """A table. With `dim` it is made unless it is there; `description`: the other fields of TableSpec. By
        name alone it is looked up; UnknownTable (a LookupError) when there is none. FeatureMismatch: it is
        there with another description; InvalidArgument (a ValueError): a field is out of its range;
        TypeError: TableSpec has no such field."""
        if dim is not None:
            check_options("table", TableSpec, description)
            return self._made("table", TableSpec(name, dim, **description), deadline_s)  # type: ignore
        if description:
            raise TypeError(
                f"a table is made with its dim: table({name!r}, dim, {', '.join(description)}=...)"
            )
        found = self._find(name, deadline_s)
        if found is None or not isinstance(found.spec, TableSpec):
            raise UnknownTable(
                f"{self.server}: there is no table {name!r}{self._instead('table', name, 'dim', deadline_s)}"
                if found is None
                else f"{self.server}: {name!r} is a variable, no table"
            )
        return Table(self, found.id, found.spec)

    def variable(
        self,
        name: str,
        shape: Union[int, Sequence[int], None] = None,
        *,
        deadline_s: float | None = None,
        **description: Any,
    ) -> Variable:
        """A variable. With `shape` (() for a single number) it is made unless it is there; `description`: the
        other fields of VariableSpec. By name alone it is looked up; UnknownVariable (a LookupError) when
        there is none. Other errors as of table().
        """
        if shape is not None:
            check_options("variable", VariableSpec, description)
            spec = VariableSpec(name, shape, **description)  # type: ignore
            return self._made("variable", spec, deadline_s)  # type: ignore
        if description:
            raise TypeError(
                f"a variable is made with its shape: variable({name!r}, shape, {', '.join(description)}=...)"
            )
        found = self._find(name, deadline_s)
        if found is None or not isinstance(found.spec, VariableSpec):
            raise UnknownVariable(
                f"{self.server}: there is no variable {name!r}"
                f"{self._instead('variable', name, 'shape', deadline_s)}"
                if found is None
                else f"{self.server}: {name!r} is a table, no variable"
            )
        return Variable(self, found.id, found.spec)

    def _made(self, what: str, spec: Spec, deadline_s: float | None) -> Union[Table, Variable]:
        try:
            return self.create([spec], deadline_s=deadline_s)[0]
        except FeatureMismatch as error:
            found = self._find(spec.name, deadline_s)
            kept = found is not None and isinstance(found.spec, type(spec))
            taken = f"{what}({spec.name!r}) takes it as it is" if kept else "choose another name"
            raise FeatureMismatch(f"{error}; {taken}, drop({spec.name!r}) removes it for good") from None

    def _instead(self, what: str, name: str, size: str, deadline_s: float | None) -> str:
        near = get_close_matches(name, [info.name for info in self.features(deadline_s=deadline_s)], 1)
        made = f"{what}({name!r}, {size}) makes it"
        return f"; did you mean {near[0]!r}? {made}" if near else f"; {made}"

    def _find(self, name: str, deadline_s: float | None) -> FeatureInfo | None:
        return next((info for info in self.features(deadline_s=deadline_s) if info.name == name), None)

    def _features(self) -> Call:
        infos, count = ffi.new("struct mr_feature_info **"), ffi.new("uint32_t *")

        def listed(_: Any) -> list[FeatureInfo]:
            try:
                return [
                    FeatureInfo(
                        info.id,
                        spec_of(info.feature),
                        info.rows,
                        info.bytes,
                        info.rows_refused,
                        info.gradients_without_row,
                        info.gradients_skipped,
                    )
                    for info in (infos[0][i] for i in range(count[0]))
                ]
            finally:
                free(infos[0])

        return Call(lib.mr_list, (infos, count), listed)

    def features(self, **options: Unpack[CallOptions]) -> list[FeatureInfo]:
        """All tables and variables of the node."""
        return self._run(self._features(), options)

    def features_async(self, **options: Unpack[CallOptions]) -> Future:
        """features() as a Future."""
        return self._start(self._features(), options)

    def _drop(self, names: tuple[str, ...]) -> Call:
        strings = [string(name) for name in names]
        if not strings:
            raise ValueError("drop: name at least one table or variable")
        wanted = ffi.new("char *[]", strings)
        return Call(lib.mr_drop, (wanted, len(strings)), held=(strings, wanted))

    def drop(self, *names: str, **options: Unpack[CallOptions]) -> None:
        """Drops tables and variables, all or none, with what they have learnt, for good. UnknownTable: the
        node lacks one; CheckpointRunning: a save is being written."""
        self._run(self._drop(names), options)

    def drop_async(self, *names: str, **options: Unpack[CallOptions]) -> Future:
        """drop() as a Future."""
        return self._start(self._drop(names), options)

    def alter(self, name: str, *, deadline_s: float | None = None, **changes: Any) -> None:
        """Alters a table or variable while it serves. `changes`: fields of TableSpec or VariableSpec; those
        not named stay. Unsupported: the options of a field that cannot be altered differ; the error says why.
        UnknownTable: the node has nothing of this name.
        """
        found = self._find(name, deadline_s)
        if found is None:
            raise UnknownTable(f"{self.server}: there is no table or variable {name!r}")
        size = "dim" if isinstance(found.spec, TableSpec) else "shape"  # the node says why it stays
        check_options("alter", type(found.spec), [name for name in changes if name != size])
        before, after = found.spec.to_feature(), replace(found.spec, **changes).to_feature()
        self._run(Call(lib.mr_alter, (before, after), held=(before, after)), {"deadline_s": deadline_s})

    def freeze(self, level: str, **options: Unpack[CallOptions]) -> None:
        """ "off"; "admit": no new rows; "all": no updates either. Frozen nodes evict nothing."""
        self._run(Call(lib.mr_freeze, (choice("level", level, _FREEZE),)), options)

    def freeze_async(self, level: str, **options: Unpack[CallOptions]) -> Future:
        """freeze() as a Future."""
        return self._start(Call(lib.mr_freeze, (choice("level", level, _FREEZE),)), options)
