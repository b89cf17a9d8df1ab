"""A node on emulated PCI NICs in a guest, and clients on taps: rows, checksums, steering, saves, kills,
links, unbinding.

usage: test_nic.py KERNEL BUSYBOX DIRECTORY [MODEL...]
as root in a network namespace of its own, with PYTHONPATH and MILLRACE_LIBRARY set as for tests/python;
KERNEL: an unpacked package of Debian's kernel; DIRECTORY: for the run's files. MILLRACED: the node.

          this namespace                                guest
    nic1  10.9.1.2/24, fd09:1::2/64 ==== e1000e, ...    10.9.1.1, fd09:1::1 by DPDK, one node at a time
    nic2  10.9.2.2/24, fd09:2::2/64 ==== ...            10.9.2.1, fd09:2::1
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from vlan import Vlan

import millrace
from millrace import init, optim

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "guest"))
from guest import Guest, make_ramdisk  # noqa: E402

PATIENCE_S = 300.0  # of a machine that emulates the processor and has something else to do
DIM, KEYS = 16, 3000
UNBIND_S = 60.0
"""Within which a node that is asked for its device has saved and ended."""


class Model(NamedTuple):
    name: str
    device: str
    """QEMU's, with its options."""
    driver: str
    """The kernel's."""
    queues: int
    steering: str
    """With two cores: how packets find theirs."""
    port: bool = False
    """It needs a port of its own, as it has virtual functions."""

    @property
    def number(self) -> int:
        return 1 + MODELS.index(self)

    @property
    def address(self) -> str:
        return "0000:01:00.0" if self.port else f"0000:00:{0x10 + self.number:02x}.0"

    @property
    def tap(self) -> str:
        return f"nic{self.number}"


VIRTIO = "virtio-net-pci,iommu_platform=on,ats=on,disable-legacy=on"
MODELS = (
    Model("e1000e", "e1000e", "e1000e", 1, "rings"),
    Model("e1000", "e1000", "e1000", 1, "rings"),
    Model("vmxnet3", "vmxnet3", "vmxnet3", 1, "rings"),
    Model("virtio-net", f"{VIRTIO},mq=on,vectors=6", "virtio-pci", 2, "rings"),
    Model("igb", "igb", "igb", 1, "rss", port=True),
)


def host(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}"


def has_model(model: Model) -> bool:
    """QEMU has igb since version 8."""
    known = subprocess.run(["qemu-system-x86_64", "-device", "help"], capture_output=True, text=True)
    return f'name "{model.device.split(",")[0]}"' in known.stdout


def lay_cables(models: list[Model]) -> list[str]:
    """A tap for each model, and QEMU's arguments."""
    arguments = []
    host("ip", "link", "set", "lo", "up")
    for model in models:
        many = ["multi_queue"] if model.queues > 1 else []
        host("ip", "tuntap", "add", "dev", model.tap, "mode", "tap", *many)
        host("ip", "address", "add", f"10.9.{model.number}.2/24", "dev", model.tap)
        host("ip", "address", "add", f"fd09:{model.number}::2/64", "dev", model.tap, "nodad")
        host("ip", "link", "set", model.tap, "up")
        backend = f"tap,id={model.tap},ifname={model.tap},script=no,downscript=no"
        backend += f",queues={model.queues}" if model.queues > 1 else ""
        place = f"addr={0x10 + model.number:x}.0"
        if model.port:
            arguments += ["-device", f"pcie-root-port,id=rootport,chassis=1,{place}"]
            place = "bus=rootport"
        device = f"{model.device},id={model.name},netdev={model.tap},{place}"
        arguments += ["-netdev", backend, "-device", f"{device},mac=52:54:00:00:00:0{model.number}"]
    return arguments


# ---- the node ----


class Node:
    """millraced in the guest on one model's NIC. Its files are in /run/NAME; its checkpoints outlast it."""

    as_user = ""
    """What the program is started with."""

    def __init__(self, guest: Guest, model: Model, net: int = 9) -> None:
        self.guest, self.model = guest, model
        self.place = f"/run/{model.name}"
        self.ipv4, self.ipv6 = f"10.{net}.{model.number}.1", f"fd{net:02}:{model.number}::1"
        self.address, self.address6 = f"{self.ipv4}:7700", f"[{self.ipv6}]:7700"

    def launch(self, cores: int, **more: str) -> None:
        settings = {
            "node.name": self.model.name,
            "port.device": self.model.address.removeprefix("0000:"),
            "port.ipv4": f"{self.ipv4}/24",
            "port.ipv6": f"{self.ipv6}/64",
            "cores.count": str(cores),
            "cores.poll_mode": "adaptive",
            "cores.adaptive_idle_us": "20000",  # a nap of 50 us takes a guest's emulated timer milliseconds
            "memory.packets_mib": "256",
            "memory.limit_mib": "192",
            "memory.messages_mib": "48",
            "batches.memory_mib": "16",
            "transport.message_mib_max": "16",
            "checkpoint.directory": f"{self.place}/checkpoints",
            **{key.replace("__", "."): value for key, value in more.items()},
        }
        words = " ".join(f"--set {key}={value}" for key, value in settings.items())
        program = f"{self.as_user} {os.environ['MILLRACED']} --config /dev/null {words}"
        self.guest.run(
            f"mkdir -p {self.place}; cd {self.place}; rm -f out log status\n"
            "export RUNTIME_DIRECTORY=$PWD\n"
            f"(setsid {program} >out 2>log </dev/null; echo $? >status) &\n"
            "echo $! >shell"
        )

    def start(self, cores: int, **more: str) -> str:
        """Returns the line that says it is ready."""
        self.launch(cores, **more)
        self.guest.wait("the node is ready", f"cd {self.place}; grep -q ready out || test -e status")
        said = self.guest.run(f"cat {self.place}/out {self.place}/log")
        ready = [line for line in said.splitlines() if line.startswith("millraced: ready")]
        assert ready, f"the node does not start:\n{said}"
        return ready[0]

    def signal(self, name: str) -> None:
        self.guest.run(f"pkill -{name} -P $(cat {self.place}/shell)")

    def ended(self) -> int:
        """Waits until it has, and returns its exit status."""
        self.guest.wait("the node ends", f"test -e {self.place}/status")
        return int(self.guest.run(f"cat {self.place}/status"))

    def log(self) -> str:
        return self.guest.run(f"cat {self.place}/log")

    def wait_log(self, text: str) -> None:
        self.guest.wait(f'"{text}" in the log', f"grep -qF '{text}' {self.place}/log")

    @contextmanager
    def client(self, address: str = "") -> Iterator[millrace.Client]:
        with millrace.Client(address or self.address, deadline_s=PATIENCE_S, connect_s=PATIENCE_S) as client:
            yield client


def bind(guest: Guest, model: Model, driver: str) -> None:
    device = f"/sys/bus/pci/devices/{model.address}"
    guest.run(
        f"[ ! -e {device}/driver ] || echo {model.address} >{device}/driver/unbind\n"
        f"echo {driver} >{device}/driver_override; echo {model.address} >/sys/bus/pci/drivers_probe\n"
        f"[ $(basename $(readlink {device}/driver)) = {driver} ]"
    )


# ---- situations ----


def check_rows(node: Node, name: str, address: str = "") -> np.ndarray:
    """Rows are what pushes leave of them, and large values arrive whole. Returns the rows."""
    keys = np.arange(KEYS)
    with node.client(address) as client:
        table = client.table(name, DIM, optimizer=optim.SGD(lr=1.0), initializer=init.uniform(0, 1, seed=1))
        before = table.lookup(keys)
        gradients = np.random.default_rng(1).random((KEYS, DIM), dtype=np.float32)
        table.push_gradients(keys, gradients)
        after = table.lookup(keys)
        assert np.allclose(after, before - gradients, atol=1e-6), name
        large = client.variable(f"{name}_large", 1 << 18)
        large.push(np.arange(1 << 18, dtype=np.float32))
        assert np.array_equal(large.pull(), np.arange(1 << 18, dtype=np.float32)), name
        return after


def read_rows(node: Node, name: str) -> np.ndarray:
    with node.client() as client:
        return client.table(name).lookup(np.arange(KEYS))


def counter(node: Node, cores: int, name: str) -> int:
    with node.client() as client:
        return sum(client.stats(core)[name] for core in range(cores))


def pings(node: Node) -> None:
    for address in (node.ipv4, node.ipv6):
        host("ping", "-q", "-c", "2", "-i", "0.2", "-W", str(int(PATIENCE_S)), address)


def check_refusal(node: Node) -> None:
    """A node says who has its device, and how to bind it."""
    module = {"virtio-pci": "virtio_net"}.get(node.model.driver, node.model.driver)
    node.guest.run(f"{node.guest.modules} {module}")
    bind(node.guest, node.model, node.model.driver)
    node.launch(1)
    assert node.ended() == 1
    said = node.guest.run(f"cat {node.place}/log")
    assert f"the kernel's driver {node.model.driver} has {node.model.address}" in said, said
    assert f"dpdk-devbind.py --bind=vfio-pci {node.model.address}" in said, said


def offload_sums(tap: str, state: str) -> None:
    """A tap can leave checksums to devices that know how to take them: not to QEMU's e1000."""
    done = subprocess.run(["ethtool", "-K", tap, "tx", state], capture_output=True, text=True)
    assert done.returncode == 0 or "Could not change" in done.stderr, done.stderr


def check_checksums(node: Node, cores: int) -> None:
    """A peer on the same host leaves checksums to its device, which is the default, or computes them."""
    for offload in ("on", "off"):
        offload_sums(node.model.tap, offload)
        check_rows(node, f"sums_{offload}_{cores}")
        check_rows(node, f"sums6_{offload}_{cores}", node.address6)
    offload_sums(node.model.tap, "on")
    assert counter(node, cores, "port.rx_checksum") == 0


def check_large(node: Node) -> None:
    """Slow pollers lose nothing in their rings: a window fits, and the transport notices the time."""
    values = np.arange(2 << 20, dtype=np.float32)
    with node.client() as client:
        large = client.variable("large", len(values))
        began = time.monotonic()
        large.push(values)
        pushed = time.monotonic()
        assert np.array_equal(large.pull(), values)
        print(
            f"  {node.model.name}: 8 MiB: push {pushed - began:.1f} s, pull {time.monotonic() - pushed:.1f} s"
        )
        stats = client.stats()
    names = ("wire.segments_resent", "wire.segments_repeated", "wire.window_losses", "nic.rx_missed_errors")
    print(f"  {node.model.name}: {', '.join(f'{name} {stats.get(name, 0)}' for name in names)}", flush=True)
    assert stats.get("nic.rx_missed_errors", 0) == 0


def check_link(node: Node) -> None:
    node.guest.qmp("set_link", name=node.model.name, up=False)
    node.wait_log("the link is down")
    node.guest.qmp("set_link", name=node.model.name, up=True)
    node.wait_log("the link is up again")
    check_rows(node, "link")


def check_kill(node: Node) -> None:
    """What was saved is there after a kill, on another number of cores."""
    rows = check_rows(node, "kept")
    with node.client() as client:
        client.wait_for_save(client.save(), timeout_s=PATIENCE_S)
    node.signal("KILL")
    assert node.ended() == 137
    report(node, node.start(2), 2)
    assert np.array_equal(read_rows(node, "kept"), rows)


def check_unbinding(node: Node) -> None:
    """Whoever takes the device away gets it; nothing is lost that was answered."""
    rows = check_rows(node, "unbound")
    began = time.monotonic()
    node.guest.run(f"echo {node.model.address} >/sys/bus/pci/drivers/vfio-pci/unbind", patience_s=UNBIND_S)
    print(f"  {node.model.name}: unbound after {time.monotonic() - began:.1f} s")
    assert node.ended() == 1
    assert "the device is being taken away" in node.log(), node.log()
    bind(node.guest, node.model, "vfio-pci")
    report(node, node.start(2), 2)
    assert np.array_equal(read_rows(node, "unbound"), rows)


def check_frames(node: Node, name: str) -> None:
    """Long frames, with a tag, on the shortest rings. name: the VLAN's interface."""
    short = {"port__rx_descriptors": "64", "port__tx_descriptors": "64"}
    report(node, node.start(1, port__vlan="7", port__mtu="9000", **short), 1)
    pings(node)
    before = interface_counts(name)
    check_rows(node, "long")
    after = interface_counts(name)
    for way in ("rx", "tx"):
        count, length = (after[f"{way}_{what}"] - before[f"{way}_{what}"] for what in ("packets", "bytes"))
        assert length > 2000 * count, f"{way}: {count} packets of {length / count:.0f} bytes"
    assert counter(node, 1, "port.rx_malformed") == 0
    node.signal("TERM")
    assert node.ended() == 0, node.log()


def check_vlan(guest: Guest, model: Model) -> None:
    name = f"{model.tap}.7"
    with closing(Vlan(model.tap, name, number=7, mtu=9000)):
        host("ip", "address", "add", f"10.10.{model.number}.2/24", "dev", name)
        host("ip", "address", "add", f"fd10:{model.number}::2/64", "dev", name, "nodad")
        check_frames(Node(guest, model, net=10), name)
    host("ip", "link", "set", model.tap, "mtu", "1500")


def interface_counts(name: str) -> dict[str, int]:
    shown = subprocess.run(["ip", "-j", "-s", "link", "show", name], check=True, capture_output=True).stdout
    stats = json.loads(shown)[0]["stats64"]
    return {f"{way}_{what}": stats[way][what] for way in ("rx", "tx") for what in stats[way]}


def check_long_rings(node: Node) -> None:
    report(node, node.start(2, port__rx_descriptors="32768", port__tx_descriptors="32768"), 2)
    check_rows(node, "long_rings")
    assert sum(counter(node, 2, name) for name in ("port.no_buffer", "port.tx_dropped")) == 0
    node.signal("TERM")
    assert node.ended() == 0, node.log()


def check_user(node: Node) -> None:
    """A user without root needs the device's group, and is told so."""
    bind(node.guest, node.model, "vfio-pci")
    node.place += "_user"
    group = node.guest.run(
        f"basename $(readlink /sys/bus/pci/devices/{node.model.address}/iommu_group)"
    ).strip()
    node.as_user = "prlimit --memlock=unlimited setpriv --reuid=65534 --regid=65534 --clear-groups"
    node.guest.run(f"install -d -o 65534 {node.place}; chmod 600 /dev/vfio/{group}")
    node.guest.run(f"chown 0:0 /dev/vfio/{group}")
    node.launch(1)
    assert node.ended() == 1
    said = node.log()
    assert f"may not open /dev/vfio/{group}" in said and f"chown nobody /dev/vfio/{group}" in said, said
    node.guest.run(f"chown 65534 /dev/vfio/{group}")
    report(node, node.start(1), 1)
    check_rows(node, "user")
    node.signal("TERM")
    assert node.ended() == 0, node.log()


def check_missing_driver(node: Node) -> None:
    """DPDK without the NIC's driver, which is a package of its own."""
    bind(node.guest, node.model, "vfio-pci")
    node.guest.run(
        "folder=$(echo /usr/lib/x86_64-linux-gnu/dpdk/pmds-*); mkdir -p /run/pmds\n"
        "mount --bind $folder /run/pmds; mount -t tmpfs -o mode=755 tmpfs $folder\n"
        "ln -s /run/pmds/* $folder; rm $folder/*net_e1000*"
    )
    node.launch(1)
    assert node.ended() == 1
    said = node.log()
    node.guest.run("umount /usr/lib/x86_64-linux-gnu/dpdk/pmds-* /run/pmds")
    assert f"no driver of DPDK here takes {node.model.address} (8086:" in said, said
    assert "librte-meta-net" in said, said


def report(node: Node, ready: str, cores: int) -> None:
    print(f"  {node.model.name}: {ready}", flush=True)
    assert f"steering={node.model.steering if cores > 1 else 'one core'} (" in ready


def check_model(guest: Guest, model: Model) -> None:
    node = Node(guest, model)
    check_refusal(node)
    bind(guest, model, "vfio-pci")
    report(node, node.start(1), 1)
    pings(node)
    check_checksums(node, 1)
    check_large(node)
    check_link(node)
    check_kill(node)
    check_checksums(node, 2)
    check_unbinding(node)
    node.signal("TERM")
    assert node.ended() == 0, node.log()
    check_long_rings(node)
    check_vlan(guest, model)
    print(f"  {model.name}: passed", flush=True)


def main() -> None:
    kernel, busybox, directory = (Path(argument) for argument in sys.argv[1:4])
    wanted = sys.argv[4:] or [model.name for model in MODELS if has_model(model)]
    models = [model for model in MODELS if model.name in wanted]
    directory.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    guest = Guest(kernel, make_ramdisk(kernel, busybox, directory), directory, lay_cables(models))
    print(f"nic: the guest runs after {time.monotonic() - began:.0f} s", flush=True)
    try:
        for model in models:
            check_model(guest, model)
        for model in [model for model in models if model.driver.startswith("e1000")][:1]:
            check_user(Node(guest, model))
            check_missing_driver(Node(guest, model))
    finally:
        guest.stop()
    print(f"nic: passed on {', '.join(model.name for model in models)}")


if __name__ == "__main__":
    main()
