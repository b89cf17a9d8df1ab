"""A store of HTTPS that redirects to plain HTTP does not get the delegation token out of TLS.

usage: test_store_redirect.py MILLRACE
"""
import http.server
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import urllib.parse
from pathlib import Path

TOKEN = "a-delegation-token"


class Server(http.server.ThreadingHTTPServer):
    """A NameNode that leads reads elsewhere, or the place where they arrive."""

    daemon_threads = True

    def __init__(self, leads_to: str | None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.leads_to = leads_to
        self.asked: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    """WebHDFS, as far as a directory with one checkpoint is listed and its MANIFEST opened."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:  # noqa: N802
        self.server.asked.append(self.path)
        op = urllib.parse.parse_qs(urllib.parse.urlparse(self.path).query).get("op", [""])[0]
        if op == "OPEN" and self.server.leads_to is not None:
            self.send_response(307)
            self.send_header("Location", f"{self.server.leads_to}/stolen?op=OPEN&delegation={TOKEN}")
            body = b""
        else:
            self.send_response(200)
            entry = {"pathSuffix": "ckpt-1", "type": "DIRECTORY", "length": 0, "modificationTime": 1}
            listing = {"partialListing": {"FileStatuses": {"FileStatus": [entry]}}, "remainingEntries": 0}
            status = {"type": "FILE", "length": 100, "modificationTime": 1, "pathSuffix": ""}
            answers = {
                "LISTSTATUS_BATCH": {"DirectoryListing": listing},
                "GETFILESTATUS": {"FileStatus": status},
            }
            body = json.dumps(answers.get(op, {})).encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def certificate(directory: Path) -> Path:
    file = directory / "server.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
        + ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(file), "-out", str(directory / "ca.pem")],
        check=True,
        capture_output=True,
    )
    with open(file, "a", encoding="ascii") as both:
        both.write((directory / "ca.pem").read_text(encoding="ascii"))
    return file


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="millrace-test-redirect-") as made:
        directory = Path(made)
        plain = Server(None)
        secure = Server(f"http://127.0.0.1:{plain.server_address[1]}")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate(directory))
        secure.socket = context.wrap_socket(secure.socket, server_side=True)
        url = f"swebhdfs://127.0.0.1:{secure.server_address[1]}/ads?ca={directory}/ca.pem"
        listed = subprocess.run(
            [sys.argv[1], "ckpt", "info", url],
            env={**os.environ, "MILLRACE_HDFS_TOKEN": TOKEN},
            capture_output=True,
            text=True,
            timeout=120,
        )
        said = listed.stdout + listed.stderr
        assert any("op=OPEN" in path for path in secure.asked), f"it read nothing: {secure.asked}\n{said}"
        assert plain.asked == [], f"asked by plain HTTP: {plain.asked}\n{said}"
        assert listed.returncode != 0 and "must not lead to plain HTTP" in said, said


main()
