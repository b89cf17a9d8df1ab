#!/usr/bin/env python3
"""A client of the wire protocol written from docs/protocol.md alone. It shares no code with the server it
talks to, so that page and code cannot drift apart unnoticed.
usage: second_client.py SMALL_SERVER"""

import hashlib
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time

import xxhash

HELLO, RETRY, ACCEPT, DATA, ACK, RESEND, BUSY, RESET, BYE, PING, PATH = range(1, 12)
REPLY, BUNDLE, PROBE = 1, 2, 4
NODE_INFO, HEARTBEAT, NO_SUCH_OP = 1, 16, 99
OK, UNKNOWN_OP = 0, 8
U8, U16, U32 = 1, 3, 6
VERSION = 4
HEADER = "<HBBHHQQIHHIIQ"
HEADER_BYTES = 56
ANSWER_S = 60
SILENCE_S = 0.5
BIND_TRIES = 20


# ---- section 2: keys, tags, proofs ----


def keyed_hash(domain, key, data, size):
    return hashlib.blake2b(data, digest_size=size, key=key, person=domain.encode().ljust(16)).digest()


def siphash_2_4(key, data):
    mask = (1 << 64) - 1

    def rotate(x, bits):
        return ((x << bits) | (x >> (64 - bits))) & mask

    def rounds(v, count):
        for _ in range(count):
            v[0] = (v[0] + v[1]) & mask
            v[1] = rotate(v[1], 13) ^ v[0]
            v[0] = rotate(v[0], 32)
            v[2] = (v[2] + v[3]) & mask
            v[3] = rotate(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & mask
            v[3] = rotate(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & mask
            v[1] = rotate(v[1], 17) ^ v[2]
            v[2] = rotate(v[2], 32)

    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        rounds(v, 2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(v, 4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def tag(key, header, payload):
    return siphash_2_4(key, header + struct.pack("<Q", xxhash.xxh3_64_intdigest(payload)))


# ---- sections 1 and 3: packets, sessions ----


class Packet:
    def __init__(self, datagram, key):
        (
            magic,
            version,
            self.type,
            self.flags,
            payload_bytes,
            self.session,
            self.call,
            self.message_bytes,
            self.segment_bytes,
            self.segment_number,
            self.incarnation,
            self.clock,
            self.number,
        ) = struct.unpack(HEADER, datagram[:48])
        assert magic == 0x524D and version == VERSION and len(datagram) == HEADER_BYTES + payload_bytes
        assert struct.unpack("<Q", datagram[48:56])[0] == tag(key, datagram[:48], datagram[56:]), "tag"
        self.payload = datagram[56:]
        self.offset = self.segment_number * self.segment_bytes


class Client:
    def __init__(self, port, psk):
        self.psk = psk
        self.hello_key = keyed_hash("mr2 hello key", psk, b"", 16)
        self.uuid = os.urandom(16)
        self.boot_nonce, self.nonce = struct.unpack("<QQ", os.urandom(16))
        self.session = self.incarnation = 0
        self.sent = self.hellos = 0
        self.numbers = set()
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect(("127.0.0.1", port))
        self.socket.settimeout(ANSWER_S)

    def session_key(self, session):
        return keyed_hash("mr2 session key", self.psk, struct.pack("<QI", session, self.incarnation), 16)

    def number(self, kind):
        if kind == HELLO:
            self.hellos += 1
            return self.hellos
        self.sent += 1
        return self.sent

    def send(self, kind, flags=0, payload=b"", call=0, message_bytes=0, key=None, session=None):
        header = struct.pack(
            HEADER,
            0x524D,
            VERSION,
            kind,
            flags,
            len(payload),
            self.session if session is None else session,
            call,
            message_bytes,
            0,
            0,
            self.incarnation,
            int(time.monotonic() * 1e6) & 0xFFFFFFFF,
            self.number(kind),
        )
        self.last = header + struct.pack("<Q", tag(key or self.key, header, payload)) + payload
        self.socket.send(self.last)

    def receive(self, key=None):
        packet = Packet(self.socket.recv(9000), key or self.key)
        if packet.type in (RETRY, ACCEPT, RESET):
            assert packet.number == (
                self.sent if packet.type == RESET else self.hellos
            ), "it echoes what it answers"
        else:
            assert packet.number not in self.numbers, "a packet's number came again"
            self.numbers.add(packet.number)
        return packet

    def hello(self, cookie=bytes(16)):
        key_id = hashlib.blake2b(self.psk, digest_size=32).digest()[:4]
        front = self.uuid + struct.pack(
            "<QQQ4sIHHHH", self.boot_nonce, self.nonce, self.session, key_id, 1 << 18, 1232, 4, 0, 0
        )
        front += cookie
        proof = bytes(32)
        if any(cookie):
            proof = keyed_hash("mr2 hello proof", self.psk, front + bytes(56), 32)
        self.send(HELLO, payload=front + proof + bytes(24), call=self.nonce, key=self.hello_key, session=0)

    def open(self):
        self.hello()
        retry = self.receive(self.hello_key)
        assert retry.type == RETRY and retry.call == self.nonce and len(retry.payload) == 16
        return self.open_with(retry.payload)

    def open_with(self, cookie):
        incarnation, self.incarnation = self.incarnation, 0
        self.hello(cookie)
        accept = self.receive(self.hello_key)
        body = accept.payload
        assert accept.type == ACCEPT and len(body) == 96
        (
            session,
            nonce,
            _,
            start,
            lineage,
            restores,
            self.incarnation,
            _,
            _,
            udp_bytes,
            window,
            core,
            cores,
            arrived,
            zero,
        ) = struct.unpack("<QQQQIIIIIHHHHHH", body[:64])
        assert (
            start != 0
            and lineage != 0
            and restores == 0
            and body[64:]
            == keyed_hash(
                "mr2 accept proof",
                self.psk,
                body[:64] + bytes(32) + self.uuid + struct.pack("<Q", self.boot_nonce),
                32,
            )
        )
        assert nonce == self.nonce and (udp_bytes, window, core, cores, arrived, zero) == (
            1232,
            4,
            0,
            1,
            0,
            0,
        )
        assert incarnation in (0, self.incarnation) and session & 255 == core
        self.session, self.segment = session, udp_bytes - HEADER_BYTES
        self.key = self.session_key(session)
        return cookie


# ---- section 6: messages ----


def empty_request(op):
    return struct.pack("<BBHHHHHIQQ", op, 0, 0, 0, 0, 0, 0, 10000, 7, 0)


def parse_message(message):
    op, _, _, status, _, count, zero, _, _, sequence = struct.unpack("<BBHHHHHIQQ", message[:32])
    assert zero == 0 and sequence == 0
    tensors, end = [], 32 + 32 * count
    for i in range(count):
        dtype, rank, zero0, *dims, zero1, size = struct.unpack(
            "<BBHIIIIIQ", message[32 + 32 * i : 64 + 32 * i]
        )
        assert zero0 == 0 and zero1 == 0 and not any(dims[rank:])
        start = (end + 63) // 64 * 64
        end = start + size
        tensors.append((dtype, dims[:rank], message[start:end]))
    assert end == len(message)
    return op, status, tensors


def frame(call, message):
    return struct.pack("<QII", call, len(message), 0) + message + bytes(-len(message) % 8)


# ---- what is tried ----


def ask_with_a_lost_segment(client, call):
    """Section 5: a reply of several segments, of which the second is lost once."""
    client.send(DATA, payload=empty_request(NODE_INFO), call=call, message_bytes=32)
    parts, total, lost = {}, None, False
    while total is None or sum(map(len, parts.values())) < total:
        packet = client.receive()
        assert packet.type == DATA and packet.flags == REPLY and packet.call == call
        assert packet.segment_bytes == client.segment
        assert packet.incarnation == client.incarnation
        total = packet.message_bytes
        if packet.offset == client.segment and not lost:
            lost = True
            continue
        parts[packet.offset] = packet.payload
        if client.segment not in parts and packet.offset + len(packet.payload) == total:
            sack = sum(1 << (at // client.segment - 2) for at in parts if at > client.segment)
            report = struct.pack("<IIII", client.segment, total, client.segment, 0) + sack.to_bytes(
                32, "little"
            )
            client.send(RESEND, REPLY, report, call)
    assert lost
    client.send(ACK, REPLY, struct.pack("<IIII", total, total, 0, 0) + bytes(32), call)
    op, status, tensors = parse_message(b"".join(parts[at] for at in sorted(parts)))
    assert (op, status) == (NODE_INFO, OK)
    assert tensors[0] == (U32, [4], struct.pack("<4I", 1, 1, 7700, 64 << 20))
    assert tensors[1] == (U16, [4096], struct.pack("<4096H", *range(4096)))


def receive_replies(client, calls):
    """Messages by call id, alone or in bundles; what still comes of older calls is left out."""
    replies = {}
    while set(replies) != set(calls):
        packet = client.receive()
        assert packet.type == DATA and packet.flags & REPLY
        at = packet.payload if packet.flags & BUNDLE else frame(packet.call, packet.payload)
        while at:
            call, size, zero = struct.unpack("<QII", at[:16])
            assert zero == 0
            if call in calls:
                replies[call] = parse_message(at[16 : 16 + size])
            at = at[16 + (size + 7) // 8 * 8 :]
    return replies


def ask_in_a_bundle(client, first, second):
    client.send(
        DATA, BUNDLE, frame(first, empty_request(HEARTBEAT)) + frame(second, empty_request(NO_SUCH_OP))
    )
    replies = receive_replies(client, (first, second))
    assert replies[first] == (HEARTBEAT, OK, [])
    assert replies[second] == (NO_SUCH_OP, UNKNOWN_OP, [(U8, [15], b"not served here")])


def ask_again(client, call):
    """Section 4: the same id again gets the kept answer."""
    client.send(DATA, PROBE, empty_request(HEARTBEAT), call, 32)
    assert receive_replies(client, (call,))[call] == (HEARTBEAT, OK, [])


def ping(client):
    client.send(PING, PROBE)
    answer = client.receive()
    assert answer.type == ACK and answer.call == 0 and len(answer.payload) == 48
    client.send(PATH, payload=bytes(1176), call=7)
    answer = client.receive()
    assert (answer.type, answer.flags, answer.call, len(answer.payload)) == (PATH, REPLY, 7, 1176)


def ping_again(client):
    """Section 3: a packet that came before is dropped."""
    client.send(PING, PROBE)
    client.receive()
    client.socket.send(client.last)
    client.socket.settimeout(SILENCE_S)
    try:
        client.receive()
    except TimeoutError:
        client.socket.settimeout(ANSWER_S)
        return
    raise AssertionError("a packet was taken in twice")


def expect_reset(client, session):
    """Section 3: for a packet that was made with the key, and under that session's key."""
    client.send(
        DATA, payload=empty_request(HEARTBEAT), call=9, message_bytes=32, session=session, key=bytes(16)
    )
    key = client.session_key(session)
    client.send(DATA, payload=empty_request(HEARTBEAT), call=9, message_bytes=32, session=session, key=key)
    answer = client.receive(key)
    assert answer.type == RESET and answer.session == session


def expect_silence(port, psk):
    stranger = Client(port, psk)
    stranger.socket.settimeout(SILENCE_S)
    stranger.hello()
    try:
        stranger.receive(stranger.hello_key)
    except TimeoutError:
        return
    raise AssertionError("whoever lacks the key got an answer")


def run(port, psk):
    client = Client(port, psk)
    cookie = client.open()
    ask_with_a_lost_segment(client, 1)
    ask_in_a_bundle(client, 3, 4)  # 2 left out: ids may be
    ask_again(client, 3)
    ping(client)
    ping_again(client)
    expect_reset(client, client.session ^ 1 << 32)
    session = client.session
    client.open_with(cookie)
    assert client.session == session, "a HELLO that names its session got another one"
    client.send(BYE)
    expect_reset(client, session)


def start(program, key_file):
    """On a free port; another process may take it first, so more than once."""
    for _ in range(BIND_TRIES):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        server = subprocess.Popen(
            [program, f"127.0.0.1:{port}"] + key_file, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        if server.stdout.readline() == b"ready\n":
            return server, port
        server.wait()
    sys.exit("second_client: the server does not start")


def with_server(program, key_file, what):
    server, port = start(program, key_file)
    try:
        what(port)
    finally:
        server.stdin.close()
        server.stdout.close()
        code = server.wait()
    assert code == 0, f"the server ended with {code}"


def main():
    program = sys.argv[1]
    psk = bytes(range(100, 132))
    with tempfile.NamedTemporaryFile("w") as key_file:
        print(psk.hex(), file=key_file, flush=True)
        with_server(program, [], lambda port: run(port, bytes(32)))
        with_server(program, [key_file.name], lambda port: run(port, psk))
        with_server(program, [key_file.name], lambda port: expect_silence(port, bytes(32)))
    print("second client: ok")


main()
