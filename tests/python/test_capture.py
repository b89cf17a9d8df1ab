"""Captures of packets, from Python."""
import time

import pytest

import millrace


@pytest.fixture(scope="module")
def reader(node):
    """Whose own packets are left out."""
    with millrace.Client(node.address, deadline_s=30.0) as client:
        yield client


def operations(packets):
    """Of those that begin a message, and are no bundle."""
    datagrams = [packet.data[42:] for packet in packets]  # after Ethernet, IPv4 and UDP
    return [
        data[56]
        for data in datagrams
        if data[3] == 4 and data[4] & 2 == 0 and data[30:32] == b"\0\0" and len(data) > 56
    ]


def test_packets_of_an_operation(client, reader):
    lookups, echoes = 8, 2
    table = client.table("captured", 4)
    with reader.capture(ops=["lookup"], who="a test", snap_bytes=200) as capture:
        assert capture.state.seen == 0 and capture.state.snap_bytes == 200
        began = time.time_ns()
        for _ in range(5):
            client.echo()
            table.lookup(range(1000))
        packets = capture.read()
        packets += capture.rest()
        assert capture.state.left_bytes == 0 and capture.state.lost == 0
        assert capture.state.seen > capture.state.wanted == len(packets) > 0
        assert {packet.is_sent for packet in packets} == {True, False}
        assert all(len(packet.data) == min(200, packet.packet_bytes) for packet in packets)
        assert all(abs(packet.time_ns - began) < 60e9 and packet.lost == 0 for packet in packets)
        assert lookups in operations(packets) and echoes not in operations(packets)
        assert capture.read() == []
    with pytest.raises(millrace.InvalidArgument, match="no such capture"):
        capture.read()


def test_one_at_a_time(client, reader):
    with reader.capture(who="anna"):
        with pytest.raises(millrace.AlreadyStarted, match="for anna at"):
            client.capture(who="bert")
    with client.capture(who="bert", peer="10.0.0.99:5", ring_kib=64, idle_s=1):
        pass


def test_mistakes(client):
    with pytest.raises(millrace.InvalidArgument, match='no operation "looup"'):
        client.capture(ops=["looup"])
    with pytest.raises(millrace.InvalidArgument, match="64..16384"):
        client.capture(snap_bytes=1)
