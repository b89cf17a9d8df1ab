"""HDFS and S3 for tests: the real servers, on the loopback of the test's namespace."""
from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from typing import Any

from cable import environment
from programs import Program

HERE = os.path.dirname(__file__)
START_S = 120.0
MAVEN_S = 300.0
SWIFT_PORT = 8080  # and the three after it: nothing else has ports there
KEY, SECRET = "test:tester", "testing"


class Store:
    """What both have in common. tell(): see Program."""

    def __init__(self, directory: str, command: list[str], **more: str) -> None:
        command = ["setpriv", "--pdeathsig", "KILL", *command]
        self._program = Program(command, os.path.join(directory, "log"), obeys=True, **more)
        self.ready = self._program.wait_line("ready", START_S)
        self.tell = self._program.tell

    def close(self) -> None:
        """Ends it."""
        self._program.end(signal.SIGKILL)


def _ask_swift(method: str, path: str, headers: dict[str, str]) -> Any:
    """By Swift's own API, which needs no signatures. Returns the headers of the answer."""
    request = urllib.request.Request(f"http://127.0.0.1:{SWIFT_PORT}{path}", method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=START_S) as answer:
        return answer.headers


class S3(Store):
    """Swift, with a bucket. Its key is in the environment from here on."""

    def __init__(self, directory: str) -> None:
        command = [sys.executable, os.path.join(HERE, "swift_server.py"), directory, str(SWIFT_PORT)]
        super().__init__(directory, command, PYTHONPATH=HERE)
        os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET)
        known = _ask_swift("GET", "/auth/v1.0", {"X-Auth-User": KEY, "X-Auth-Key": SECRET})
        _ask_swift("PUT", "/v1/AUTH_test/models", {"X-Auth-Token": known["X-Auth-Token"]})

    def url(self, name: str, port: int = SWIFT_PORT) -> str:
        """Of a directory; through another server at that port."""
        return f"s3://models/{name}?endpoint=http://127.0.0.1:{port}"


class Hdfs(Store):
    """A NameNode and two DataNodes. classes: Hadoop's. MiniHdfs.java says what tell() can ask for."""

    def __init__(self, directory: str, classes: str) -> None:
        command = "java -Xmx512m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.net.preferIPv4Stack=true"
        opened = ["--add-opens=java.base/java.lang=ALL-UNNAMED", "-cp", classes]
        arguments = [os.path.join(HERE, "MiniHdfs.java"), os.path.join(directory, "hdfs")]
        super().__init__(directory, [*command.split(), *opened, *arguments])
        self._port = int(self.ready.split()[1])

    def url(self, name: str) -> str:
        """Of a directory."""
        return f"hdfs://127.0.0.1:{self._port}/{name}?user.name=root"


def why_no_swift(directory: str) -> str:
    """Why it cannot be had; "" if it can."""
    if importlib.util.find_spec("swift") is None:
        return "python3-swift is not installed: run scripts/setup.sh test"
    try:
        os.setxattr(directory, "user.millrace", b"")
    except OSError:
        return f"{directory} has no extended attributes, which Swift needs"
    return ""


def find_hadoop() -> tuple[str, str]:
    """Hadoop's class path and ""; or "" and why it cannot be had. Maven keeps what it has downloaded, and
    looks there first."""
    says = ""
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as found:
        for network in ("--offline", "--batch-mode"):
            command = ["mvn", "--quiet", network, "-f", os.path.join(HERE, "pom.xml")]
            goal = ["dependency:build-classpath", f"-Dmdep.outputFile={found.name}"]
            try:
                done = subprocess.run(
                    command + goal,
                    env=environment(),
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=MAVEN_S,
                )
            except FileNotFoundError:
                return "", "mvn is not installed: run scripts/setup.sh test"
            except subprocess.TimeoutExpired:
                return "", f"Maven has not fetched Hadoop in {MAVEN_S:.0f} s"
            if done.returncode == 0:
                with open(found.name, encoding="utf-8") as out:
                    return out.read().strip(), ""
            says = (done.stdout.strip().splitlines() or [""])[0]
    return "", f"Maven cannot fetch Hadoop: {says[:300]}"
