"""What a cluster costs: a node of a cluster beside a node by itself, what a call over several nodes costs
its client, and what moves of partitions cost clients.

The node of a cluster is its only one. A real ZooKeeper server (Debian's) serves in the node's namespace, on
the client's CPU, of which it takes next to nothing. The two nodes take turns. What nodes cost a client is
processor time of its process, with stand-ins for the nodes (wire/bench_nodes.c), so that nobody needs as many
processors as there are nodes. Partitions move between two real nodes of a core each, on both CPUs.
"""
import contextlib
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time

ZOOKEEPER_JAR = "/usr/share/java/zookeeper.jar"
ZOOKEEPER_PORT = 2181
TURNS = 5  # of the node by itself and of the cluster's, in a round
CALLS = ("empty_call_1", "pull_13312x16", "push_13312x16")
COUNTS = (2, 4, 8)  # nodes

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
}


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

    def round(self):
        if self.bench.wants("cluster_*"):
            self.beside_a_node_by_itself()
        if self.bench.wants("nodes_*"):
            self.over_several()
        if self.bench.wants("move_*") or self.bench.wants("map_*"):
            self.moves()
