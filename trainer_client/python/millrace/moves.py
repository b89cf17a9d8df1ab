"""Which node of a cluster owns what, changed while training goes on: partitions move, nodes are drained,
loads are balanced."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._base import callbacks
from ._base.connection import Call, Connection
from ._base.library import ffi, lib
from ._base.options import whole
from ._base.structs import of_struct, string

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._base.options import CallOptions

_U32_MAX, _U64_MAX = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
_MOVE, _DRAIN, _REBALANCE, _CANCEL, _FORGET = 1, 2, 3, 4, 5  # enum mr_move_request_kind
_STATES = ("waits", "copies", "ends")  # enum mr_moving_state


@dataclass(frozen=True)
class Moving:
    """A move in progress."""

    id: int
    source: str  #: the node that gives
    target: str  #: the node that takes
    first: int  #: place of the map
    count: int  #: partitions, of 4096
    mib_s: int  #: MiB per second at most; 0: as the target is configured
    state: str  #: "waits", "copies", "ends"
    rows: int  #: so far, as of a second ago; rows that changed meanwhile count again
    bytes: int
    left_bytes: int  #: about
    us: int  #: since it began


@dataclass(frozen=True)
class Moves:
    """What moves in a cluster."""

    epoch: int  #: of its map
    drained: int  #: nodes that are to have no partitions
    balances: bool  #: the leader begins more moves
    moves: list[Moving]


class MoveCalls(Connection):
    """What a client asks a cluster about moves. Each call returns once the cluster's map says so; the moves
    themselves go on, see moves(). InvalidArgument: there is no such node, or it has nothing to move."""

    def _request(self, options: CallOptions, **fields: Any) -> None:
        names = [string(fields.pop(name, None)) for name in ("from", "to")]
        mib_s = whole("mib_s", fields.pop("mib_s", 0), _U32_MAX)
        request = ffi.new("struct mr_move_request *", {**fields, "to": names[1], "mib_s": mib_s})
        setattr(request, "from", names[0])
        self._run(Call(lib.mr_move, (request,), held=(request, names)), options)

    def move(
        self,
        source: str,
        target: str,
        count: int = 0,
        first: int | None = None,
        mib_s: int = 0,
        **options: Unpack[CallOptions],
    ) -> None:
        """Moves `count` partitions (0: all) of node `source` to node `target`, from place `first` of the map
        or any; at most `mib_s` MiB per second (0: as configured). Without `first` a repetition moves more."""
        places = {} if first is None else {"has_first": True, "first": whole("first", first, _U32_MAX)}
        fields = {"kind": _MOVE, "from": source, "to": target, "count": whole("count", count, _U32_MAX)}
        self._request(options, mib_s=mib_s, **fields, **places)

    def drain(self, node: str, mib_s: int = 0, **options: Unpack[CallOptions]) -> None:
        """Moves all that a node owns to the others; it gets nothing before a rebalance()."""
        self._request(options, mib_s=mib_s, **{"kind": _DRAIN, "from": node})

    def rebalance(self, mib_s: int = 0, **options: Unpack[CallOptions]) -> None:
        """Moves partitions until each node, drained ones included, has as many as its cores are."""
        self._request(options, kind=_REBALANCE, mib_s=mib_s)

    def cancel_moves(self, id: int = 0, **options: Unpack[CallOptions]) -> None:
        """Cancels a move (0: all), and what would follow from a drain or a rebalance."""
        self._request(options, kind=_CANCEL, id=whole("id", id, _U64_MAX))

    def forget_node(self, node: str, **options: Unpack[CallOptions]) -> None:
        """Takes a node out of the cluster's map that is away and owns nothing; otherwise InvalidArgument."""
        self._request(options, **{"kind": _FORGET, "from": node})

    def moves(self, **options: Unpack[CallOptions]) -> Moves:
        """The moves in progress."""
        state = ffi.new("struct mr_moves_state *")
        found: list[Any] = []
        handle = ffi.new_handle(found)

        def made(_: Any, held: Any = handle) -> Moves:
            for move in found:
                move["state"] = _STATES[move["state"]]
            moves = [Moving(**move) for move in found]
            return of_struct(Moves, state, moves=moves)

        result: Moves = self._run(Call(lib.mr_moves, (state, callbacks.moves, handle), made), options)
        return result
