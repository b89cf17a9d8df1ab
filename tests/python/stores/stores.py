"""HDFS and S3 for tests: the real servers, on the loopback of the test's namespace."""
from __future__ import annotations

import hashlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from typing import Any

from cable import environment, run
from programs import Program

HERE = os.path.dirname(__file__)
START_S = 120.0
MAVEN_S = 300.0
SWIFT_PORT = 8080  # and the three after it: nothing else has ports there
HTTP2_PORT = 8443
KEY, SECRET = "test:tester", "testing"
PASSWORD = "millrace"  # of the file with the certificate's key
# Starts fast and takes little; what is measured beside it wants a compiler that takes its time.
_JAVA_OPTIONS = "-Xmx512m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
JAVA = f"java {os.environ.get('MILLRACE_JAVA_OPTIONS', _JAVA_OPTIONS)} -Djava.net.preferIPv4Stack=true"
_SSL_SERVER = """<configuration>
  <property><name>ssl.server.keystore.location</name><value>{keystore}</value></property>
  <property><name>ssl.server.keystore.password</name><value>{password}</value></property>
  <property><name>ssl.server.keystore.keypassword</name><value>{password}</value></property>
  <property><name>ssl.server.keystore.type</name><value>pkcs12</value></property>
</configuration>
"""


class Store:
    """What all have in common. tell(): see Program."""

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
        self.port = SWIFT_PORT
        self.make_bucket("models")

    def make_bucket(self, name: str, **facts: str) -> None:
        """With these headers of Swift: Container_Read="test:reader"."""
        known = _ask_swift("GET", "/auth/v1.0", {"X-Auth-User": KEY, "X-Auth-Key": SECRET})
        headers = {f"X-{fact.replace('_', '-')}": value for fact, value in facts.items()}
        headers["X-Auth-Token"] = known["X-Auth-Token"]
        _ask_swift("PUT", f"/v1/AUTH_test/{name}", headers)

    def url(self, name: str, port: int = SWIFT_PORT) -> str:
        """Of a directory; through another server at that port."""
        return f"s3://models/{name}?endpoint=http://127.0.0.1:{port}"


class Certificate:
    """Of 127.0.0.1 and localhost, signed by itself. keystore: for Java; ca: for those who trust it."""

    def __init__(self, directory: str) -> None:
        self.keystore, self.ca = (os.path.join(directory, name) for name in ("store.p12", "ca.pem"))
        of = ["-alias", "store", "-keystore", self.keystore, "-storepass", PASSWORD]
        name = ["-dname", "CN=store", "-ext", "san=ip:127.0.0.1,dns:localhost", "-validity", "30"]
        run("keytool", "-genkeypair", "-keyalg", "EC", "-storetype", "PKCS12", *name, *of)
        run("keytool", "-exportcert", "-rfc", "-file", self.ca, *of)


class S3Proxy(Store):
    """S3Proxy, which honours If-None-Match, with a bucket. classes: its own. Its key is Swift's."""

    def __init__(self, directory: str, classes: str, certificate: Certificate) -> None:
        self.buckets = os.path.join(directory, "buckets")
        os.makedirs(self.buckets)
        server = os.path.join(HERE, "S3Server.java")
        arguments = [server, self.buckets, KEY, SECRET, certificate.keystore, PASSWORD]
        super().__init__(directory, [*JAVA.split(), "-cp", classes, *arguments])
        os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET)
        self.port, self._secure_port = (int(word) for word in self.ready.split()[1:])
        self._ca = certificate.ca

    def url(self, name: str, port: int | None = None) -> str:
        """Of a directory; through another server at that port."""
        return f"s3://models/{name}?endpoint=http://127.0.0.1:{port or self.port}"

    def secure_url(self, name: str) -> str:
        """The same over HTTPS."""
        return f"s3://models/{name}?endpoint=https://127.0.0.1:{self._secure_port}&ca={self._ca}"


class Http2:
    """nghttpx, which speaks HTTP/2 over TLS, in front of a server at that port."""

    port = HTTP2_PORT

    def __init__(self, directory: str, behind: int, certificate: Certificate) -> None:
        key = os.path.join(directory, "key.pem")
        unlock = ["-nodes", "-passin", f"pass:{PASSWORD}"]
        run("openssl", "pkcs12", "-in", certificate.keystore, *unlock, "-out", key)
        self._requests = os.path.join(directory, "requests")
        log = [f"--accesslog-file={self._requests}", "--accesslog-format=$request"]
        command = ["nghttpx", f"-f127.0.0.1,{HTTP2_PORT}", f"-b127.0.0.1,{behind}", *log, key, key]
        command = ["setpriv", "--pdeathsig", "KILL", *command]
        self._program = Program(command, os.path.join(directory, "log"))

    def requests(self) -> list[str]:
        """The lines of the requests so far: "PUT /models/x HTTP/2"."""
        with open(self._requests, encoding="utf-8") as file:
            return file.read().splitlines()

    def close(self) -> None:
        """Ends it."""
        self._program.end(signal.SIGKILL)


def hadoop(server: str, directory: str, classes: str, certificate: Certificate) -> list[str]:
    """The command of one of the Java files here; with its SSL configuration in the directory."""
    conf = os.path.join(directory, "conf")
    os.makedirs(conf)
    with open(os.path.join(conf, "ssl-server.xml"), "w", encoding="utf-8") as out:
        out.write(_SSL_SERVER.format(keystore=certificate.keystore, password=PASSWORD))
    opened = [
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    ]
    return [*JAVA.split(), *opened, "-cp", f"{classes}:{conf}", os.path.join(HERE, server)]


class Hdfs(Store):
    """A NameNode and two DataNodes. classes: Hadoop's. MiniHdfs.java says what tell() can ask for."""

    def __init__(self, directory: str, classes: str, certificate: Certificate) -> None:
        command = hadoop("MiniHdfs.java", directory, classes, certificate)
        super().__init__(directory, [*command, os.path.join(directory, "hdfs")])
        self.port, self._secure_port = (int(word) for word in self.ready.split()[1:])
        self._ca = certificate.ca

    def url(self, name: str, port: int | None = None) -> str:
        """Of a directory; through another server at that port."""
        return f"hdfs://127.0.0.1:{port or self.port}/{name}?user.name=root"

    def secure_url(self, name: str) -> str:
        """The same over HTTPS."""
        return f"swebhdfs://127.0.0.1:{self._secure_port}/{name}?user.name=root&ca={self._ca}"


class SecureHdfs(Store):
    """HDFS that asks for Kerberos. known: the environment of somebody whom it lets in."""

    def __init__(self, directory: str, classes: str, certificate: Certificate) -> None:
        super().__init__(directory, [*hadoop("SecureHdfs.java", directory, classes, certificate), directory])
        _, port, krb5 = self.ready.split()
        keytab = os.path.join(directory, "trainer.keytab")
        self.known = {"KRB5_CONFIG": krb5, "KRB5_CLIENT_KTNAME": keytab, "KRB5CCNAME": "MEMORY:"}
        self._place, self._ca = f"swebhdfs://localhost:{port}", certificate.ca

    def url(self, name: str, port: int | None = None) -> str:
        """Of a directory."""
        assert port is None
        return f"{self._place}/ads/{name}?auth=negotiate&ca={self._ca}"


class Kafka(Store):
    """A broker. KafkaBroker.java says what tell() can ask for. address: of its open port; secure: of the one
    that asks for a password."""

    def __init__(self, directory: str, classes: str) -> None:
        server = os.path.join(HERE, "KafkaBroker.java")
        super().__init__(directory, [*JAVA.split(), "-cp", classes, server, directory])
        self.address, self.secure = (f"127.0.0.1:{port}" for port in self.ready.split()[1:])


def why_no_swift(directory: str) -> str:
    """Why it cannot be had; "" if it can."""
    if importlib.util.find_spec("swift") is None:
        return "python3-swift is not installed: run scripts/setup.sh test"
    try:
        os.setxattr(directory, "user.millrace", b"")
    except OSError:
        return f"{directory} has no extended attributes, which Swift needs"
    return ""


def _ask_maven(pom: str, found: str) -> str:
    """Writes the class path to the file `found`. Returns why it cannot; "" if it can. Maven keeps what it has
    downloaded, and looks there first."""
    says = ""
    for network in ("--offline", "--batch-mode"):
        command = ["mvn", "--quiet", network, "-f", pom]
        goal = ["dependency:build-classpath", f"-Dmdep.outputFile={found}"]
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
            return "mvn is not installed: run scripts/setup.sh test"
        except subprocess.TimeoutExpired:
            return f"Maven has not fetched it in {MAVEN_S:.0f} s"
        if done.returncode == 0:
            return ""
        says = (done.stdout.strip().splitlines() or [""])[0]
    return f"Maven cannot fetch it: {says[:300]}"


def _remembered(path: str) -> str:
    """A class path of before whose files are all there; "" if it is not."""
    try:
        with open(path, encoding="utf-8") as file:
            classes = file.read().strip()
    except FileNotFoundError:
        return ""
    return classes if all(map(os.path.exists, classes.split(":"))) else ""


def find_classes(name: str) -> tuple[str, str]:
    """The class path of NAME.pom.xml and ""; or "" and why it cannot be had. It is remembered: Maven takes
    seconds to say it again."""
    pom = os.path.join(HERE, f"{name}.pom.xml")
    with open(pom, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()[:16]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    directory = os.path.join(cache, "millrace-tests")
    path = os.path.join(directory, f"{name}-{digest}.classpath")
    if classes := _remembered(path):
        return classes, ""
    os.makedirs(directory, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as work:
        found = os.path.join(work, "classpath")
        if why := _ask_maven(pom, found):
            return "", why
        os.rename(found, path)  # at once: tests run in parallel
    return _remembered(path), ""
