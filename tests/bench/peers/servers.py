"""Millrace and its peers, each with its server on one CPU and its clients on the other, over a cable of its
own. For peers.py.

Each has `name`, `title`, rows(): those that it can do, why_not(), calls(rows, seconds): {row: figure,
"checks": ...}, and may have fm() and mnist(). What it was set to stands in `settings` afterwards.
"""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import remote
import run

HERE = pathlib.Path(__file__).resolve().parent
CALL_ROWS = ("empty_1", "empty_64", "pull", "lookup", "lookup_fed", "push", "set")
SENT_ROWS = tuple(
    row for row in CALL_ROWS if row != "lookup_fed"
)  # by those to which keys cannot be sent ahead
SERVER, CLIENT_SECONDS = f"{run.SERVER_IP}:{run.PORT}", 300
BATCH, EPOCHS, TRAINERS = 512, 2, 2


def better_of(lines, more):
    """Of each row the better figure of two ways to do it."""
    merged = dict(lines)
    for row, value in more.items():
        if row not in CALL_ROWS or row not in merged:
            merged.setdefault(row, value)
        else:
            merged[row] = (max if row == "empty_64" else min)(merged[row], value)
    return merged


def figures(lines):
    """{row: value} and the checks of a client's lines."""
    found = {name: line["value"] for name, line in lines.items() if name in CALL_ROWS}
    found["checks"] = {row: value for row, value in lines["checks"].items() if row != "name"}
    return found


def side_by_side(space, commands):
    """Runs clients of one namespace at once on the clients' CPU; each one's lines of JSON."""
    prefix = [*run.FIRST, "ip", "netns", "exec", space, "taskset", "-c", str(run.CPU_CLIENT)]
    with Logs(len(commands)) as logs:
        running = [
            subprocess.Popen(prefix + command, stdout=subprocess.PIPE, stderr=log, text=True)
            for command, log in zip(commands, logs)
        ]
        try:
            outputs = [process.communicate(timeout=CLIENT_SECONDS)[0] for process in running]
            for process, command, log in zip(running, commands, logs):
                if process.returncode != 0:
                    log.seek(0)
                    raise RuntimeError(f"{' '.join(command)}: {log.read().strip()[-500:]}")
        finally:
            for process in running:
                process.kill()
                process.wait()
    return [[json.loads(line) for line in output.splitlines() if line.startswith("{")] for output in outputs]


class Logs:
    """Files for what programs say on standard error; gone at the end."""

    def __init__(self, count):
        self.files = [tempfile.TemporaryFile("w+") for _ in range(count)]

    def __enter__(self):
        return self.files

    def __exit__(self, *_):
        for file in self.files:
            file.close()


class Peer:
    torch_python = remote.TORCH_PYTHON

    def __init__(self, bench, quick, directory):
        self.bench, self.quick, self.directory = bench, quick, directory
        self.remote = remote.Remote(bench, run, directory, self.torch_python)
        self.settings = ""

    def program(self, name):
        return self.bench.program(f"tests/bench/peers/{name}")

    def missing(self, *names):
        """Why not: programs that were not built."""
        for name in names:
            if not os.path.exists(self.program(name)):
                return f"{name} was not built, as where its libraries are missing (scripts/setup.sh peers)"
        return None

    def kernel_cable(self):
        """With an address at the server's end, too."""
        return run.Cable(self.bench.mtu, server_kernel=True)

    def client(self, cable, name, rows, seconds, *more):
        command = [
            self.program(name),
            "--server",
            SERVER,
            "--rows",
            ",".join(rows),
            "--seconds",
            str(seconds),
            *more,
        ]
        return figures(run.client_lines(cable.client, command))


class Millrace(Peer):
    name, title = "millrace", "Millrace"

    def rows(self):
        return (
            *CALL_ROWS,
            "fm",
            "fm_f16",
            *(["mnist"] if os.path.exists(self.bench.program("trainer_client/examples/mnist")) else []),
        )

    def why_not(self):
        return self.missing("millrace_client")

    def node_cable(self):
        """As the node's driver needs it."""
        return run.Cable(self.bench.mtu, server_kernel=self.bench.driver == "socket")

    def node(self, cable):
        """A server that says when it is ready."""
        more = {"cores.poll_mode": "adaptive", "memory.packets_mib": 256} if self.quick else {}
        command = self.bench.node_arguments(self.directory, self.bench.driver, "server0", **more)
        version = subprocess.run(
            [self.bench.program("ps/millraced"), "--version"], capture_output=True, text=True, check=True
        )
        self.settings = (
            f"{version.stdout.strip()}, one data core that polls; clients have the library's defaults: they "
            "spin for 50 us, then sleep (at once while others want the processor); two trainers with a hub "
            "beside them"
        )
        return run.serving(cable.server, command, "ready")

    def calls(self, rows, seconds):
        with self.node_cable() as cable, self.node(cable):
            return self.client(cable, "millrace_client", rows, seconds)

    def fm(self, data, least_auc):
        """Samples per second of two trainers with f32 and with f16 on the wire, and the lower AUC after both
        passes."""
        found = self.fm_over(data, least_auc, "f32")
        f16 = self.fm_over(data, least_auc, "f16")
        return {"fm": found["fm"], "fm_f16": f16["fm"], "auc": min(found["auc"], f16["auc"])}

    def fm_over(self, data, least_auc, wire_dtype):
        hub_address, programs = f"{run.CLIENT_IP}:7800", self.bench.program("trainer_client")
        plan = [
            "--hub",
            hub_address,
            "--server",
            SERVER,
            "--data",
            data,
            "--format",
            "flights",
            "--batch",
            str(BATCH),
            "--epochs",
            str(EPOCHS),
            "--give-up",
            "60",
            "--wire-dtype",
            wire_dtype,
        ]
        fm = [f"{programs}/examples/fm"]
        with self.node_cable() as cable, self.node(cable):
            hub = subprocess.Popen(
                [
                    *run.FIRST,
                    "ip",
                    "netns",
                    "exec",
                    cable.client,
                    "taskset",
                    "-c",
                    str(run.CPU_CLIENT),
                    f"{programs}/hub/millrace-hub",
                    "--listen",
                    hub_address,
                    "--without-key",
                    "--allow",
                    "/",
                    "--server",
                    SERVER,
                ],
                stderr=subprocess.DEVNULL,
            )
            try:
                side_by_side(cable.client, [[*fm, "plan", *plan]])
                lines = side_by_side(cable.client, [[*fm, "train", *plan, "--quiet"]] * TRAINERS)
                side_by_side(cable.client, [[*fm, "wait", *plan]])
                auc = side_by_side(cable.client, [[*fm, "evaluate", *plan]])[0][0]["auc"]
            finally:
                hub.terminate()
                hub.wait()
        return checked_fm("millrace", sum(trainer[0]["samples_per_s"] for trainer in lines), auc, least_auc)

    def mnist(self):
        """Images per second, both sides on both CPUs."""
        if not os.path.exists(self.bench.program("trainer_client/examples/mnist")):
            return None
        remote.write_pictures(self.remote.pictures, 320 if self.quick else remote.IMAGES_TRAIN)
        try:
            with self.kernel_cable() as cable:
                return self.remote.train(cable, self.bench.program("trainer_client/examples/mnist"), 1)
        finally:
            shutil.rmtree(self.remote.pictures)


def checked_fm(name, rate, auc, least_auc):
    if not auc >= least_auc:
        raise RuntimeError(
            f"{name}: the factorization machine's AUC is {auc:.4f}, at least {least_auc} is wanted"
        )
    return {"fm": rate, "auc": auc}


class Python(Millrace):
    """Its Python package; trains nothing here."""

    name, title = "python", "Millrace from Python"
    fm = mnist = None

    def rows(self):
        return SENT_ROWS

    def why_not(self):
        package = self.bench.program("trainer_client/python/millrace/__init__.py")
        return (
            None
            if os.path.exists(package)
            else "the Python package was not built, as where cffi or numpy are missing"
        )

    def calls(self, rows, seconds):
        command = [
            remote.TORCH_PYTHON,
            str(HERE / "python_client.py"),
            "--server",
            SERVER,
            "--rows",
            ",".join(row for row in rows if row != "lookup_fed"),
            "--seconds",
            str(seconds),
        ]
        package = {
            "PYTHONPATH": self.bench.program("trainer_client/python"),
            "MILLRACE_LIBRARY": self.bench.program("trainer_client/libmillrace.so"),
        }
        with self.node_cable() as cable, self.node(cable):
            lines = run.client_lines(cable.client, command, package)
        self.settings = "package millrace over arrays of numpy, the server as Millrace's"
        return figures(lines)


class Torch(Peer):
    name, title = "torch", "PyTorch RPC"
    blas = "OpenBLAS"
    fm_modes = ("ahead", "plain", "autograd")
    fm_workers = "2"  # faster than 4 and 16: one CPU

    def rows(self):
        return (*SENT_ROWS, "fm", "mnist")

    def why_not(self):
        return None if self.remote.torch else "no python3-torch (scripts/setup.sh peers)"

    def command(self, script, what, rank, interface, *more, master=run.SERVER_IP):
        return [
            "timeout",
            str(CLIENT_SECONDS),
            "env",
            "OMP_NUM_THREADS=1",
            "MKL_NUM_THREADS=1",
            self.torch_python,
            str(HERE / script),
            what,
            "--rank",
            str(rank),
            "--interface",
            interface,
            "--master-addr",
            master,
            "--master-port",
            str(remote.TORCH_PORT),
            *more,
        ]

    def calls(self, rows, seconds):
        best = {}
        rows = [row for row in rows if row != "lookup_fed"]
        for api in ("script", "python"):
            more = ("--rows", ",".join(rows), "--seconds", str(seconds))
            with self.kernel_cable() as cable:
                server = self.command("torch_calls.py", api, 1, "server0", *more, master=run.CLIENT_IP)
                client = self.command("torch_calls.py", api, 0, "client0", *more, master=run.CLIENT_IP)
                with run.serving(cable.server, server, "ready"):
                    lines = run.client_lines(cable.client, client)
            best = better_of(best, figures(lines))
        self.note(lines["torch_settings"])
        return best

    def note(self, settings):
        self.settings = (
            f"torch {settings['version']}, {self.blas}, TensorPipe over TCP (uv, basic), "
            f"{settings['rpc_threads']} threads for "
            f"calls ({self.fm_workers} in FM), {settings['threads']} for tensors; functions of Python and "
            "TorchScript, of each row "
            "the faster; SGD"
        )

    def fm(self, lines_max, least_auc):
        """Each way, and the fastest."""
        best = {"fm": 0.0}
        more = ("--workers", self.fm_workers, *(("--lines", str(lines_max)) if lines_max else ()))
        for mode in self.fm_modes:
            with self.kernel_cable() as cable:
                trainers = [
                    self.command("torch_fm.py", mode, rank, "client0", *more)
                    for rank in range(1, TRAINERS + 1)
                ]
                with run.serving(
                    cable.server, self.command("torch_fm.py", mode, 0, "server0", *more), "ready"
                ):
                    lines = side_by_side(cable.client, trainers)
            result = checked_fm(
                f"torch, {mode}", sum(trainer[0]["value"] for trainer in lines), lines[0][0]["auc"], least_auc
            )
            best[f"fm_{mode}"] = result["fm"]
            if result["fm"] > best["fm"]:
                best.update(result)
        return best

    def mnist(self):
        with self.kernel_cable() as cable:
            self.remote.torch_steps = 4 if self.quick else 60
            return self.remote.torch_mnist(cable)


class Torch2(Torch):
    """PyPI's, in an environment of its own, which scripts/bench-peers.sh --torch2 makes."""

    name, title, blas = "torch2", "PyTorch 2 RPC", "MKL"

    def __init__(self, bench, quick, directory):
        self.torch_python = bench.program("bench/torch2/bin/python")
        super().__init__(bench, quick, directory)

    def why_not(self):
        return None if self.remote.torch else "no PyTorch 2 (scripts/bench-peers.sh --torch2: from PyPI)"


class TorchRec(Torch2):
    """In the trainer's process: FBGEMM's tables there are no server's."""

    name, title = "torchrec", "TorchRec"
    fm = mnist = None

    def rows(self):
        return ("pull", "lookup", "push")

    def why_not(self):
        found = (
            [self.torch_python, "-c", "import torchrec"] if os.path.exists(self.torch_python) else ["false"]
        )
        if subprocess.run(found, capture_output=True, check=False).returncode == 0:
            return None
        return "no TorchRec in build/bench/torch2 (scripts/bench-peers.sh --torch2: from PyPI)"

    def calls(self, rows, seconds):
        chosen = [row for row in rows if row in self.rows()]
        if not chosen:
            return {"checks": {}}
        command = [
            self.torch_python,
            str(HERE / "torchrec_calls.py"),
            "--rows",
            ",".join(chosen),
            "--seconds",
            str(seconds),
        ]
        with self.kernel_cable() as cable:
            lines = run.client_lines(cable.client, command, {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
        settings = lines["torchrec_settings"]
        self.settings = (
            f"torchrec {settings['torchrec']} with FBGEMM, torch {settings['torch']}, {settings['threads']} "
            "thread; the table is in the trainer's memory, with no server and no cable; SGD"
        )
        return figures(lines)


class Grpc(Peer):
    name, title = "grpc", "gRPC C++"

    def rows(self):
        return SENT_ROWS

    def why_not(self):
        return self.missing("grpc_server", "grpc_client")

    def calls(self, rows, seconds):
        best, said = {}, ""
        rows = [row for row in rows if row != "lookup_fed"]
        for server_api, client_api in (("cq", "cq"), ("callback", "sync")):
            with self.kernel_cable() as cable:
                with run.serving(
                    cable.server, [self.program("grpc_server"), server_api, SERVER], "ready"
                ) as (line, _):
                    said = line.split()[1:3]
                    best = better_of(
                        best, self.client(cable, "grpc_client", rows, seconds, "--api", client_api)
                    )
        self.settings = (
            f"{', '.join(said)}, no TLS, no compression; a completion queue with one thread and messages in "
            "arenas, and the "
            "callback API with blocking calls, of each row the faster; windows of 8 MiB, frames of 16 MiB; "
            "Abseil's hash "
            "map, Adagrad"
        )
        return best


class Redis(Peer):
    name, title = "redis", "Redis"
    options = (
        "--save",
        "",
        "--appendonly",
        "no",
        "--io-threads",
        "1",
        "--activerehashing",
        "no",
        "--latency-tracking",
        "no",
        "--slowlog-log-slower-than",
        "-1",
        "--tcp-keepalive",
        "0",
        "--protected-mode",
        "no",
    )

    def rows(self):
        return tuple(row for row in SENT_ROWS if row != "push")

    binary = "/usr/bin/redis-check-rdb"  # of redis-tools; it is the server when it is called so

    def why_not(self):
        return self.missing("redis_client") or (
            None if os.path.exists(self.binary) else "no redis-tools (scripts/setup.sh peers)"
        )

    def server(self):
        path = os.path.join(self.directory, "redis-server")
        if not os.path.lexists(path):
            os.symlink(self.binary, path)
        return path

    def calls(self, rows, seconds):
        version = subprocess.run(
            [self.server(), "--version"], capture_output=True, text=True, check=True
        ).stdout.split()
        self.settings = (
            f"redis {dict(word.split('=', 1) for word in version if '=' in word)['v']}, one thread, nothing "
            "on disk, no "
            f"rehashing aside, no latency tracking; hiredis {hiredis_version()}: a pipeline of MGET or MSET "
            "of 512 keys each, "
            "keys of 8 and rows of 64 bytes"
        )
        rows = [row for row in rows if row != "lookup_fed"]
        if "push" in rows and "set" not in rows:
            rows = [*rows, "set"]
        server = [
            self.server(),
            "--bind",
            run.SERVER_IP,
            "--port",
            str(run.PORT),
            "--dir",
            self.directory,
            *self.options,
        ]
        with self.kernel_cable() as cable, run.serving(cable.server, server, "Ready to accept"):
            return self.client(cable, "redis_client", rows, seconds)


def hiredis_version():
    done = subprocess.run(
        ["pkg-config", "--modversion", "hiredis"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "of unknown version"


ALL = (Millrace, Python, Torch, Torch2, TorchRec, Grpc, Redis)
