"""Copies of checkpoints to HDFS and S3 and back beside curl's, and what calls notice of them.

Real servers, in the node's namespace: Hadoop's, and S3Proxy, both from Maven Central (tests/python/stores/).
curl moves the same file to and from the same server, right before or after, over as many connections: as one
PUT to HDFS, to S3 in parts of the same size, whose hashes it has been told before; back from both in as many
ranges, and then onto the disk (fsync), as a pull is. The node's data core has CPU 1, the load CPU 0; the
threads that copy go where the kernel puts them, and so do the stores, which come after all others (nice):
elsewhere they would have processors of their own.
"""
import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from urllib.parse import quote, urlsplit

import checkpoint

HERE = os.path.dirname(os.path.abspath(__file__))
SERVE = os.path.join(HERE, "..", "python", "stores", "serve.py")
SERVE_PYTHON = "/usr/bin/python3"  # Debian's, for which its libraries are
JAVA_OPTIONS = "-Xmx1g"
KEY, SECRET = "test%3Atester", "testing"  # of serve.py
KINDS = {"s3": "s3proxy", "hdfs": "hdfs"}
RUNS = 3  # by turns, in a round
SIZE_BYTES = 384_000_000
PART_BYTES = 8 << 20  # as ps/store/s3.c
SEND_CONNECTIONS = 2  # to S3, for a file, as ps/store/part_sender.h; to HDFS there is one
READ_CONNECTIONS = 6  # as PS_COPY_BUFFERS
TOOL_SECONDS = 300

NODE_ROWS = ("stores_commit", "stores_keys_during", "stores_p99_during")
# name: (unit, better, target, what the target is compared with)
ROWS = {
    "stores_commit": ("s", "lower", 1.1, "ratio"),  # of a save on the disk, against one without a store
    "stores_keys_during": ("keys/s", "higher", 0.9, "ratio"),  # while a copy goes to HDFS
    "stores_p99_during": ("us", "lower", 1.5, "ratio"),
    **{
        f"stores_{kind}_{what}": ("MB/s", "higher", 0.8, "ratio")
        for kind in KINDS
        for what in ("push", "pull")
    },
}


class Store:
    """A server in a namespace. url(): of a directory there, for Millrace."""

    def __init__(self, kind, directory, space):
        os.makedirs(directory)
        environment = dict(os.environ, MILLRACE_JAVA_OPTIONS=JAVA_OPTIONS)
        command = ["nice", "-n", "19", SERVE_PYTHON, SERVE, KINDS[kind], directory, space]
        self.kind, self._said = kind, os.path.join(directory, "said")
        with open(self._said, "w", encoding="utf-8") as said:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )
        self._url = self._process.stdout.readline().strip()

    def why_not(self):
        """Why it does not serve; None: it does."""
        if self._url:
            return None
        with open(self._said, encoding="utf-8") as said:
            return (said.read().strip().splitlines() or ["it ended"])[-1]

    def url(self, name):
        return self._url.replace("/demo?", f"/{name}?")

    def http(self, name, query=""):
        """Of a file there, for curl."""
        if self.kind == "hdfs":
            return f"http://{urlsplit(self._url).netloc}/webhdfs/v1/{name}?user.name=root&{query}"
        endpoint = re.search("endpoint=http://([^&]*)", self._url).group(1)
        return f"http://{KEY}:{SECRET}@{endpoint}/models/{name}" + (f"?{query}" if query else "")

    def close(self):
        self._process.stdin.close()
        self._process.wait()


def options(name, value):
    """Lines of curl's configuration file."""
    if isinstance(value, list):
        return "\n".join(options(name, one) for one in value)
    return name if value is True else f"{name} = {json.dumps(value)}"


class Curl:
    """curl in a namespace: transfers are dictionaries of its long options, made side by side."""

    def __init__(self, space, store, directory):
        self.space, self.store = space, store
        self.config = os.path.join(directory, "curl.conf")

    def run(self, transfers, connections):
        """What it wrote to stdout."""
        more = {"silent": True, "show-error": True, "fail": True, "location": True}
        if self.store.kind == "s3":
            more["aws-sigv4"] = "aws:amz:us-east-1:s3"
        blocks = ["\n".join(options(name, value) for name, value in {**more, **t}.items()) for t in transfers]
        with open(self.config, "w", encoding="utf-8") as out:
            out.write("\nnext\n".join(blocks))
        command = ["ip", "netns", "exec", self.space, "curl", "--parallel", "--parallel-immediate"]
        command += ["--parallel-max", str(connections), "-K", self.config]
        done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=TOOL_SECONDS)
        if done.returncode != 0:
            raise RuntimeError(f"curl: {done.stderr.strip()[-300:]}")
        return done.stdout

    def send_whole(self, path, name):
        self.run([{"upload-file": path, "url": self.store.http(name, "op=CREATE&overwrite=true")}], 1)

    def send_parts(self, parts, name, connections):
        """An upload in parts, as S3 has it. parts: paths and hashes of their content."""
        empty = hashlib.sha256(b"").hexdigest()
        begin = {
            "request": "POST",
            "header": f"x-amz-content-sha256: {empty}",
            "url": self.store.http(name, "uploads="),
        }
        upload = quote(re.search("<UploadId>([^<]*)", self.run([begin], 1)).group(1), safe="")
        transfers = [
            {
                "upload-file": path,
                "header": f"x-amz-content-sha256: {digest}",
                "write-out": f"{i + 1} %header{{etag}}\\n",
                "url": self.store.http(name, f"partNumber={i + 1}&uploadId={upload}"),
            }
            for i, (path, digest) in enumerate(parts)
        ]
        etags = sorted(
            (int(n), etag) for n, etag in re.findall(r'(\d+) ("[^"]*")', self.run(transfers, connections))
        )
        body = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{etag}</ETag></Part>" for n, etag in etags)
        body = f"<CompleteMultipartUpload>{body}</CompleteMultipartUpload>"
        end = {
            "data-binary": body,
            "header": [
                f"x-amz-content-sha256: {hashlib.sha256(body.encode()).hexdigest()}",
                "Content-Type: application/xml",
            ],
            "url": self.store.http(name, f"uploadId={upload}"),
        }
        self.run([end], 1)

    def receive(self, name, size_bytes, paths):
        """In as many ranges as there are paths, onto the disk."""
        each, transfers = -(-size_bytes // len(paths)), []
        for i, path in enumerate(paths):
            start, end = i * each, min(size_bytes, (i + 1) * each)
            if self.store.kind == "hdfs":
                where = {"url": self.store.http(name, f"op=OPEN&offset={start}&length={end - start}")}
            else:
                unsigned = "x-amz-content-sha256: UNSIGNED-PAYLOAD"
                where = {"url": self.store.http(name), "range": f"{start}-{end - 1}", "header": unsigned}
            transfers.append({**where, "output": path})
        self.run(transfers, len(paths))
        for path in paths:
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)


def timed(function, *arguments):
    """Seconds."""
    start = time.monotonic()
    function(*arguments)
    return time.monotonic() - start


def why_not(directory, available_bytes):
    """A reason to leave the part out, or None."""
    for program in ("curl", "java", "mvn"):
        if shutil.which(program) is None:
            return f"{program} is not installed (scripts/setup.sh bench test)"
    if available_bytes < 8 << 30:
        return f"8 GiB of memory wanted, {available_bytes >> 20} MiB free"
    if shutil.disk_usage(directory).free < 12 * RUNS * SIZE_BYTES:  # HDFS has everything twice
        return f"{12 * RUNS * SIZE_BYTES >> 20} MiB of disk wanted in {directory}"
    return None


class Stores:
    """One round: `bench` is run.Bench, `tools` the module run."""

    def __init__(self, bench, tools):
        self.bench, self.tools = bench, tools
        self.root = bench.program(f"bench/stores-{os.getpid()}")
        self.saved = os.path.join(self.root, "saved")
        self.rows = SIZE_BYTES // checkpoint.ROW_BYTES
        self.cable = None

    @contextlib.contextmanager
    def store(self, kind):
        """None, and a line, where it cannot be had."""
        store = Store(kind, os.path.join(self.root, kind), self.cable.server)
        try:
            why = store.why_not()
            if why:
                print(f"bench: {KINDS[kind]} left out: {why}", file=sys.stderr)
            yield None if why else store
        finally:
            store.close()

    # ---- a node ----

    def node(self, **more):
        settings = {
            "checkpoint.directory": self.saved,
            "checkpoint.keep": 1,
            "checkpoint.every_s": 0,
            "checkpoint.save_on_stop": "no",
            "memory.limit_mib": (self.rows * checkpoint.MEMORY_PER_ROW_BYTES + checkpoint.MEMORY_SPARE_BYTES)
            >> 20,
        }
        command = self.bench.node_arguments(self.root, "socket", "server0", **{**settings, **more})
        return self.tools.serving(self.cable.server, command, "ready", checkpoint.NODE_CPUS, ())

    def client(self, pid, *arguments):
        command = [self.bench.program("tests/bench/bench_checkpoint"), "--server"]
        command += [f"{self.tools.SERVER_IP}:{self.tools.PORT}", "--pid", str(pid), "--rows", str(self.rows)]
        return self.tools.client_lines(self.cable.client, command + list(arguments), first=())

    def saves(self, pid, *then):
        """Seconds of each of some saves."""
        return [self.client(pid, "save", *then)["save"]["value"] for _ in range(RUNS)]

    def fill(self):
        """Leaves a checkpoint on the disk. Seconds of saves without a store."""
        with self.node(**{"checkpoint.restore": "none"}) as (_, pid):
            self.client(pid, "fill")
            return self.saves(pid)

    def node_rows(self, store, alone):
        with self.node(**{"checkpoint.remote": store.url("node")}) as (_, pid):
            self.client(pid, "copied")
            for with_store, without in zip(self.saves(pid, "copied"), alone):
                self.bench.add("stores_commit", with_store, without)
            lines = self.client(pid, "--saves", str(RUNS), "--seconds", "2", "copies")
        for row, line in (("stores_keys_during", "copy_keys"), ("stores_p99_during", "copy_p99")):
            self.bench.add(row, lines[line]["value"], lines[line]["limit"])

    # ---- files ----

    def ckpt(self, *arguments):
        command = ["ip", "netns", "exec", self.cable.server, self.bench.program("tools/millrace"), "ckpt"]
        key = {"AWS_ACCESS_KEY_ID": KEY.replace("%3A", ":"), "AWS_SECRET_ACCESS_KEY": SECRET}
        done = subprocess.run(
            command + list(arguments),
            env={**os.environ, **key},
            text=True,
            capture_output=True,
            check=False,
            timeout=TOOL_SECONDS,
        )
        if done.returncode != 0:
            raise RuntimeError(f"ckpt {arguments[0]}: {(done.stderr or done.stdout).strip()[-300:]}")

    def split(self, path):
        """The parts of a file, and their hashes."""
        parts = []
        with open(path, "rb") as whole:
            while part := whole.read(PART_BYTES):
                parts.append(
                    (os.path.join(self.root, f"part-{len(parts)}"), hashlib.sha256(part).hexdigest())
                )
                with open(parts[-1][0], "wb") as out:
                    out.write(part)
        return parts

    def file_rows(self, store):
        """The checkpoint on the disk there and back, by turns."""
        kind, curl = store.kind, Curl(self.cable.server, store, self.root)
        name = max(os.listdir(self.saved), key=lambda n: int(n[5:]) if n.startswith("ckpt-") else -1)
        path = os.path.join(self.saved, name, "core-000.mrc")
        size, parts = os.path.getsize(path), self.split(path) if kind == "s3" else []
        back = os.path.join(self.root, "back")
        ranges = [os.path.join(self.root, f"range-{i}") for i in range(READ_CONNECTIONS)]

        def send(to):
            if kind == "s3":
                curl.send_parts(parts, to, SEND_CONNECTIONS)
            else:
                curl.send_whole(path, to)

        send("warm")  # its code is compiled while it runs
        self.ckpt("push", self.saved, store.url("warm-too"))
        for i in range(RUNS):
            self.tools.say(f"  {kind}: there and back, {i + 1} of {RUNS}")
            os.sync()
            limit = timed(send, f"curl-{i}")
            os.sync()
            took = timed(self.ckpt, "push", self.saved, store.url(f"push-{i}"))
            self.bench.add(f"stores_{kind}_push", size / took / 1e6, size / limit / 1e6)
            os.sync()
            limit = timed(curl.receive, f"curl-{i}", size, ranges)
            for left in ranges:
                os.unlink(left)
            os.sync()
            took = timed(self.ckpt, "pull", store.url(f"push-{i}"), back)
            shutil.rmtree(back)
            self.bench.add(f"stores_{kind}_pull", size / took / 1e6, size / limit / 1e6)

    def round(self):
        shutil.rmtree(self.root, ignore_errors=True)
        os.makedirs(self.root)
        try:
            with self.tools.Cable(self.bench.mtu, server_kernel=True) as self.cable:
                alone = self.fill()
                for kind in KINDS:
                    with self.store(kind) as store:
                        if store and self.bench.wants(f"stores_{kind}_*"):
                            self.file_rows(store)
                        if store and kind == "hdfs" and any(map(self.bench.wants, NODE_ROWS)):
                            self.node_rows(store, alone)
        finally:
            shutil.rmtree(self.root, ignore_errors=True)
