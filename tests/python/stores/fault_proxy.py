"""A proxy in front of an S3 server, or of HDFS with its DataNodes, that fails chosen requests."""
from __future__ import annotations

import http.client
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Callable, Union

PASS, BUSY, CUT, LOSE = "pass", "busy", "cut", "lose"
"""What becomes of a request: it is passed on; it is answered with 503; it is cut off before the server sees
it; or the server does it, and the connection is cut before the answer."""

LARGE_BYTES = 1 << 20
"""A content of that many bytes, or of a length that is not said, waits while the proxy holds."""

Plan = Callable[[int], Union[str, None]]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FaultProxy

    def _cut(self) -> None:
        self.close_connection = True

    def _say(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        if len(body) >= LARGE_BYTES:
            self.server.wait_open()
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        if self.command == "HEAD":
            body = b""
            self.send_header("Content-Length", dict(headers).get("Content-Length", "0"))
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _is_large(self) -> bool:
        is_chunked = self.headers.get("Transfer-Encoding", "") == "chunked"
        return is_chunked or int(self.headers.get("Content-Length", "0")) >= LARGE_BYTES

    def _body(self) -> bytes:
        if self._is_large():
            self.server.wait_open()
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        chunks = []  # joined once: curl 8 sends a large body in thousands of them
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _lead_here(self, name: str, value: str) -> str:
        """A redirect to a DataNode leads through here, too."""
        led = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/.*)", value) if name == "Location" else None
        if led is None:
            return value
        self.server.led[led[2]] = int(led[1])
        return f"http://127.0.0.1:{self.server.port}{led[2]}"

    def _pass_on(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        port = self.server.led.get(self.path, self.server.upstream)
        upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("expect", "transfer-encoding", "content-length"):
                    upstream.putheader(name, value)
            if self.command in ("PUT", "POST"):
                upstream.putheader("Content-Length", str(len(body)))
            upstream.endheaders(body or None)
            answer = upstream.getresponse()
            headers = [(name, self._lead_here(name, value)) for name, value in answer.getheaders()]
            self.server.seen.append((self.command, self.path.split("?")[0], answer.status))
            return answer.status, headers, answer.read()
        finally:
            upstream.close()

    def _handle(self) -> None:
        body = self._body()
        self.server.now.request = self.command, self.path
        fate = self.server.next_fate()
        if fate == BUSY:
            self._say(503, [], b"<Error><Code>SlowDown</Code><Message>busy</Message></Error>")
        elif fate == CUT:
            self._cut()
        else:
            answer = self._pass_on(body)
            if fate == LOSE:
                self._cut()
            else:
                self._say(*answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:  # the client has gone
            pass

    def log_message(self, *_args: object) -> None:
        """Says nothing."""


class FaultProxy(ThreadingHTTPServer):
    """start(plan): plan(i) decides what becomes of the i-th request from then on, from 0. It is called before
    the server sees the request, of which now.request has method and target. seen: what the server was asked
    since then: method, path and status.

    hold(): contents, in either direction, go no further, as over a link that is full, until go(). held: how
    many wait for that."""

    daemon_threads = True

    def __init__(self, upstream: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream, self.port = upstream, self.server_address[1]
        self._lock = threading.Lock()
        self._plan: Plan = lambda i: PASS
        self.count = 0
        self.seen: list[tuple[str, str, int]] = []
        self.now = threading.local()
        self._open = threading.Event()
        self._open.set()
        self.held = 0
        self.led: dict[str, int] = {}  # path and query on a DataNode: its port
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def start(self, plan: Plan) -> None:
        """Counts from 0 again."""
        with self._lock:
            self._plan, self.count, self.seen = plan, 0, []

    def next_fate(self) -> str:
        """Of the request that has come."""
        with self._lock:
            index, plan = self.count, self._plan
            self.count += 1
        return plan(index) or PASS

    def hold(self) -> None:
        """From now on."""
        self._open.clear()

    def go(self) -> None:
        """All that waits goes on."""
        self._open.set()

    def wait_open(self) -> None:
        """Waits while it holds."""
        with self._lock:
            self.held += 1
        self._open.wait()
        with self._lock:
            self.held -= 1

    def close(self) -> None:
        """Ends it."""
        self.go()
        self.shutdown()
        self.server_close()
