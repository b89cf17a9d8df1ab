"""Packets that a core receives and sends, copied as they pass; `millrace capture` writes them to a file."""
from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Sequence

from ._base import callbacks
from ._base.connection import Call, Connection
from ._base.library import ffi, lib
from ._base.options import milliseconds, whole
from ._base.structs import of_struct, string

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._base.options import CallOptions

_U32_MAX = 0xFFFFFFFF
_START, _READ, _HALT, _END = 1, 2, 3, 4  # enum mr_capture_request_kind


@dataclass(frozen=True)
class Packet:
    """A packet, from its Ethernet or IP header on."""

    time_ns: int  #: since 1970, by the server's clock
    data: bytes  #: as much of it as was kept
    packet_bytes: int  #: its length
    lost: int  #: packets for which the core had no room, between the one before and this one
    is_sent: bool  #: by the core; otherwise it was received


@dataclass(frozen=True)
class CaptureState:
    """What a core says of its capture."""

    seen: int  #: packets that passed, but for this client's own
    wanted: int  #: of these, that the filter let through
    lost: int  #: of these, for which there was no room
    left_bytes: int  #: recorded, and not read
    link_type: int  #: as pcap numbers them: 1 Ethernet, 101 IP
    snap_bytes: int  #: kept of each packet


class Capture:
    """A capture on one core: what CaptureCalls.capture() returns. A context manager: leaving it ends it."""

    def __init__(self, client: CaptureCalls, core: int) -> None:
        self.core = core
        self.state: CaptureState | None = None  #: as of the last read
        self._client = client
        self._id = secrets.randbelow(2**64 - 1) + 1
        self._position = 0

    def _ask(self, kind: int, options: CallOptions, **fields: Any) -> list[Packet]:
        request = ffi.new(
            "struct mr_capture_request *",
            {"kind": kind, "id": self._id, "position": self._position, **fields},
        )
        state, packets = ffi.new("struct mr_capture_state *"), []  # type: ignore[var-annotated]
        handle = ffi.new_handle(packets)
        arguments = (whole("core", self.core, _U32_MAX), request, state, callbacks.packets, handle)
        self._client._run(Call(lib.mr_capture, arguments, held=request), options)
        if kind in (_READ, _HALT):
            self._position = state.next
        if kind != _END:
            self.state = of_struct(CaptureState, state)
        return [Packet(**packet) for packet in packets]

    def read(self, **options: Unpack[CallOptions]) -> list[Packet]:
        """Some packets that were recorded since the last read; none if there are none. InvalidArgument: the
        core no longer has this capture."""
        return self._ask(_READ, options)

    def rest(self, **options: Unpack[CallOptions]) -> list[Packet]:
        """Records no more, and returns all packets that have not been read."""
        packets = self._ask(_HALT, options)
        while self.state is not None and self.state.left_bytes > 0:
            packets += self._ask(_HALT, options)
        return packets

    def end(self, **options: Unpack[CallOptions]) -> None:
        """Ends it; packets that were not read are gone."""
        self._ask(_END, options)

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class CaptureCalls(Connection):
    """The part of millrace.Client that looks at packets."""

    def capture(
        self,
        core: int = 0,
        *,
        peer: str | None = None,
        ops: Sequence[str] = (),
        who: str = "",
        snap_bytes: int = 0,
        ring_kib: int = 0,
        idle_s: float = 10.0,
        **options: Unpack[CallOptions],
    ) -> Capture:
        """Begins to record the packets of one core; needs a key of the role operator. AlreadyStarted: the
        core records for somebody else, whom the error names.

        peer: only packets from and to "10.0.0.7" or "10.0.0.7:41000".
        ops: only packets of calls of these operations, "lookup", "push_grad", ...
        who: named to others who are refused meanwhile.
        snap_bytes: kept of each packet; 0: 512.
        ring_kib: the core's memory for packets that have not been read; 0: 8192.
        idle_s: the capture ends when it is not read for so long.
        """
        made = Capture(self, core)
        names = [string(name) for name in ops]
        texts = [string(peer), string(who), ffi.new("char *[]", names)]
        made._ask(
            _START,
            options,
            peer=texts[0],
            who=texts[1],
            ops=texts[2],
            op_count=len(names),
            snap_bytes=whole("snap_bytes", snap_bytes, _U32_MAX),
            ring_kib=whole("ring_kib", ring_kib, _U32_MAX),
            idle_ms=milliseconds("idle_s", idle_s),
        )
        return made
