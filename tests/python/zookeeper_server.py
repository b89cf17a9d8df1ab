"""A ZooKeeper server of a test's own, of Debian's package, in the network of the test."""
from __future__ import annotations

import ctypes
import re
import signal
import socket
import subprocess
from pathlib import Path

PORT = 2181


def die_with_parent() -> None:
    """For preexec_fn: the process is killed when the one that starts it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class ZooKeeperServer:
    """Its files are in a folder, and stay there. address: that it listens at; "": at all. It serves as it is
    made; kill() and start() again keep its data."""

    def __init__(self, folder: Path, address: str = ""):
        names = ("zookeeper", "zookeeper-jute", "slf4j-api")
        self.jars = [f"/usr/share/java/{name}.jar" for name in names]
        for pattern in ("slf4j-simple", "netty*", "snappy*", "metrics*", "commons-cli", "log4j*"):
            self.jars += [str(path) for path in Path("/usr/share/java").glob(f"{pattern}.jar")]
        self.config, self.log = folder / "zoo.cfg", (folder / "zookeeper.log").open("w")
        (folder / "zookeeper").mkdir()
        self.config.write_text(
            f"tickTime=500\ndataDir={folder}/zookeeper\nclientPort={PORT}\nadmin.enableServer=false\n"
            "minSessionTimeout=1000\nmaxSessionTimeout=60000\n4lw.commands.whitelist=*\n"
            + (f"clientPortAddress={address}\n" if address else "")
        )
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            ["java", "-Xmx200m", "-cp", ":".join(self.jars)]
            + ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self.config)],
            stdout=self.log,
            stderr=self.log,
            preexec_fn=die_with_parent,
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def says(self, what: str) -> int:
        """A number of its command mntr."""
        with socket.create_connection(("127.0.0.1", PORT), timeout=5) as connection:
            connection.sendall(b"mntr")
            text = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        found = re.search(rf"^{what}\s+(\d+)", text, re.MULTILINE)
        assert found, text
        return int(found.group(1))

    def __enter__(self) -> ZooKeeperServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(60)
        self.log.close()
