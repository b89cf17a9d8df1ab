#!/usr/bin/env python3
"""Runs the benchmarks and prints each as a ratio against a limit measured in the same run.

The server has one CPU, the client another; a veth pair between two network namespaces connects them. Every
round measures limits and calls one after the other, and a ratio is the median over the rounds, so that a
machine whose speed drifts does not decide. Writes build/bench/results.json.
"""
import argparse
import contextlib
import fnmatch
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import checkpoint
import mtu
import nodes
import observe
import push_log
import quiet
import remote
import stores
import table
import worst

CPU_SERVER, CPU_CLIENT = 1, 0
SERVER_IP, CLIENT_IP, PORT = "10.99.0.1", "10.99.0.2", 7700
BULK_BYTES = 13312 * 16 * 4
LARGE_BYTES = 8 << 20
LOSS_PPM = 10000
TRANSPORT_SECONDS = 1
# least time that a sender waits beyond a round trip before it asks: MR_PTO_GRANULARITY_US and a timer tick
PROBE_US = 1032
DEMO_SAMPLE_BYTES = 13 * 9 * 4 * 2  # slots, factors and weight, float, there and back
READY_SECONDS = 30
TABLE_LARGE_BYTES = 10 << 30  # that 50 M rows of 16 floats and their bare copy take
WHOLE_FRAMES = ("tx", "off", "gso", "off", "gro", "off")  # for a program that carries them
FIRST = ["nice", "-n", "-20"]  # whatever else runs on the machine comes after the two
AUTOGROUP = "/proc/self/autogroup"  # its priority counts against other sessions', and not a process's

# part: {name: (unit, better, target, what the target is compared with: "ratio" or "value")}
ROWS = {
    "veth": {
        "empty_call_1": ("us", "lower", 1.3, "ratio"),
        "empty_call_64": ("calls/s", "higher", 1e6, "value"),
        "pull_13312x16": ("us", "lower", 1.3, "ratio"),
        "push_13312x16": ("us", "lower", 500.0, "value"),
        "lookup_512x26_by_batch": ("us", "lower", 1.3, "ratio"),
        "lookup_512x26_summed_by_batch": ("us", "lower", 150.0, "value"),
        "empty_call_64_unbundled": ("calls/s", "higher", 0.8, "ratio"),
        "pull_8mb": ("MB/s", "higher", 0.75, "ratio"),
        "push_8mb": ("MB/s", "higher", 0.75, "ratio"),
        "small_under_bulk_p99": ("us", "lower", 3.0, "ratio"),
        "bulk_at_1pct_loss": ("MB/s", "higher", 0.7, "ratio"),
        "small_at_1pct_loss_p99": ("us", "lower", 1.0, "ratio"),
    },
    "socket": {
        "socket_empty_call_1": ("us", "lower", 1.15, "ratio"),
        "socket_empty_call_64": ("calls/s", "higher", 0.8, "ratio"),
        "socket_pull_13312x16": ("us", "lower", 1.25, "ratio"),
        "socket_push_13312x16": ("us", "lower", 1.25, "ratio"),
        "socket_set_13312x16": ("us", "lower", 1.25, "ratio"),
        "socket_bags_512x26": ("us", "lower", 1.25, "ratio"),
        "socket_pull_8mb": ("MB/s", "higher", 0.8, "ratio"),
        "socket_push_8mb": ("MB/s", "higher", 0.8, "ratio"),
        "socket_small_under_bulk_p99": ("us", "lower", 2.5, "ratio"),
    },
    "worst": worst.ROWS,
    "python": {
        "python_lookup_1_over_c": ("us", "lower", 15.0, "value"),
        "python_lookup_64_over_c": ("us", "lower", 15.0, "value"),
        "python_pull_share_numpy": ("of C's", "higher", 0.9, "value"),
        "python_pull_share_torch": ("of C's", "higher", 0.9, "value"),
        "python_push_share_numpy": ("of C's", "higher", 0.9, "value"),
        "python_push_share_torch": ("of C's", "higher", 0.9, "value"),
        "python_tables_lookup": ("of 26 calls", "lower", 0.6, "value"),
        "python_tables_push": ("of 26 calls", "lower", 0.8, "value"),
        "python_step_one_call": ("of a step with 26 calls", "lower", 0.8, "value"),
        "python_step_prefetch": ("of a step without", "lower", 0.9, "value"),
    },
    "rpc": remote.ROWS,
    "memif": {
        "memif_lookup_1": ("calls/s", "higher", 4e6, "value"),
        "memif_lookup_large": ("keys/s", "higher", 0.75, "ratio"),
        "memif_echo_under_garbage": ("calls/s", "higher", 1.0, "ratio"),
    },
    "checkpoint": checkpoint.ROWS,
    "log": push_log.ROWS,
    "stores": stores.ROWS,
    "nodes": nodes.ROWS,
    "observe": observe.ROWS,
    "mtu": mtu.ROWS,
    "demo": {"demo_samples": ("samples/s", "higher", 5 * 134e3, "value")},
}
# Rows that a program names itself, with their targets: bench_table, bench_growth, bench_skew, big_table.
PATTERNS = {
    "table": ("table_*_1000k", "table_*_10000k", "table_wide_*"),
    "table_large": ("table_*_50000k", "table_insert_growing", "zipf_core_share", "big_*"),
}
# part: seconds of a round; mtu, a large table and the demo come once, at the end
PARTS = {
    "veth": 45,
    "socket": 20,
    "worst": 15,
    "python": 30,
    "rpc": 120,
    "memif": 30,
    "table": 60,
    "checkpoint": 150,
    "log": 40,
    "stores": 130,
    "nodes": 120,
    "observe": 75,
    "mtu": 140,
    "table_large": 150,
    "demo": 60,
}
ONCE = ("mtu", "table_large", "demo")


def run(*command, **options):
    return subprocess.run(command, check=True, text=True, **options)


class Cable:
    """Two namespaces and a veth pair; gone at the end, whatever happens."""

    def __init__(self, mtu, server_kernel=False, cut=False):
        """server_kernel: the server's address is its kernel's, as driver = socket needs. cut: server0 leads
        to server1 and client1 to client0, all but the last in the server's namespace: a program must carry
        the frames, which come one by one then."""
        self.server, self.client = (f"mrbench-{os.getpid()}-{side}" for side in ("s", "c"))
        self.mtu, self.server_kernel, self.cut = mtu, server_kernel, cut

    def __enter__(self):
        for space in (self.server, self.client):
            run("ip", "netns", "add", space)
            run("ip", "-n", space, "link", "set", "lo", "up")
        if self.cut:
            self.lay("server0", "server1", self.server)
            self.lay("client1", "client0", self.client)
            for space, end in ((self.server, "server0"), (self.client, "client0")):
                run(
                    "ip",
                    "netns",
                    "exec",
                    space,
                    "ethtool",
                    "-K",
                    end,
                    *WHOLE_FRAMES,
                    stdout=subprocess.DEVNULL,
                )
            for end in ("server1", "client1"):
                run("ip", "-n", self.server, "link", "set", end, "up")
        else:
            self.lay("server0", "client0", self.client)
        run("ip", "-n", self.client, "addr", "add", f"{CLIENT_IP}/24", "dev", "client0")
        run("ip", "-n", self.client, "link", "set", "client0", "up")
        if self.server_kernel:
            run("ip", "-n", self.server, "addr", "add", f"{SERVER_IP}/24", "dev", "server0")
            run("ip", "-n", self.server, "link", "set", "server0", "up")
        return self

    def lay(self, end, peer, peer_space):
        """A veth pair from the server's namespace."""
        mtu = ("mtu", str(self.mtu))
        there = ("peer", "name", peer, *mtu, "netns", peer_space)
        run("ip", "-n", self.server, "link", "add", end, *mtu, "type", "veth", *there)

    def __exit__(self, *_):
        for space in (self.server, self.client):
            subprocess.run(["ip", "netns", "del", space], check=False)


@contextlib.contextmanager
def serving(space, command, ready, cpus=str(CPU_SERVER), first=None):
    """A server process pinned to its CPUs; yields the line with which it said that it serves, and its process
    id."""
    prefix = list(FIRST if first is None else first) + (["ip", "netns", "exec", space] if space else [])
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            prefix + ["taskset", "-c", cpus] + command, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            limit = time.monotonic() + READY_SECONDS
            for line in process.stdout:
                if ready in line:
                    break
                if time.monotonic() > limit:
                    raise RuntimeError(f"{command[0]} did not start in {READY_SECONDS} s")
            else:
                log.seek(0)
                raise RuntimeError(f"{command[0]} ended: {log.read().strip()}")
            yield line.strip(), process.pid  # each of the prefix's programs becomes the next
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def client_lines(space, command, environment=None, first=None, cpus=str(CPU_CLIENT)):
    """Runs a client pinned to its CPUs; its JSON lines by name."""
    prefix = list(FIRST if first is None else first) + (["ip", "netns", "exec", space] if space else [])
    say(
        "  " + " ".join(os.path.basename(word) for word in command if not word.startswith(("MILL", "PYTHON")))
    )
    done = subprocess.run(
        prefix + ["taskset", "-c", cpus] + command,
        text=True,
        capture_output=True,
        check=False,
        timeout=900,
        env=dict(os.environ, **(environment or {})),
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    lines = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    return {line["name"]: line for line in lines}


class Bench:
    def __init__(self, arguments):
        self.build = os.path.abspath(arguments.build)
        self.driver, self.mtu, self.runs = arguments.driver, arguments.mtu, arguments.runs
        self.garbage = arguments.garbage
        self.only = getattr(arguments, "only", [])
        self.checkpoint_bytes = int(arguments.checkpoint_gb * 1e9)
        self.rows = {name: row for rows in ROWS.values() for name, row in rows.items()}
        self.rounds = {name: [] for name in self.rows}  # (value, limit) per round
        self.noisy = {name: [] for name in self.rows}  # the same, beside another process
        self.quiet = {}  # {name: [(steal, others) per round]}, see quiet.py
        self.limits = {}  # what the port and sockets alone can do: {name: {driver: [value per round]}}
        self.notes = {}
        self.blast_us = None

    def program(self, path):
        return os.path.join(self.build, path)

    def add(self, name, value, limit):
        self.rounds[name].append((value, limit))

    def call_limits(self, cable, driver, mtu=None, runs=None):
        """Of the calls of bench_calls and bench_transport, by their names and in their units. Of a cable of
        another MTU they do not stand in the table of limits."""
        find = self.bare_limits if driver == "socket" else self.port_limits
        limits = find(cable, driver, mtu or self.mtu, runs or self.runs)
        for name, value in limits.items() if mtu is None else ():
            self.limits.setdefault(name, {}).setdefault(driver, []).append(value)
        return limits

    def bare_limits(self, cable, _driver, mtu, runs):
        """The simplest server for the same calls over the same sockets."""
        server = [self.program("tests/bench/bare_server"), str(PORT), str(mtu)]
        with serving(cable.server, server, "ready"):
            lines = client_lines(
                cable.client, self.limit_client("bare_client", "--mtu", str(mtu), "--runs", str(runs))
            )
        return {name: line["value"] for name, line in lines.items()}

    def port_limits(self, cable, driver, mtu, runs):
        """A DPDK port's: the same bytes as a raw echo, or a blast of one way."""
        port = ["--driver", driver, "--device", "server0", "--ipv4", f"{SERVER_IP}/24", "--port", str(PORT)]

        def measure(mode, *options):
            with serving(cable.server, [self.program("tests/bench/raw_server"), mode, *port], "ready"):
                lines = client_lines(cable.client, self.limit_client("raw_client", *options, mode=mode))
            return {name: line["value"] for name, line in lines.items()}

        def blast_us(size):
            count = max(runs * BULK_BYTES // size, 1)
            return measure("blast", "--bytes", str(size), "--mtu", str(mtu), "--runs", str(count))[
                "raw_blast"
            ]

        echo, bulk, large = measure("echo"), blast_us(BULK_BYTES), LARGE_BYTES / blast_us(LARGE_BYTES)
        return {
            "empty_call_1": echo["raw_echo_1"],
            "empty_call_64": echo["raw_echo_64"],
            "pull_13312x16": bulk,
            "push_13312x16": bulk,
            "pull_8mb": large,
            "push_8mb": large,
        }

    def limit_client(self, program, *options, mode=None):
        mode = [mode] if mode else []
        return [self.program(f"tests/bench/{program}"), *mode, "--server", f"{SERVER_IP}:{PORT}", *options]

    def node_arguments(self, directory, driver, device, **more):
        settings = {
            "node.name": f"bench-{os.getpid()}",
            "port.driver": driver,
            "port.device": device,
            "port.ipv4": f"{SERVER_IP}/24",
            "port.udp_port": PORT,
            "cores.count": 1,
            "cores.cpus": CPU_SERVER,
            "cores.poll_mode": "busy",
            "memory.limit_mib": 8192,
            "checkpoint.directory": "",
        }
        settings.update(more)
        config = os.path.join(directory, "millraced.conf")
        with open(config, "w", encoding="utf-8") as out:
            run(self.program("ps/millraced"), "--print-config", stdout=out)
        sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        return [self.program("ps/millraced"), "--config", config] + sets

    def on_node(self, cable, directory, commands, environment=None, **settings):
        """Runs clients one after the other against a node with these settings; their lines together."""
        lines = {}
        driver = settings.pop("driver", self.driver)
        with serving(
            cable.server, self.node_arguments(directory, driver, "server0", **settings), "ready"
        ) as (line, _):
            self.notes.setdefault("port", line.split(" incarnation=")[0])
            for program, *arguments in commands:
                lines.update(
                    client_lines(
                        cable.client,
                        [
                            self.program(f"tests/bench/{program}"),
                            "--server",
                            f"{SERVER_IP}:{PORT}",
                            *arguments,
                        ],
                        environment,
                    )
                )
        return lines

    def python_round(self, directory):
        """The same calls from C and from Python, on one node, one after the other."""
        package = self.program("trainer_client/python")
        if not os.path.exists(os.path.join(package, "millrace", "client.py")):
            print("bench: Python left out: the package was not built", file=sys.stderr)
            return
        environment = {
            "PYTHONPATH": package,
            "PYTHONDONTWRITEBYTECODE": "1",
            "MILLRACE_LIBRARY": self.program("trainer_client/libmillrace.so"),
        }
        scripts = os.path.dirname(os.path.abspath(__file__))
        target = ["--server", f"{SERVER_IP}:{PORT}", "--runs", str(self.runs)]
        with Cable(self.mtu) as cable, serving(
            cable.server, self.node_arguments(directory, self.driver, "server0"), "ready"
        ):
            calls, tables = (
                client_lines(
                    cable.client, ["/usr/bin/python3", os.path.join(scripts, script), *target], environment
                )
                for script in ("python_calls.py", "python_tables.py")
            )
            c = client_lines(cable.client, [self.program("tests/bench/bench_calls"), *target])
        for count in (1, 64):
            limit = c[f"lookup_{count}"]["value"]
            self.add(f"python_lookup_{count}_over_c", calls[f"numpy_lookup_{count}"]["value"] - limit, limit)
        for what in ("pull", "push"):
            for kind in ("numpy", "torch"):
                if f"{kind}_{what}_13312x16" in calls:
                    limit = c[f"{what}_13312x16"]["value"]
                    self.add(
                        f"python_{what}_share_{kind}", limit / calls[f"{kind}_{what}_13312x16"]["value"], 1.0
                    )

        for row, one, other in (
            ("tables_lookup", "tables_lookup_one_call", "tables_lookup_each"),
            ("tables_push", "tables_push_one_call", "tables_push_each"),
            ("step_one_call", "step_one_call", "step_each"),
            ("step_prefetch", "step_prefetch", "step_one_call"),
        ):
            if one in tables:
                self.add(f"python_{row}", tables[one]["value"] / tables[other]["value"], 1.0)

    def veth_round(self, directory):
        transport = ("bench_transport", "--seconds", str(TRANSPORT_SECONDS))
        with Cable(self.mtu) as cable:
            limits = self.call_limits(cable, self.driver)
            calls = self.on_node(cable, directory, [("bench_calls", "--runs", str(self.runs)), transport])
            alone = self.on_node(
                cable,
                directory,
                [("bench_calls", "--only", "empty_call_64")],
                {"MILLRACE_BUNDLE": "0"},
                **{"transport.bundle": "no"},
            )
            lossy = self.on_node(
                cable,
                directory,
                [transport + ("--only", row) for row in ("bulk", "small_idle")],
                **{"fault.direction": "both", "fault.loss_ppm": LOSS_PPM},
            )
        self.blast_us = limits["pull_13312x16"]
        for name, limit in limits.items():
            self.add(name, calls[name]["value"], limit)
        for name in ("lookup_512x26_by_batch", "lookup_512x26_summed_by_batch"):
            self.add(name, calls[name]["value"], self.blast_us)
        self.add("empty_call_64_unbundled", alone["empty_call_64"]["value"], limits["empty_call_64"])
        self.add("small_under_bulk_p99", calls["small_under_bulk"]["p99"], calls["small_idle"]["p99"])
        self.add("bulk_at_1pct_loss", lossy["bulk"]["value"], calls["bulk"]["value"])
        round_trip_us = calls["small_idle"]["value"]
        self.add("small_at_1pct_loss_p99", lossy["small_idle"]["p99"], 4 * round_trip_us + PROBE_US)

    def socket_round(self, directory):
        """A node on the kernel's sockets, beside the simplest server for the same calls."""
        with Cable(self.mtu, server_kernel=True) as cable:
            limits = self.call_limits(cable, "socket")
            commands = [
                ("bench_calls", "--runs", str(self.runs)),
                ("bench_transport", "--seconds", str(TRANSPORT_SECONDS)),
            ]
            calls = self.on_node(cable, directory, commands, driver="socket")
        for name, limit in limits.items():
            self.add(f"socket_{name}", calls[name]["value"], limit)
        self.add("socket_small_under_bulk_p99", calls["small_under_bulk"]["p99"], calls["small_idle"]["p99"])

    def memif_round(self, directory):
        socket = os.path.join(directory, "memif.sock")
        with serving(None, self.node_arguments(directory, "memif", socket), "ready"):
            load = client_lines(
                None,
                [
                    self.program("tests/bench/memif_load"),
                    "--socket",
                    socket,
                    "--server",
                    f"{SERVER_IP}:{PORT}",
                ],
            )
        with serving(None, self.node_arguments(directory, "memif", socket), "ready"):
            garbage = client_lines(
                None,
                [
                    self.program("tests/bench/garbage_load"),
                    "--socket",
                    socket,
                    "--server",
                    f"{SERVER_IP}:{PORT}",
                    "--packets",
                    str(self.garbage),
                    "--json",
                ],
            )
        in_process = client_lines(
            None, [self.program("tests/bench/bench_table"), "--optimizer", "sgd", "1000"]
        )
        self.add("memif_lookup_1", load["memif_lookup_1"]["value"], load["memif_echo"]["value"])
        garbage = garbage["garbage"]
        self.add(
            "memif_echo_under_garbage",
            garbage["calls_per_s"],
            garbage["calls_per_s_alone"] * (1 - garbage["share"]),
        )
        self.add(
            "memif_lookup_large",
            load["memif_lookup_large"]["value"],
            in_process["table_sgd_lookup_1000k"]["limit"] * 1e6,
        )

    def in_process(self, program, *arguments):
        for name, line in client_lines(None, [self.program(f"tests/bench/{program}"), *arguments]).items():
            self.rows[name] = (line["unit"], line["better"], line["target"], "ratio")
            self.rounds.setdefault(name, []).append((line["value"], line["limit"]))

    def rpc_round(self, directory):
        remote.Remote(self, sys.modules[__name__], directory).round()

    def mtu_round(self, directory):
        mtu.Mtus(self, sys.modules[__name__], directory).round()

    def worst_round(self, directory):
        worst.Worst(self, sys.modules[__name__], directory).round()

    def table_round(self, _directory):
        self.in_process("bench_table", "--optimizer", "sgd", "1000", "10000")
        self.in_process("bench_table", "--optimizer", "adagrad", "1000", "10000")
        self.in_process("bench_table_wide", "--optimizer", "adagrad", "250")

    def table_large_round(self, directory):
        if self.wants("zipf_core_share"):
            self.in_process("bench_skew")
        if available_bytes() < TABLE_LARGE_BYTES:
            print("bench: not enough memory for tables of 50 M rows: left out", file=sys.stderr)
            return
        if self.wants("table_*_50000k"):
            self.in_process("bench_table", "--optimizer", "sgd", "50000")
        if self.wants("table_insert_growing"):
            self.in_process("bench_growth")
        if self.wants("big_*"):
            self.table_through_wire(directory)

    def table_through_wire(self, directory):
        node = self.node_arguments(directory, self.driver, "server0", **{"memory.limit_mib": 12288})
        with Cable(self.mtu) as cable, serving(cable.server, node, "ready") as (_, pid):
            lines = client_lines(
                cable.client,
                [self.program("tests/bench/big_table"), "--server", f"{SERVER_IP}:{PORT}", "--pid", str(pid)],
            )
        for name, line in lines.items():
            if "target" in line:
                self.rows[name] = (line["unit"], line["better"], line["target"], "ratio")
                self.rounds.setdefault(name, []).append((line["value"], line["limit"]))

    def checkpoint_round(self, _directory):
        reason = checkpoint.why_not(self.build, self.checkpoint_bytes, available_bytes())
        if reason:
            print(f"bench: checkpoints left out: {reason}", file=sys.stderr)
            return
        checkpoint.Checkpoints(self, sys.modules[__name__], self.checkpoint_bytes).round()

    def log_round(self, _directory):
        push_log.PushLog(self, sys.modules[__name__]).round()

    def stores_round(self, _directory):
        reason = stores.why_not(self.build, available_bytes())
        if reason:
            print(f"bench: stores left out: {reason}", file=sys.stderr)
            return
        stores.Stores(self, sys.modules[__name__]).round()

    def nodes_round(self, directory):
        reason = nodes.why_not()
        if reason:
            print(f"bench: nodes left out: {reason}", file=sys.stderr)
            return
        nodes.Nodes(self, sys.modules[__name__], directory).round()

    def observe_round(self, directory):
        observe.Observe(self, sys.modules[__name__], directory).round()

    def demo_round(self, _directory):
        done = subprocess.run(
            ["scripts/demo.sh"],
            env=dict(os.environ, MILLRACE_BUILD=self.build),
            text=True,
            capture_output=True,
            check=False,
            timeout=300,
        )
        lines = done.stdout.splitlines()
        if done.returncode != 0 or not lines or not lines[-1].startswith("demo: ok "):
            raise RuntimeError(f"demo: {done.stderr.strip()[-500:]}")
        fields = dict(word.split("=") for word in lines[-1].split() if "=" in word)
        # The limit is the port's: each sample's bags cross it once as sums and once as gradients.
        blast_bytes_per_s = BULK_BYTES / self.blast_us * 1e6 if self.blast_us else None
        limit = blast_bytes_per_s / DEMO_SAMPLE_BYTES if blast_bytes_per_s else None
        self.add("demo_samples", float(fields["samples_per_s"]), limit)

    def wants(self, rows):
        """Whether --only names these rows of a part whose programs take minutes each, or their part."""
        return not self.only or any(name in PARTS or rows_meet(name, rows) for name in self.only)

    def limit_medians(self):
        return {
            name: {driver: statistics.median(values) for driver, values in drivers.items()}
            for name, drivers in self.limits.items()
        }

    def measure(self, part, directory):
        before = {name: len(values) for name, values in self.rounds.items()}
        with quiet.Quiet() as machine_time:
            getattr(self, f"{part}_round")(directory)
        for name, values in self.rounds.items():
            if len(values) > before.get(name, 0):
                self.quiet.setdefault(name, []).append((machine_time.steal, machine_time.others))

    def measure_beside_noise(self, part, directory):
        """The part once more while another process takes half of a CPU."""
        self.rounds, self.noisy = self.noisy, self.rounds
        limits, self.limits = self.limits, {}  # the table of limits is of a quiet machine
        machine_time, self.quiet = self.quiet, {}
        try:
            with noise():
                self.measure(part, directory)
        finally:
            self.rounds, self.noisy = self.noisy, self.rounds
            self.limits, self.quiet = limits, machine_time

    def machine_time(self, name):
        """The largest shares of the CPUs' time in a round that were not the bench's."""
        shares = self.quiet.get(name)
        return {"steal": max(s for s, _ in shares), "others": max(o for _, o in shares)} if shares else {}

    def results(self):
        rows = []
        for name, (unit, better, target, measure) in self.rows.items():
            rounds = self.rounds[name]
            if not rounds:
                continue
            value = statistics.median(v for v, _ in rounds)
            ratios = [v / l for v, l in rounds if l]
            limits = [l for _, l in rounds if l]
            ratio = statistics.median(ratios) if ratios else None
            noisy = [v / l for v, l in self.noisy.get(name, []) if l]
            noisy_ratio = statistics.median(noisy) if noisy else None
            seen = ratio if measure == "ratio" else value
            met = (
                None
                if target is None
                else seen is not None and (seen <= target if better == "lower" else seen >= target)
            )
            rows.append(
                {
                    "name": name,
                    "value": value,
                    "unit": unit,
                    "limit": statistics.median(limits) if limits else None,
                    "ratio": ratio,
                    "better": better,
                    "target": target,
                    "target_of": measure,
                    "met": met,
                    "noisy_ratio": noisy_ratio,
                    "noise_factor": noise_factor(ratio, noisy_ratio, better),
                    "limit_spread": quiet.spread(limits),
                    **self.machine_time(name),
                }
            )
        return rows


@contextlib.contextmanager
def session_first():
    """Where the kernel shares the CPUs among sessions first, all of this one's processes come first."""
    words = []  # /autogroup-7719 nice 0
    if FIRST and os.path.exists(AUTOGROUP):
        with open(AUTOGROUP, encoding="ascii") as group:
            words = group.read().split()
    if not words:
        yield
        return
    set_session_priority(FIRST[-1])
    try:
        yield
    finally:
        set_session_priority(words[-1])


def set_session_priority(nice):
    with open(AUTOGROUP, "w", encoding="ascii") as group:
        group.write(nice)


@contextlib.contextmanager
def noise():
    """A process that takes half of a CPU, with the priority of the server and the clients."""
    process = subprocess.Popen(
        [*FIRST, sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "noise.py")],
        stdin=subprocess.PIPE,
    )
    try:
        yield
    finally:
        process.stdin.close()
        process.wait()


def noise_factor(ratio, noisy_ratio, better):
    """By how many times the ratio to the limit, which suffers from the noise as well, is worse; None: not
    measured."""
    if not ratio or not noisy_ratio:
        return None
    return noisy_ratio / ratio if better == "lower" else ratio / noisy_ratio


class Progress:
    """The parts in order, said as they begin, with the time that is left. Number 0 of a round: a part that
    comes once."""

    def __init__(self, arguments):
        parts = [part for part in PARTS if part in arguments.parts]
        self.steps = [(i + 1, part) for i in range(arguments.rounds) for part in parts if part not in ONCE]
        self.steps += [(0, part) for part in parts if part in ONCE]
        self.rounds, self.times = arguments.rounds, 2 if arguments.noise else 1
        self.started, self.expected = time.monotonic(), 0
        steps = f"{len(self.steps)} step{'s' if len(self.steps) != 1 else ''} ({', '.join(parts)})"
        say(f"{steps}, about {minutes(self.seconds(self.steps))}")

    def seconds(self, steps):
        return sum(PARTS[part] for _, part in steps) * self.times

    def left(self, at):
        """Seconds, corrected by how long the steps before have taken."""
        took = time.monotonic() - self.started
        slower = took / self.expected if self.expected else 1.0
        return self.seconds(self.steps[at:]) * slower

    def __iter__(self):
        for at, (number, part) in enumerate(self.steps):
            of_round = f", round {number} of {self.rounds}" if number else ""
            say(f"{at + 1} of {len(self.steps)}: {part}{of_round}; about {minutes(self.left(at))} left")
            yield part
            self.expected += self.seconds([(number, part)])


def minutes(seconds):
    count = max(round(seconds / 60), 1)
    return f"{count} minute{'s' if count > 1 else ''}"


def say(text):
    """Progress."""
    print(f"bench: {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def available_bytes():
    with open("/proc/meminfo", encoding="utf-8") as info:
        for line in info:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        for line in info:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return "unknown CPU"


def machine(bench):
    kernel = os.uname().release.split("-")[0]
    return f"{cpu_name()}, {os.cpu_count()} CPUs, Linux {kernel}; {bench.notes.get('port', '')}"


def rows_meet(name, pattern):
    return fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(pattern, name)


def parts_with(name):
    """The parts that a name stands for: a part, or rows as a shell's pattern."""
    if name in PARTS:
        return [name]
    found = [part for part, rows in ROWS.items() if fnmatch.filter(rows, name)]
    return found + [
        part for part, patterns in PATTERNS.items() if any(rows_meet(name, pattern) for pattern in patterns)
    ]


def is_wanted(row, names):
    """Whether --only names the row, its part, or nothing at all."""
    return not names or any(
        fnmatch.fnmatch(row, name)
        or row in ROWS.get(name, ())
        or any(fnmatch.fnmatch(row, pattern) for pattern in PATTERNS.get(name, ()))
        for name in names
    )


def place(row):
    """A key that sorts rows as the parts have them; rows that programs name stay in their order."""
    for at, part in enumerate(PARTS):
        if row in ROWS.get(part, ()):
            return at, list(ROWS[part]).index(row)
        if any(fnmatch.fnmatch(row, pattern) for pattern in PATTERNS.get(part, ())):
            return at, 0
    return len(PARTS), 0


def list_parts():
    for part, seconds in PARTS.items():
        print(f"{part}: about {seconds} s {'once' if part in ONCE else 'a round'}")
        for row in (*ROWS.get(part, ()), *PATTERNS.get(part, ())):
            print(f"    {row}")


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default="build", help="build directory (default build)")
    parser.add_argument("--driver", default="af_xdp", help="af_xdp, af_packet or tap (default af_xdp)")
    parser.add_argument("--mtu", type=int, default=3498, help="of the veth pair (default 3498)")
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds; ratios are medians over them (default 3)"
    )
    parser.add_argument("--runs", type=int, default=500, help="repetitions of each bulk call (default 500)")
    parser.add_argument("--garbage", type=int, default=10_000_000, help="packets of it (default 10,000,000)")
    parser.add_argument(
        "--checkpoint-gb", type=float, default=4.0, help="rows of a checkpoint (default 4 GB)"
    )
    parser.add_argument("--skip", action="append", default=[], choices=PARTS, help="leave a part out")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="a part, a row, or a pattern of rows ('*pull*'): leave everything else out; may be repeated",
    )
    parser.add_argument("--list", action="store_true", help="print the parts and their rows, and end")
    parser.add_argument(
        "--merge", action="store_true", help="keep the rows of the last results that are not measured now"
    )
    parser.add_argument(
        "--noise",
        action="store_true",
        help="measure each part once more beside a process that takes half of a CPU",
    )
    arguments = parser.parse_args()
    for name in arguments.only:
        if not parts_with(name):
            parser.error(f"--only {name}: no part and no row is called so; --list names them")
    chosen = {part for name in arguments.only for part in parts_with(name)} or set(PARTS)
    arguments.parts = chosen - set(arguments.skip)
    if not arguments.parts:
        parser.error("--skip leaves nothing to measure")
    return arguments


def save(bench, only, before):
    """After each part: a run that is ended keeps what it has measured. before: results to merge into."""
    rows = [row for row in bench.results() if is_wanted(row["name"], only)]
    results = {"machine": machine(bench), "rows": rows, "limits": bench.limit_medians(), "notes": bench.notes}
    if before is not None:
        results = table.merge(before, results)
        results["rows"].sort(key=lambda row: place(row["name"]))
    with open(bench.program("bench/results.json"), "w", encoding="utf-8") as out:
        json.dump(results, out, indent=2)
        out.write("\n")
    with open(bench.program("bench/results.md"), "w", encoding="utf-8") as out:
        out.write(table.markdown(results))
    return results


def main():
    arguments = read_arguments()
    if arguments.list:
        list_parts()
        return
    if os.geteuid() != 0:
        sys.exit("bench: needs root for network namespaces and DPDK ports; run it through sudo")
    if os.cpu_count() < 2:
        sys.exit("bench: needs two CPUs, one for the server and one for the client")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # namespaces and programs go on the way out
    bench = Bench(arguments)
    os.makedirs(bench.program("bench"), exist_ok=True)
    directory = tempfile.mkdtemp(prefix="millrace-bench-")
    before = table.load(bench.program("bench/results.json")) if arguments.merge else None
    try:
        with session_first():
            for part in Progress(arguments):
                bench.measure(part, directory)
                if arguments.noise:
                    say(f"{part} once more, beside a process that takes half of a CPU")
                    bench.measure_beside_noise(part, directory)
                results = save(bench, arguments.only, before)
    except (RuntimeError, subprocess.SubprocessError, OSError) as failure:
        sys.exit(f"bench: {failure}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(table.text(results))


if __name__ == "__main__":
    main()
