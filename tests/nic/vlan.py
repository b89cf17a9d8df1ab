"""A VLAN on a tap, for kernels that have none: a second tap, whose frames go out on the first with a tag."""
from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import subprocess
import threading

TUNSETIFF, IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x400454CA, 0x0002, 0x1000, 0x4000
ETH_P_ALL, SOL_PACKET, PACKET_AUXDATA, PACKET_VNET_HDR, PACKET_OUTGOING = 0x0003, 263, 8, 15, 4
AUXDATA = struct.Struct("IIIHHHH")
MACS_END = 10 + 12
"""After virtio_net_hdr, which says what QEMU has left of the checksums, and the addresses."""
FRAME_BYTES = 16384


class Vlan:
    """The interface `name` on the tap `below`, with frames of up to `mtu` bytes beside their headers."""

    def __init__(self, below: str, name: str, number: int, mtu: int) -> None:
        self.tag = struct.pack("!HH", 0x8100, number)
        self.number = number
        self.tap = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(
            self.tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI | IFF_VNET_HDR)
        )
        for interface, length in ((below, mtu + 4), (name, mtu)):
            subprocess.run(["ip", "link", "set", interface, "mtu", str(length), "up"], check=True)
        self.wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        for option in (PACKET_AUXDATA, PACKET_VNET_HDR):
            self.wire.setsockopt(SOL_PACKET, option, 1)
        self.wire.bind((below, ETH_P_ALL))
        self.ends, self.end = os.pipe()
        self.thread = threading.Thread(target=self._carry)
        self.thread.start()

    def _carry(self) -> None:
        while True:
            ready, _, _ = select.select([self.tap, self.wire, self.ends], [], [])
            if self.ends in ready:
                return
            if self.tap in ready:
                frame = os.read(self.tap, FRAME_BYTES)
                self.wire.send(frame[:MACS_END] + self.tag + frame[MACS_END:])
            if self.wire in ready:
                self._receive()

    def _receive(self) -> None:
        """The kernel has taken the tag out of the frame."""
        frame, extra, _, sender = self.wire.recvmsg(FRAME_BYTES, socket.CMSG_SPACE(AUXDATA.size))
        if sender[2] == PACKET_OUTGOING:
            return
        for level, kind, data in extra:
            if (level, kind) == (SOL_PACKET, PACKET_AUXDATA) and AUXDATA.unpack(data)[
                5
            ] & 0xFFF == self.number:
                os.write(self.tap, frame)

    def close(self) -> None:
        os.close(self.end)
        self.thread.join()
        self.wire.close()
        for fd in (self.tap, self.ends):
            os.close(fd)
