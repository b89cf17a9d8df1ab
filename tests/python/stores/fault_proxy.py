"""A proxy in front of an S3 server that fails chosen requests."""
from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Callable, Union

PASS, BUSY, CUT, LOSE = "pass", "busy", "cut", "lose"
"""What becomes of a request: it is passed on; it is answered with 503; it is cut off before the server sees
it; or the server does it, and the connection is cut before the answer."""

Plan = Callable[[int], Union[str, None]]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FaultProxy

    def _cut(self) -> None:
        self.close_connection = True

    def _say(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
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

    def _pass_on(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.upstream, timeout=60)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() != "expect":
                    upstream.putheader(name, value)
            upstream.endheaders(body or None)
            answer = upstream.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            upstream.close()

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
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
    the server sees the request."""

    daemon_threads = True

    def __init__(self, upstream: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream, self.port = upstream, self.server_address[1]
        self._lock = threading.Lock()
        self._plan: Plan = lambda i: PASS
        self.count = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def start(self, plan: Plan) -> None:
        """Counts from 0 again."""
        with self._lock:
            self._plan, self.count = plan, 0

    def next_fate(self) -> str:
        """Of the request that has come."""
        with self._lock:
            self.count += 1
            return self._plan(self.count - 1) or PASS

    def close(self) -> None:
        """Ends it."""
        self.shutdown()
        self.server_close()
