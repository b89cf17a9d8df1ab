"""A guest of QEMU with Debian's kernel, for tests that need a kernel or devices of their own. Its files are a
directory of this machine, read-only over 9p; commands go to it over a second terminal (guest_init.sh), and
what happens to its devices to QEMU."""
from __future__ import annotations

import base64
import json
import lzma
import select
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
BOOT_S = 150  # of a machine that emulates the processor and has something else to do
COMMAND_S = 300
ROOT_OPTIONS = "ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose"
MODULES = ("virtio_pci", "9pnet_virtio", "9p")
"""What the initial RAM disk loads, to have any file at all."""


class Machine(NamedTuple):
    """What QEMU emulates."""

    program: str
    arguments: tuple[str, ...]
    console: str
    """The terminal of the kernel's messages."""
    shell: str
    """That of commands, and the device that leads it to the socket {0}."""
    shell_device: tuple[str, ...]
    options: str
    """The kernel's."""
    modules: tuple[str, ...]
    """Beside MODULES."""


X86_64 = Machine(
    "qemu-system-x86_64",
    ("-machine", "q35,kernel-irqchip=split", "-device", "intel-iommu,intremap=on,caching-mode=on"),
    "ttyS0",
    "ttyS1",
    ("-serial", "unix:{0},server=on,wait=off"),
    "intel_iommu=on iommu=pt mitigations=off no_timer_check",
    ("vfio-pci",),
)
ARM64 = Machine(
    "qemu-system-aarch64",
    ("-machine", "virt,gic-version=3"),
    "ttyAMA0",
    "hvc0",
    ("-device", "virtio-serial-pci", "-chardev", "socket,id=shell,path={0},server=on,wait=off",
     "-device", "virtconsole,chardev=shell"),
    "",
    ("virtio_console", "virtio_blk", "ext4", "veth", "tun"),
)  # fmt: skip


def make_ramdisk(kernel: Path, busybox: Path, directory: Path, machine: Machine = X86_64) -> Path:
    """The initial RAM disk: busybox, the modules above, those that they need, what mounts the root."""
    root = directory / "ramdisk"
    shutil.rmtree(root, ignore_errors=True)
    for name in ("bin", "dev", "proc", "sys", "root", "modules"):
        (root / name).mkdir(parents=True)
    shutil.copy(busybox, root / "bin/busybox")
    version = next((kernel / "lib/modules").iterdir()).name
    show = ["modprobe", "--dirname", kernel, "--set-version", version, "--show-depends", "--all"]
    wanted = subprocess.run(
        [*show, *MODULES, *machine.modules], check=True, capture_output=True, text=True
    ).stdout
    lines = ["#!/bin/busybox sh"]
    for kind, folder in (("devtmpfs", "dev"), ("proc", "proc"), ("sysfs", "sys")):
        lines.append(f"/bin/busybox mount -t {kind} {kind} /{folder}")
    for order, line in enumerate(line for line in wanted.splitlines() if line.startswith("insmod ")):
        file = Path(line.split()[1])
        name = f"{order:02}-{file.name.removesuffix('.xz')}"
        text = file.read_bytes()
        (root / "modules" / name).write_bytes(lzma.decompress(text) if file.suffix == ".xz" else text)
        lines.append(f"/bin/busybox insmod /modules/{name} 2>/dev/null")
    lines += [
        f"/bin/busybox mount -t 9p -o {ROOT_OPTIONS} root /root",
        "/bin/busybox mount -t devtmpfs devtmpfs /root/dev",
        "init=$(/bin/busybox sed -n 's/.*guest_init=\\([^ ]*\\).*/\\1/p' /proc/cmdline)",
        "/bin/busybox umount /proc /sys /dev",
        "exec /bin/busybox switch_root /root /bin/bash $init",
    ]
    (root / "init").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (root / "init").chmod(0o755)
    names = subprocess.run(["find", "."], cwd=root, check=True, capture_output=True).stdout
    archive = subprocess.run(
        ["cpio", "--quiet", "-o", "-H", "newc"], cwd=root, input=names, check=True, capture_output=True
    ).stdout
    out = directory / "ramdisk.cpio"
    out.write_bytes(archive)
    return out


class Guest:
    """A running guest with these devices, each an argument of QEMU's -netdev and -device."""

    def __init__(
        self,
        kernel: Path,
        ramdisk: Path,
        directory: Path,
        devices: list[str],
        machine: Machine = X86_64,
        shares: dict[str, Path] | None = None,
        init: Path = HERE / "guest_init.sh",
    ):
        """shares: what the guest has as `root`, this machine's by default, and as `tree`, its /millrace;
        init: a path below root."""
        self.directory = directory
        self.console = directory / "console.log"
        version = next((kernel / "lib/modules").iterdir()).name
        serial, monitor = directory / "serial.sock", directory / "monitor.sock"
        for path in (serial, monitor):
            path.unlink(missing_ok=True)
        append = (
            f"console={machine.console} quiet loglevel=4 panic=-1 {machine.options} "
            f"hugepagesz=2M hugepages=256 guest_init={init} guest_shell={machine.shell}"
        )
        arguments = [
            machine.program, "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1792",
            *machine.arguments, "-nodefaults", "-display", "none", "-no-reboot",
            "-serial", f"file:{self.console}", *(word.format(serial) for word in machine.shell_device),
            "-qmp", f"unix:{monitor},server=on,wait=off",
            "-kernel", str(kernel / f"boot/vmlinuz-{version}"), "-initrd", str(ramdisk), "-append", append,
            *devices,
        ]  # fmt: skip
        for tag, path in (shares or {"root": Path("/")}).items():
            share = f"local,path={path},mount_tag={tag},security_model=none,readonly=on,multidevs=remap"
            arguments += ["-virtfs", share]
        self.modules = f"modprobe --dirname {kernel} --set-version {version}"
        with open(directory / "qemu.log", "w", encoding="utf-8") as log:
            self.qemu = subprocess.Popen(["nice", "-n", "5", *arguments], stdout=log, stderr=log)
        self.serial = self._connect(serial)
        self.pending = b""
        self.monitor = self._connect(monitor).makefile("rw", encoding="utf-8")
        self.monitor.readline()
        self.qmp("qmp_capabilities")
        if self._line(BOOT_S) != "up":
            raise AssertionError(
                "the guest does not boot:\n" + self.console.read_text(errors="replace")[-3000:]
            )

    def _connect(self, path: Path) -> socket.socket:
        end = time.monotonic() + 30
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(str(path))
                return connection
            except OSError:
                connection.close()
                if self.qemu.poll() is not None or time.monotonic() > end:
                    raise AssertionError((self.directory / "qemu.log").read_text(encoding="utf-8")) from None
                time.sleep(0.05)

    def _line(self, patience_s: float) -> str:
        end = time.monotonic() + patience_s
        while b"\n" not in self.pending:
            ready, _, _ = select.select([self.serial], [], [], max(0.0, end - time.monotonic()))
            more = self.serial.recv(65536) if ready else b""
            if not more:
                console = self.console.read_text(errors="replace")[-3000:]
                raise AssertionError(
                    f"the guest says nothing for {patience_s:.0f} s; its console:\n{console}"
                )
            self.pending += more
        line, self.pending = self.pending.split(b"\n", 1)
        return line.decode()

    def run(self, command: str, check: bool = True, patience_s: float = COMMAND_S) -> str:
        """The command's output, errors among it."""
        self.serial.sendall(base64.b64encode(command.encode()) + b"\n")
        output = base64.b64decode(self._line(patience_s)).decode(errors="replace")
        status = int(self._line(patience_s))
        if check and status != 0:
            raise AssertionError(f"in the guest, exit status {status}: {command}\n{output}")
        return output

    def wait(self, what: str, command: str, patience_s: float = COMMAND_S) -> None:
        """Until the command succeeds there."""
        end = time.monotonic() + patience_s
        while self.run(f"{command} >/dev/null 2>&1 && echo yes || echo no").strip() != "yes":
            if time.monotonic() > end:
                raise AssertionError(f"waited in vain: {what}: {command}")
            time.sleep(0.2)

    def qmp(self, command: str, **arguments: Any) -> Any:
        self.monitor.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self.monitor.flush()
        while True:
            try:
                answer = json.loads(self.monitor.readline())
            except (OSError, ValueError):
                raise AssertionError((self.directory / "qemu.log").read_text(encoding="utf-8")) from None
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise AssertionError(f"{command}: {answer['error']}")

    def stop(self) -> None:
        self.qemu.kill()
        self.qemu.wait()
        self.serial.close()
        self.monitor.close()
