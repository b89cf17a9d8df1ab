"""Work that is hard on a parameter server: keys one by one from many clients, a key that all want, a client
behind a slow link, long rows, attacks with the key of a lower role. Each stands beside the same work without
that, on the same node (sockets).
"""
import contextlib
import os
import secrets
import subprocess

SLOW_RATE = "20mbit"
ROLES = ("operator", "trainer", "read_only")
CLOSED_PORT = 9
MESSAGES_MIB = 64
SLOW_IP, SLOW_GATEWAY, SLOW_NET = "10.99.1.2", "10.99.1.1", "10.99.1.0/24"

# name: (unit, better, target, what the target is compared with)
ROWS = {
    "worst_many_clients": (
        "calls/s",
        "higher",
        0.7,
        "ratio",
    ),  # 64 clients, against one with as many in flight
    "worst_many_clients_p99": ("us", "lower", 2.0, "ratio"),  # of their calls, against the one's
    "worst_hot_key_lookup": ("calls/s", "higher", 0.9, "ratio"),  # one key for all, against keys of their own
    "worst_hot_key_push": ("us", "lower", 1.0, "ratio"),  # 13312 gradients for a key, against 13312 keys
    "worst_long_rows_pull": ("us", "lower", 1.0, "ratio"),  # 208 rows of 1024 values, against 13312 of 16
    "worst_long_rows_push": ("us", "lower", 1.0, "ratio"),
    "worst_slow_link_pull": ("us", "lower", 1.5, "ratio"),  # beside a client that pulls over a slow link
    "worst_slow_link_small_p99": ("us", "lower", 1.5, "ratio"),
    "worst_chosen_keys": ("us", "lower", 1.5, "ratio"),  # 400000 new keys of like hashes, against random ones
    # a trainer's pull and empty calls beside a reader's attack, an operator's beside a trainer's
    "worst_attack_messages_pull": ("us", "lower", 1.5, "ratio"),
    "worst_attack_messages_small_p99": ("us", "lower", 1.5, "ratio"),
    "worst_attack_sessions_pull": ("us", "lower", 1.5, "ratio"),
    "worst_attack_sessions_small_p99": ("us", "lower", 1.5, "ratio"),
}


def open_private(path, flags):
    return os.open(path, flags, 0o600)


class Worst:
    """One round: `bench` is run.Bench, `tools` the module run."""

    def __init__(self, bench, tools, directory):
        self.bench, self.tools, self.directory = bench, tools, directory
        self.program = bench.program("tests/bench/bench_worst")
        self.target = f"{tools.SERVER_IP}:{tools.PORT}"

    def client(self, cable, *arguments):
        return self.tools.client_lines(cable.client, [self.program, "--server", self.target, *arguments])

    @contextlib.contextmanager
    def slow_space(self, cable):
        """A namespace behind the client's, over a link of a few megabits per second each way."""
        run, space = self.tools.run, f"{cable.client}-slow"
        run("ip", "netns", "add", space)
        try:
            link = ("link", "add", "slow0", "mtu", "1500", "type", "veth", "peer", "name", "slow1")
            run("ip", "-n", cable.client, *link, "mtu", "1500", "netns", space)
            ends = ((cable.client, "slow0", SLOW_GATEWAY), (space, "slow1", SLOW_IP))
            for where, end, address in ends:
                run("ip", "-n", where, "addr", "add", f"{address}/24", "dev", end)
                run("ip", "-n", where, "link", "set", end, "up")
                shaper = ("root", "tbf", "rate", SLOW_RATE, "burst", "16kb", "latency", "20ms")
                run("tc", "-n", where, "qdisc", "add", "dev", end, *shaper)
            run("ip", "netns", "exec", cable.client, "sysctl", "-qw", "net.ipv4.ip_forward=1")
            run("ip", "-n", space, "route", "add", "default", "via", SLOW_GATEWAY)
            run("ip", "-n", cable.server, "route", "add", SLOW_NET, "via", self.tools.CLIENT_IP)
            yield space
        finally:
            subprocess.run(["ip", "netns", "del", space], check=False)

    @contextlib.contextmanager
    def slow_client(self, cable):
        """Pulls again and again, four at a time; ends with an error unless at least one came through."""
        with self.slow_space(cable) as space:
            command = ["ip", "netns", "exec", space, self.program, "--server", self.target, "slow"]
            client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            try:
                if client.stdout.readline() != "pulling\n":
                    raise RuntimeError("the client behind the slow link got no answer")
                yield
                client.stdin.close()
                if client.wait(60) != 0:
                    raise RuntimeError("the client behind the slow link failed")
            finally:
                client.kill()
                client.wait()

    @contextlib.contextmanager
    def attacker(self, cable, port, key, kind):
        """Yields how many datagrams it sends in 100 turns."""
        command = ["ip", "netns", "exec", cable.client, self.bench.program("tests/bench/attacker")]
        attacker = subprocess.Popen(
            [*command, self.tools.SERVER_IP, str(port), key, kind], stdout=subprocess.PIPE, text=True
        )
        try:
            word, _, datagrams = attacker.stdout.readline().strip().partition(" ")
            if word != "attacking":
                raise RuntimeError(f"the attack on {kind} did not come about")
            yield datagrams
        finally:
            attacker.kill()
            attacker.wait()
            attacker.stdout.close()

    def key(self, role):
        return os.path.join(self.directory, f"{role}.key")

    def beside_attack(self, cable, defender, role, kind):
        """The defender's calls, (beside the attack, their limit), each on a node of its own: an attacker's
        sessions outlive it by a while. The limit of an attack that goes on sending is beside a program that
        sends as much to a closed port: it takes the client's processor as often, and nothing of the node."""
        call = ("--key", self.key(defender), "beside")
        with self.tools.serving(cable.server, self.keyed_node(), "ready"):
            with self.attacker(cable, self.tools.PORT, self.key(role), kind) as datagrams:
                beside = self.client(cable, *call)
        with self.tools.serving(cable.server, self.keyed_node(), "ready"), contextlib.ExitStack() as stack:
            if datagrams != "0":
                stack.enter_context(self.attacker(cable, CLOSED_PORT, datagrams, "nobody"))
            without = [self.client(cable, *call) for _ in range(2)]
        return {
            row: (beside[name][field], min(lines[name][field] for lines in without))
            for row, name, field in (("pull", "pull", "value"), ("small_p99", "small", "p99"))
        }

    def beside_attacks(self, cable):
        """A trainer beside a reader, an operator beside a trainer: the worse of both."""
        for kind in ("messages", "sessions"):
            pairs = [self.beside_attack(cable, *roles, kind) for roles in zip(ROLES, ROLES[1:])]
            for row in pairs[0]:
                worse = max((pair[row] for pair in pairs), key=lambda times: times[0] / times[1])
                self.bench.add(f"worst_attack_{kind}_{row}", *worse)

    def keyed_node(self):
        """The command of a node with a key for each role, and as much memory for messages as an attacker with
        a few requests uses up."""
        memory = {"memory.messages_mib": MESSAGES_MIB}
        command = self.bench.node_arguments(self.directory, "socket", "server0", **memory)
        for role in ROLES:
            with open(self.key(role), "w", encoding="ascii", opener=open_private) as out:
                out.write(secrets.token_hex(32))
            command += ["--set", f"node.key={role}:{self.key(role)}"]
        return command

    def round(self):
        tools = self.tools
        node = self.bench.node_arguments(self.directory, "socket", "server0")
        with tools.Cable(self.bench.mtu, server_kernel=True) as cable:
            with tools.serving(cable.server, node, "ready"):
                lines = self.client(cable, "keys", "rows", "chosen")
                before = self.client(cable, "beside")
                with self.slow_client(cable):
                    beside = self.client(cable, "beside")
                after = self.client(cable, "beside")
            self.beside_attacks(cable)
        for name in ROWS:
            if name in lines:
                self.bench.add(name, lines[name]["value"], lines[name]["limit"])
        pull = min(before["pull"]["value"], after["pull"]["value"])
        small = min(before["small"]["p99"], after["small"]["p99"])
        self.bench.add("worst_slow_link_pull", beside["pull"]["value"], pull)
        self.bench.add("worst_slow_link_small_p99", beside["small"]["p99"], small)
