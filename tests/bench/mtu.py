"""The same calls at each MTU, over AF_XDP and over the kernel's sockets, and with 1 % of the packets lost.

AF_XDP stops at an MTU of 3498; af_packet stands in its place above. A node over DPDK loses packets itself
([fault]). Sockets have no such fault: there a forwarder between two cables carries the frames one by one, and
loses 1 %; the limit is the same forwarder that loses none.
"""
import contextlib

MTUS = (1280, 1500, 3498, 9000)
RUNS = 60  # of each bulk call
SECONDS = 0.5
DRIVERS = ("dpdk", "socket")
PACKETS = {"memory.packets_mib": 256}  # room for buffers of 9000 bytes
# what: (unit, better)
LIMITED = {
    "empty_call_1": ("us", "lower"),
    "pull_13312x16": ("us", "lower"),
    "push_13312x16": ("us", "lower"),
    "pull_8mb": ("MB/s", "higher"),
    "push_8mb": ("MB/s", "higher"),
}
LOSSY = {"bulk": "MB/s", "pull_8mb": "MB/s", "push_8mb": "MB/s"}
ROWS = {
    f"mtu_{mtu}_{driver}_{what}": row
    for mtu in MTUS
    for driver in DRIVERS
    for what, row in (
        *((what, (unit, better, None, "ratio")) for what, (unit, better) in LIMITED.items()),
        *((f"{what}_1pct_loss", (unit, "higher", 0.7, "ratio")) for what, unit in LOSSY.items()),
    )
}


class Mtus:
    """One round: `bench` is run.Bench, `tools` the module run."""

    def __init__(self, bench, tools, directory):
        self.bench, self.tools, self.directory = bench, tools, directory

    def add(self, mtu, kind, what, value, limit):
        self.bench.add(f"mtu_{mtu}_{kind}_{what}", value, limit)

    @staticmethod
    def transport(what):
        return ("bench_transport", "--seconds", str(SECONDS), "--only", what)

    def calls(self, mtu, kind, driver):
        """Without loss, against the limits at this MTU."""
        with self.tools.Cable(mtu, server_kernel=driver == "socket") as cable:
            limits = self.bench.call_limits(cable, driver, mtu=mtu, runs=RUNS)
            commands = [
                ("bench_calls", "--runs", str(RUNS)),
                *(self.transport(what) for what in LIMITED if what.endswith("8mb")),
            ]
            lines = self.bench.on_node(cable, self.directory, commands, driver=driver, **PACKETS)
        for what in LIMITED:
            self.add(mtu, kind, what, lines[what]["value"], limits[what])

    def rates(self, cable, driver, **settings):
        commands = [self.transport(what) for what in LOSSY]
        lines = self.bench.on_node(cable, self.directory, commands, driver=driver, **PACKETS, **settings)
        return {what: lines[what]["value"] for what in LOSSY}

    @contextlib.contextmanager
    def forwarder(self, cable, loss_ppm):
        command = [self.bench.program("tests/integration/forwarder"), "server1", "client1"]
        numbers = [str(loss_ppm), "0", "0", "0", "17"]
        with self.tools.serving(cable.server, command + numbers, "forwarding", cpus="0,1"):
            yield

    def losses(self, mtu, kind, driver):
        if driver == "socket":
            with self.tools.Cable(mtu, server_kernel=True, cut=True) as cable:
                with self.forwarder(cable, 0):
                    whole = self.rates(cable, driver)
                with self.forwarder(cable, self.tools.LOSS_PPM):
                    lossy = self.rates(cable, driver)
        else:
            fault = {"fault.direction": "both", "fault.loss_ppm": self.tools.LOSS_PPM}
            with self.tools.Cable(mtu) as cable:
                whole = self.rates(cable, driver)
                lossy = self.rates(cable, driver, **fault)
        for what in LOSSY:
            self.add(mtu, kind, f"{what}_1pct_loss", lossy[what], whole[what])

    def round(self):
        for mtu in MTUS:
            for kind in DRIVERS:
                driver = "socket" if kind == "socket" else self.bench.driver if mtu <= 3498 else "af_packet"
                self.tools.say(f"  MTU {mtu}, {driver}")
                self.calls(mtu, kind, driver)
                self.losses(mtu, kind, driver)
