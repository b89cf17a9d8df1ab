"""What a cluster costs: a node of a cluster beside a node by itself, what a call over several nodes costs
its client, and what moves of partitions cost clients.

The node of a cluster is its only one. A real ZooKeeper server (Debian's) serves in the node's namespace, on
the client's CPU, of which it takes next to nothing. The two nodes take turns. What nodes cost a client is
processor time of its process, with stand-ins for the nodes (wire/bench_nodes.c), so that nobody needs as many
processors as there are nodes. Partitions move between two real nodes of a core each, on both CPUs.

What a backup costs its owner: processor time of the owner's process for each push, and how long a push takes,
with `copies` async and sync beside replication 1, in turns. The owner has one of the two CPUs, and the backup
shares the other one with the client.

A take-over: one node has all rows, is killed, and two spares load what it had from the checkpoint; its time,
without that of the session and `take_over_s`, stands beside a restore of the same rows by the node itself.
"""
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

import checkpoint

ZOOKEEPER_JAR = "/usr/share/java/zookeeper.jar"
ZOOKEEPER_PORT = 2181
SESSION_MS = 2000
TAKE_OVER_S = 1
TURNS = 5  # of the node by itself and of the cluster's, in a round
CALLS = ("empty_call_1", "pull_13312x16", "push_13312x16")
COUNTS = (2, 4, 8)  # nodes
COPIES_ROWS = 20000  # of copies()

# name: (unit, better, target, what the target is compared with)
ROWS = {
    **{f"cluster_{call}": ("us", "lower", 1.02, "ratio") for call in CALLS},  # against a node by itself
    **{  # against one node, whose cores are as many as a node's of several
        f"nodes_{what}_{count}": ("us", "lower", 1.3, "ratio")
        for what in ("pull", "push")
        for count in COUNTS
    },
    "move_stop_ms": ("ms", "lower", 20.0, "value"),
    "move_speed": ("MiB/s", "higher", 0.5, "ratio"),  # against a client that reads the same rows
    "move_lookup_p99": ("us", "lower", 2.0, "ratio"),  # against the same while nothing moves
    "map_change_ms": ("ms", "lower", 50.0, "value"),
    **{  # a push of 13,312 keys, against replication 1
        f"copies_{mode}_cpu": ("us", "lower", 1.25, "ratio") for mode in ("async", "sync")
    },
    "copies_async_push": ("us", "lower", 1.25, "ratio"),  # of 64 keys, against replication 1
    "copies_sync_push": ("us", "lower", 1.0, "ratio"),  # the same and an empty call more
    "take_over": ("s", "lower", 0.7, "ratio"),  # against a restore
}


def wait_for_line(path, pattern):
    """The match in a log, once it is there."""
    limit = time.monotonic() + 300
    while time.monotonic() < limit:
        with open(path, encoding="utf-8") as log:
            match = re.search(pattern, log.read())
        if match is not None:
            return match
        time.sleep(0.01)
    raise RuntimeError(f"no line {pattern!r} within 300 s in {path}")


def why_not():
    """Why there can be no cluster; None: there can."""
    if shutil.which("java") is None or not os.path.exists(ZOOKEEPER_JAR):
        return "no ZooKeeper: scripts/setup.sh test installs it"
    return None


@contextlib.contextmanager
def zookeeper(tools, space):
    """A server on the loopback interface of a namespace; gone at the end with its data."""
    directory = tempfile.mkdtemp(prefix="millrace-bench-zookeeper-")
    settings = {
        "tickTime": 500,
        "dataDir": f"{directory}/data",
        "clientPort": ZOOKEEPER_PORT,
        "clientPortAddress": "127.0.0.1",
        "admin.enableServer": "false",
    }
    with open(f"{directory}/zoo.cfg", "w", encoding="ascii") as out:
        out.writelines(f"{key}={value}\n" for key, value in settings.items())
    inside = ["ip", "netns", "exec", space]
    command = [*tools.FIRST, *inside, "taskset", "-c", str(tools.CPU_CLIENT), "java", "-Xmx64m"]
    command += ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", ZOOKEEPER_JAR]
    command += ["org.apache.zookeeper.server.ZooKeeperServerMain", f"{directory}/zoo.cfg"]
    with open(f"{directory}/output", "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        limit = time.monotonic() + tools.READY_SECONDS
        knock = [*inside, "bash", "-c", f"exec 2>&- 3<>/dev/tcp/127.0.0.1/{ZOOKEEPER_PORT}"]
        while subprocess.run(knock, check=False).returncode != 0:
            if process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError(f"ZooKeeper did not start in {tools.READY_SECONDS} s")
            time.sleep(0.1)
        yield f"127.0.0.1:{ZOOKEEPER_PORT}"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


class Nodes:
    """One round: `bench` is run.Bench, `tools` the module run."""

    def __init__(self, bench, tools, directory):
        self.bench, self.tools, self.directory = bench, tools, directory
        self.take_over_rows = bench.checkpoint_bytes // checkpoint.ROW_BYTES

    def calls(self, cable, settings):
        """Medians of the calls, by name."""
        commands = [("bench_calls", "--runs", str(self.bench.runs), "--only", call) for call in CALLS]
        lines = self.bench.on_node(cable, self.directory, commands, driver="socket", **settings)
        return {call: lines[call]["value"] for call in CALLS}

    def beside_a_node_by_itself(self):
        tools = self.tools
        alone, member = [], []
        with tools.Cable(self.bench.mtu, server_kernel=True) as cable, zookeeper(
            tools, cable.server
        ) as server:
            cluster = {"cluster.name": "bench", "cluster.node": "only", "cluster.zookeeper": server}
            for _ in range(TURNS):
                alone.append(self.calls(cable, {}))
                member.append(self.calls(cable, cluster))
        for call in CALLS:
            self.bench.add(
                f"cluster_{call}",
                statistics.median(turn[call] for turn in member),
                statistics.median(turn[call] for turn in alone),
            )

    def over_several(self):
        lines = self.tools.client_lines(None, [self.bench.program("tests/bench/bench_nodes")], cpus="0,1")
        for what in ("pull", "push"):
            limit = lines[f"nodes_{what}_1x2"]["value"]
            for count in COUNTS:
                self.bench.add(f"nodes_{what}_{count}", lines[f"nodes_{what}_{count}x2"]["value"], limit)

    def through_moves(self, arguments=()):
        """What bench_moves has to say, and the nodes' logs."""
        tools = self.tools
        with contextlib.ExitStack() as stack:
            cable = stack.enter_context(tools.Cable(self.bench.mtu, server_kernel=True))
            server = stack.enter_context(zookeeper(tools, cable.server))
            logs, addresses = [], []
            for i, (name, cpu) in enumerate((("a", tools.CPU_SERVER), ("b", tools.CPU_CLIENT))):
                directory = os.path.join(self.directory, f"moves-{name}")
                os.makedirs(directory, exist_ok=True)
                port = tools.PORT + 10 * i
                settings = {
                    "node.name": f"bench-{os.getpid()}-{name}",
                    "port.udp_port": port,
                    "cores.cpus": cpu,
                    "cores.poll_mode": "adaptive",
                    "memory.limit_mib": 2048,
                    "cluster.name": "moves",
                    "cluster.node": name,
                    "cluster.nodes": 2,
                    "cluster.zookeeper": server,
                }
                command = self.bench.node_arguments(directory, "socket", "server0", **settings)
                logs.append(os.path.join(directory, "log"))
                command = ["sh", "-c", 'log="$1"; shift; exec "$@" 2> "$log"', "sh", logs[-1], *command]
                stack.enter_context(tools.serving(cable.server, command, "ready", cpus="0,1"))
                addresses.append(f"{tools.SERVER_IP}:{port}")
            program = self.bench.program("tests/bench/bench_moves")
            command = [program, "--server", ",".join(addresses), "--from", "a", "--to", "b", *arguments]
            lines = tools.client_lines(cable.client, command)
            text = ""
            for path in logs:
                with open(path, encoding="utf-8") as log:
                    text += log.read()
        return lines, text

    def moves(self):
        lines, log = self.through_moves()
        ends = re.findall(r"(\d+) MiB in ([\d.]+) s; calls waited for ([\d.]+) ms", log)
        stop = statistics.median(float(wait) for _, _, wait in ends)
        longest = lines["moves_wait"]["value"] / 1000
        speed = statistics.median(int(size) / float(seconds) for size, seconds, _ in ends if int(size) > 0)
        self.bench.add("move_stop_ms", stop, None)
        self.bench.add("move_speed", speed, lines["moves_bulk_pull"]["value"])
        self.bench.add(
            "move_lookup_p99", lines["moves_lookup_moving"]["p99"], lines["moves_lookup_still"]["p99"]
        )
        # until a call that waits reaches the new owner, once that serves
        self.bench.add("map_change_ms", max(longest - stop, 0), None)

    @contextlib.contextmanager
    def member(self, cable, server, name, cpu, port, **more):
        """A node of the cluster of take_over(), or of another one; yields its log's path and its process
        id."""
        directory = os.path.join(self.directory, f"{more.get('cluster.name', 'take-over')}-{name}")
        os.makedirs(directory, exist_ok=True)
        settings = {
            "node.name": f"bench-{os.getpid()}-{name}",
            "port.udp_port": port,
            "cores.cpus": cpu,
            "cores.poll_mode": "adaptive",
            "memory.limit_mib": (self.take_over_rows * checkpoint.MEMORY_PER_ROW_BYTES >> 20) + 1024,
            "checkpoint.directory": os.path.join(self.directory, "take-over"),
            "checkpoint.every_s": 0,
            "checkpoint.save_on_stop": "no",
            "cluster.name": "take-over",
            "cluster.node": name,
            "cluster.nodes": 1,
            "cluster.zookeeper": server,
            "cluster.session_ms": SESSION_MS,
            "cluster.take_over_s": TAKE_OVER_S,
            **more,
        }
        command = self.bench.node_arguments(directory, "socket", "server0", **settings)
        log = os.path.join(directory, "log")
        command = ["sh", "-c", 'log="$1"; shift; exec "$@" 2> "$log"', "sh", log, *command]
        with self.tools.serving(cable.server, command, "ready", "0,1", ()) as (_, pid):
            yield log, pid

    def take_over(self):
        tools = self.tools
        os.makedirs(os.path.join(self.directory, "take-over"))
        with contextlib.ExitStack() as stack:
            cable = stack.enter_context(tools.Cable(self.bench.mtu, server_kernel=True))
            server = stack.enter_context(zookeeper(tools, cable.server))
            owner = (cable, server, "owner", tools.CPU_SERVER, tools.PORT)
            address = f"{tools.SERVER_IP}:{tools.PORT}"
            with self.member(*owner) as (_, pid):
                fill = [
                    self.bench.program("tests/bench/bench_checkpoint"),
                    "--server",
                    address,
                    "--pid",
                    str(pid),
                ]
                tools.client_lines(
                    cable.client, [*fill, "--rows", str(self.take_over_rows), "fill"], first=()
                )
                save = [self.bench.program("tools/millrace"), "ctl", "save", "--wait", "--server", address]
                tools.run("ip", "netns", "exec", cable.client, *save)
            checkpoint.drop_caches()
            log, pid = stack.enter_context(self.member(*owner))
            restore_s = int(wait_for_line(log, r"restored checkpoint .* MiB in (\d+) ms").group(1)) / 1e3
            spares = [
                stack.enter_context(
                    self.member(
                        cable, server, name, cpu, tools.PORT + 10 * (i + 1), **{"cluster.role": "spare"}
                    )
                )
                for i, (name, cpu) in enumerate((("b", tools.CPU_SERVER), ("c", tools.CPU_CLIENT)))
            ]
            checkpoint.drop_caches()
            killed = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            for spare, _ in spares:
                wait_for_line(spare, r"go on here from checkpoint")
            served_s = time.monotonic() - killed
        self.bench.add("take_over", served_s - SESSION_MS / 1e3 - TAKE_OVER_S, restore_s)

    def wait_for_copies(self, cable, address):
        """Until each partition has a backup that is in sync."""
        command = [self.bench.program("tools/millrace"), "ctl", "nodes", "--json", "--server", address]
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            shown = self.tools.run("ip", "netns", "exec", cable.client, *command, capture_output=True)
            shown = json.loads(shown.stdout)
            if shown["copies"] and all(node["uncopied"] == 0 for node in shown["nodes"]):
                return
            time.sleep(0.05)
        raise RuntimeError("no backup is in sync within 60 s")

    def copies(self):
        tools = self.tools
        seen = {mode: {"cpu": [], "push": [], "empty": []} for mode in ("none", "async", "sync")}
        with contextlib.ExitStack() as stack:
            cable = stack.enter_context(tools.Cable(self.bench.mtu, server_kernel=True))
            server = stack.enter_context(zookeeper(tools, cable.server))
            owners = {}
            for at, mode in enumerate(seen):
                port = tools.PORT + 20 * at
                more = {
                    "cluster.name": f"copies-{mode}",
                    "cluster.replication": 1 if mode == "none" else 2,
                    "cluster.copies": "sync" if mode == "sync" else "async",
                    "checkpoint.directory": os.path.join(self.directory, f"copies-{mode}"),
                    "memory.limit_mib": 1024,
                }
                os.makedirs(more["checkpoint.directory"], exist_ok=True)
                _, pid = stack.enter_context(
                    self.member(
                        cable, server, "owner", tools.CPU_SERVER, port, **more, **{"cluster.host": "a"}
                    )
                )
                backup = {"cluster.host": "b", "cluster.role": "spare"}
                stack.enter_context(
                    self.member(cable, server, "backup", tools.CPU_CLIENT, port + 10, **more, **backup)
                )
                owners[mode] = (f"{tools.SERVER_IP}:{port}", pid)

            def calls(mode, only, runs):
                address, _ = owners[mode]
                # few rows: a push waits until the backup has those that lookups have made before it
                command = [self.bench.program("tests/bench/bench_calls"), "--server", address, "--only", only]
                # and sleeps while it waits: the backup is on its CPU
                command += ["--rows", str(COPIES_ROWS), "--sleep", "--runs", str(runs)]
                return tools.client_lines(cable.client, command, first=[])[only]["value"]

            def cpu_us(mode):
                total = 0
                for task in os.listdir(f"/proc/{owners[mode][1]}/task"):
                    with open(f"/proc/{owners[mode][1]}/task/{task}/schedstat", encoding="utf-8") as stat:
                        total += int(stat.read().split()[0])
                return total / 1e3

            for mode in seen:
                calls(mode, "push_13312x16", 10)
                if mode != "none":
                    self.wait_for_copies(cable, owners[mode][0])
            runs = self.bench.runs
            for _ in range(TURNS):
                for mode, times in seen.items():
                    begin = cpu_us(mode)
                    calls(mode, "push_13312x16", 1)
                    few = cpu_us(mode)
                    calls(mode, "push_13312x16", 1 + runs)
                    times["cpu"].append((cpu_us(mode) - few - (few - begin)) / runs)
                    times["push"].append(calls(mode, "push_64", runs))
                    times["empty"].append(calls(mode, "empty_call_1", runs))
        median = {
            mode: {what: statistics.median(values) for what, values in times.items()}
            for mode, times in seen.items()
        }
        none = median["none"]
        for mode in ("async", "sync"):
            self.bench.add(f"copies_{mode}_cpu", median[mode]["cpu"], none["cpu"])
        self.bench.add("copies_async_push", median["async"]["push"], none["push"])
        self.bench.add("copies_sync_push", median["sync"]["push"], none["push"] + none["empty"])

    def round(self):
        if self.bench.wants("take_over"):
            self.take_over()
        if self.bench.wants("copies_*"):
            self.copies()
        if self.bench.wants("cluster_*"):
            self.beside_a_node_by_itself()
        if self.bench.wants("nodes_*"):
            self.over_several()
        if self.bench.wants("move_*") or self.bench.wants("map_*"):
            self.moves()
