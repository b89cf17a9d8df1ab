"""Checkpoints of a table of some GB against what the disk can do, and what calls notice of them.

Full save and restore stand beside fio's sequential O_DIRECT io_uring write and read of as many bytes in the
same directory; lookups and pushes while a save runs beside the same without one, by turns. The node's data
core has CPU 1, the load CPU 0; the
threads that write and read files go where the kernel puts them. Unlike other parts nobody comes first: what
the kernel's own threads do for the disk would wait for two programs that spin.
"""
import json
import os
import shutil
import subprocess

ROW_BYTES = 8 + 2 * 16 * 4  # key, values and state, as a checkpoint has them
MEMORY_PER_ROW_BYTES = 2 * 16 * 4 + 24  # with its share of the index
MEMORY_SPARE_BYTES = 2 << 30
BLOCK_BYTES = 1 << 20
NODE_CPUS = "0,1"
MEMORY_LIMIT_MIB = 64

# name: (unit, better, target, what the target is compared with)
ROWS = {
    "checkpoint_save": ("MB/s", "higher", 0.85, "ratio"),
    "checkpoint_keys_during": ("keys/s", "higher", 0.90, "ratio"),
    "checkpoint_p99_during": ("us", "lower", 1.5, "ratio"),
    "checkpoint_memory": ("MiB", "lower", 1.0, "ratio"),
    "checkpoint_restore": ("MB/s", "higher", 0.60, "ratio"),
    "checkpoint_delta_seconds": ("s", "lower", 0.03, "ratio"),
    "checkpoint_delta_bytes": ("MB", "lower", 0.03, "ratio"),
}


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="utf-8") as control:
        control.write("3\n")


def fio_bytes_per_s(path, kind, size_bytes):
    """What fio writes to a new file, synced at the end, or reads from it."""
    drop_caches()
    command = [
        "fio",
        "--name=limit",
        f"--filename={path}",
        f"--rw={kind}",
        f"--size={size_bytes}",
        f"--bs={BLOCK_BYTES}",
        "--direct=1",
        "--ioengine=io_uring",
        "--iodepth=16",
        "--end_fsync=1",
        "--output-format=json",
    ]
    done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(f"fio: {(done.stderr or done.stdout).strip()[-300:]}")
    job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
    return job[kind]["io_bytes"] / (job["job_runtime"] / 1e3)


def why_not(directory, size_bytes, available_bytes):
    """A reason to leave the part out, or None."""
    rows = size_bytes // ROW_BYTES
    wanted = rows * MEMORY_PER_ROW_BYTES + MEMORY_SPARE_BYTES
    if shutil.which("fio") is None:
        return "fio is not installed (scripts/setup.sh bench)"
    if available_bytes < wanted:
        rows = f"{size_bytes / 1e9:.1f} GB of rows"
        return f"{wanted >> 20} MiB of memory wanted for {rows}, {available_bytes >> 20} free"
    disk = shutil.disk_usage(directory).free
    if disk < 4 * size_bytes:  # two checkpoints and one half written, and fio's file
        return f"{4 * size_bytes >> 20} MiB of disk wanted in {directory}, {disk >> 20} free"
    return None


class Checkpoints:
    """One round on a node: `bench` is run.Bench, `tools` the module run."""

    def __init__(self, bench, tools, size_bytes):
        self.bench, self.tools = bench, tools
        self.size_bytes = size_bytes
        self.rows = size_bytes // ROW_BYTES
        self.root = bench.program(f"bench/checkpoints-{os.getpid()}")
        self.cable = None

    def node(self, **more):
        tools = self.tools
        settings = {
            "checkpoint.directory": os.path.join(self.root, "saved"),
            "checkpoint.keep": 1,
            "checkpoint.restore": "none",
            "checkpoint.every_s": 0,
            "checkpoint.save_on_stop": "no",
            "memory.limit_mib": (self.rows * MEMORY_PER_ROW_BYTES + MEMORY_SPARE_BYTES) >> 20,
        }
        command = self.bench.node_arguments(self.root, self.bench.driver, "server0", **settings, **more)
        return tools.serving(self.cable.server, command, "ready", NODE_CPUS, ())

    def client(self, pid, *arguments):
        command = [
            self.bench.program("tests/bench/bench_checkpoint"),
            "--server",
            f"{self.tools.SERVER_IP}:{self.tools.PORT}",
            "--pid",
            str(pid),
            "--rows",
            str(self.rows),
            *arguments,
        ]
        return self.tools.client_lines(self.cable.client, command, first=())

    def fio(self, kind):
        return fio_bytes_per_s(os.path.join(self.root, "fio"), kind, self.size_bytes)

    def save_rows(self, pid):
        write_limit = self.fio("write")
        drop_caches()
        full = self.client(pid, "save")["save"]
        self.bench.add("checkpoint_save", full["bytes"] / full["value"] / 1e6, write_limit / 1e6)

    def load_rows(self, pid):
        lines = self.client(pid, "load")
        self.bench.add(
            "checkpoint_keys_during", lines["checkpoint_keys"]["value"], lines["checkpoint_keys"]["limit"]
        )
        self.bench.add(
            "checkpoint_p99_during", lines["checkpoint_p99"]["value"], lines["checkpoint_p99"]["limit"]
        )
        most = max(
            max(line["value"], line["limit"])
            for name, line in lines.items()
            if name.startswith("checkpoint_memory")
        )
        self.bench.add("checkpoint_memory", most, MEMORY_LIMIT_MIB)

    def restore_rows(self):
        """A restore into an empty node; then a full save, and a delta on it once 1 % of the rows were pushed
        to."""
        read_limit = self.fio("read")
        with self.node(**{"checkpoint.deltas": 8}) as (_, pid):
            drop_caches()
            line = self.client(pid, "restore")["restore"]
            full = self.client(pid, "check", "save")["save"]
            self.client(pid, "touch")
            delta = self.client(pid, "delta")["delta"]
        self.bench.add("checkpoint_delta_seconds", delta["value"], full["value"])
        self.bench.add("checkpoint_delta_bytes", delta["bytes"] / 1e6, full["bytes"] / 1e6)
        self.bench.add("checkpoint_restore", line["bytes"] / line["value"] / 1e6, read_limit / 1e6)

    def round(self):
        shutil.rmtree(self.root, ignore_errors=True)
        os.makedirs(self.root)
        try:
            with self.tools.Cable(self.bench.mtu) as self.cable:
                with self.node() as (_, pid):
                    self.client(pid, "fill")
                    self.save_rows(pid)
                    self.load_rows(pid)
                self.restore_rows()
        finally:
            shutil.rmtree(self.root, ignore_errors=True)
