"""What it costs a node to be observed: everything that counts and times against nothing of it, and a
recording beside the same calls without one; and whether what the client says of its calls is true.
"""
import contextlib
import gzip
import itertools
import json
import os
import statistics
import subprocess
import threading
import time
import urllib.request

TURNS = ("off", "on", "on", "off")  # a machine that grows slower or faster meanwhile decides nothing
OFF = {"cores.measured_turns": 0, "cores.cpu_events": "no"}
METRICS = "127.0.0.1:7790"
ON = {"cores.measured_turns": 64, "cores.cpu_events": "yes", "metrics.listen": METRICS}
SECONDS = 2

# name: (unit, better, target, what the target is compared with)
ROWS = {
    "observe_empty_calls": ("calls/s", "higher", 0.98, "ratio"),  # over memif: on against off
    "observe_keys": ("keys/s", "higher", 0.98, "ratio"),
    "observe_recorded_calls": ("calls/s", "higher", 0.99, "ratio"),  # recorded at 10 Hz against not, sockets
    "observe_recorded_keys": ("keys/s", "higher", 0.99, "ratio"),
    "observe_p99_error": ("of it", "lower", 0.02, "value"),  # the client's own p99 against its calls timed
    "observe_report_s": ("s", "lower", 3.0, "value"),  # the report of an hour of four cores at 10 Hz
    "observe_report_mb": ("MB", "lower", 5.0, "value"),
}


@contextlib.contextmanager
def scraped():
    """Reads the metrics of a node every second, as Prometheus would; an error of the last read is raised."""
    ended, errors = threading.Event(), []

    def scrape():
        while not ended.wait(1):
            try:
                urllib.request.urlopen(f"http://{METRICS}/metrics", timeout=5).read()
            except OSError as error:
                errors.append(error)

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if errors:
        raise errors[-1]


def stretch(path, to, cores=4, samples=36000):
    """Writes a run of an hour: the lines of a short one again and again, for each core."""
    with gzip.open(path, "rt") as file:
        lines = [json.loads(line) for line in file]
    head = [line for line in lines if "t" not in line]
    counters = itertools.cycle([line for line in lines if "v" in line][1:])
    latencies = itertools.cycle([line for line in lines if "op" in line])
    per_core = len({(line["op"], line["phase"]) for line in lines if "op" in line})
    head[0]["nodes"] = [""] * cores
    with gzip.open(to, "wt", compresslevel=1) as file:
        for line in head:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
        for sample, core in itertools.product(range(samples), range(cores)):
            file.write(
                json.dumps({**next(counters), "t": sample * 100, "c": core}, separators=(",", ":")) + "\n"
            )
            for line in itertools.islice(latencies, per_core if sample % 10 == 0 else 0):
                file.write(json.dumps({**line, "t": sample * 100, "c": core}, separators=(",", ":")) + "\n")


class Observe:
    """One round: `bench` is run.Bench, `tools` the module run."""

    def __init__(self, bench, tools, directory):
        self.bench, self.tools, self.directory = bench, tools, directory
        self.target = f"{tools.SERVER_IP}:{tools.PORT}"
        self.nodes = 0

    def over_memif(self, settings):
        """Empty calls and keys a second of a node with these settings."""
        self.nodes += 1  # each has names of its own: the one before may not be gone from DPDK's folders
        socket = os.path.join(self.directory, f"memif{self.nodes}.sock")
        name = {"node.name": f"observe-{os.getpid()}-{self.nodes}"}
        node = self.bench.node_arguments(self.directory, "memif", socket, **name, **settings)
        load = [self.bench.program("tests/bench/memif_load"), "--socket", socket, "--server", self.target]
        scraper = scraped() if "metrics.listen" in settings else contextlib.nullcontext()
        with self.tools.serving(None, node, "ready"), scraper:
            lines = self.tools.client_lines(None, [*load, "--seconds", str(SECONDS)])
        return lines["memif_echo"]["value"], lines["memif_lookup_large"]["value"]

    def client(self, cable, *arguments):
        calls = [self.bench.program("tests/bench/bench_calls"), "--server", self.target, *arguments]
        return self.tools.client_lines(cable.client, calls)

    def calls(self, cable):
        """Empty calls and keys a second over sockets."""
        empty = self.client(cable, "--only", "empty_call_64")["empty_call_64"]["value"]
        pull_us = self.client(cable, "--only", "pull_13312x16", "--runs", "2000")["pull_13312x16"]["value"]
        return empty, 13312 / pull_us * 1e6

    def recorded_calls(self, cable):
        """The same while the node is recorded, on the client's CPU, which yields to the client."""
        path = os.path.join(self.directory, "observe.mrp")
        record = [
            self.bench.program("tools/millrace"),
            "perf",
            "record",
            "--server",
            self.target,
            "--hz",
            "10",
        ]
        place = ["ip", "netns", "exec", cable.client, "taskset", "-c", str(self.tools.CPU_CLIENT)]
        process = subprocess.Popen([*place, *record, "--output", path], stderr=subprocess.PIPE, text=True)
        try:
            return self.calls(cable)
        finally:
            process.terminate()
            error = process.communicate(timeout=20)[1]
            if process.returncode != 0:
                raise RuntimeError(f"millrace perf record: {error.strip()}")

    def round(self):
        self.cost_of_counting()
        self.cost_of_a_recording()
        self.cost_of_a_report()

    def cost_of_a_report(self):
        path = os.path.join(self.directory, "hour.mrp")
        stretch(os.path.join(self.directory, "observe.mrp"), path)
        began = time.monotonic()
        self.tools.run(
            self.bench.program("tools/millrace"), "perf", "report", path, stdout=subprocess.DEVNULL
        )
        self.bench.add("observe_report_s", time.monotonic() - began, None)
        page_bytes = os.path.getsize(os.path.join(self.directory, "hour.html"))
        self.bench.add("observe_report_mb", page_bytes / 1e6, None)

    def cost_of_counting(self):
        values = {"off": [], "on": []}
        for turn in TURNS:
            values[turn].append(self.over_memif(ON if turn == "on" else OFF))
        self.add(("observe_empty_calls", "observe_keys"), values)

    def cost_of_a_recording(self):
        values = {"off": [], "on": []}
        with self.tools.Cable(self.bench.mtu, server_kernel=True) as cable, self.tools.serving(
            cable.server, self.bench.node_arguments(self.directory, "socket", "server0", **ON), "ready"
        ):
            for turn in TURNS:
                values[turn].append(self.recorded_calls(cable) if turn == "on" else self.calls(cable))
            lines = self.client(cable, "--only", "own_p99")
        self.add(("observe_recorded_calls", "observe_recorded_keys"), values)
        truth = lines["lookup_64_timed"]["p99"]
        self.bench.add("observe_p99_error", abs(lines["lookup_64_counted"]["p99"] / truth - 1), None)

    def add(self, names, values):
        for at, name in enumerate(names):
            on, off = (statistics.mean(pair[at] for pair in values[turn]) for turn in ("on", "off"))
            self.bench.add(name, on, off)
