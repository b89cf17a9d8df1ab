"""What the log of pushes (checkpoint.durability = log) costs: pushes to a node with a log beside the same
without one, by turns, and what one push at a time waits for it beside a write of the log with its flush.

Two nodes serve at once on the kernel's sockets, and sleep while it is not their turn. As in checkpoint.py
nobody comes first: what the kernel's own threads do for the disk would wait for two programs that spin.
"""
import contextlib
import json
import os
import shutil
import statistics

TURNS = ("off", "on", "on", "off")  # a machine that grows slower or faster meanwhile decides nothing
SECONDS = 3
PORTS = {"off": 7700, "on": 7710}  # UDP
CPUS = "0,1"
BUSY = ("--clients", "4", "--in-flight", "64")
ALONE = ("--clients", "1", "--in-flight", "1")

# name: (unit, better, target, what the target is compared with)
ROWS = {
    "log_push_64": ("calls/s", "higher", 1 / 1.15, "ratio"),  # on against off, 4 clients of 64 in flight
    "log_push_1_added": ("us", "lower", 1.5, "ratio"),  # one at a time, on less off, against a flush
}


class PushLog:
    """One round: `bench` is run.Bench, `tools` the module run."""

    def __init__(self, bench, tools):
        self.bench, self.tools = bench, tools
        self.root = bench.program(f"bench/log-{os.getpid()}")  # on a disk, as /tmp may not be
        self.cable = None

    def node(self, turn):
        settings = {
            "node.name": f"bench-{os.getpid()}-log-{turn}",
            "port.udp_port": PORTS[turn],
            "cores.poll_mode": "adaptive",
            "memory.limit_mib": 1024,
            "checkpoint.directory": os.path.join(self.root, turn),
            "checkpoint.durability": "log" if turn == "on" else "checkpoint",
            "checkpoint.every_s": 0,
            "checkpoint.save_on_stop": "no",
        }
        command = self.bench.node_arguments(self.root, "socket", "server0", **settings)
        return self.tools.serving(self.cable.server, command, "ready", CPUS, ())

    def tool(self, turn, *arguments):
        server = ("--server", f"{self.tools.SERVER_IP}:{PORTS[turn]}", "--json")
        place = ("ip", "netns", "exec", self.cable.client)
        command = (*place, self.bench.program("tools/millrace"), *arguments, *server)
        return json.loads(self.tools.run(*command, capture_output=True, timeout=120).stdout)

    def push(self, turn, load):
        keys = ("--mix", "push=1", "--keys", "uniform:100000", "--seconds", str(SECONDS))
        return self.tool(turn, "bench", *load, *keys)

    def flushes(self):
        """(how many, microseconds of all)"""
        counters = self.tool("on", "ctl", "stats", "--core", "0")[0]["counters"]
        return counters["log.flushes"], counters["log.flush_us"]

    def round(self):
        shutil.rmtree(self.root, ignore_errors=True)
        os.makedirs(self.root)
        try:
            with contextlib.ExitStack() as stack:
                self.cable = stack.enter_context(self.tools.Cable(self.bench.mtu, server_kernel=True))
                for turn in PORTS:
                    stack.enter_context(self.node(turn))
                self.measure()
        finally:
            shutil.rmtree(self.root, ignore_errors=True)

    def measure(self):
        self.push("on", BUSY)  # until there is room ahead
        rates, mean_us = {"off": [], "on": []}, {"off": [], "on": []}
        for turn in TURNS:
            rates[turn].append(self.push(turn, BUSY)["calls_per_s"])
        before = self.flushes()
        for turn in TURNS:
            mean_us[turn].append(self.push(turn, ALONE)["latency_us"]["mean"])
        after = self.flushes()
        flush_us = (after[1] - before[1]) / (after[0] - before[0])
        self.bench.add("log_push_64", statistics.mean(rates["on"]), statistics.mean(rates["off"]))
        added_us = statistics.mean(mean_us["on"]) - statistics.mean(mean_us["off"])
        self.bench.add("log_push_1_added", added_us, flush_us)
