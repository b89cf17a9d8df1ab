"""Tests that were built for arm64, in a guest of qemu-system-aarch64: those for which its kernel is needed,
DPDK's ports and io_uring. Prints each test, and "N passed, N failed, N skipped".

usage: test_arm64.py KERNEL BUSYBOX ROOT TREE DIRECTORY [NAME]...
as root; scripts/arm64.sh --guest prepares all.
KERNEL: an unpacked package of Debian's kernel; ROOT: a root of arm64 with guest_init.sh; TREE: what is
/millrace there, with build/arm64; DIRECTORY: for files of the run; NAME: of the tests, by default all
"""
from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path

from guest import ARM64, Guest, make_ramdisk

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import arm64_tests  # noqa: E402

BUILD = "build/arm64"
TEST_S = 1800  # each command is emulated, and one processor in four is somebody else's
DISK_BYTES = 4 << 30
SKIPPED = 77  # meson's


def command_of(test: dict) -> str:
    """A shell's, in the guest."""
    words = ["env", *(f"{name}={value}" for name, value in test["env"].items()), *test["cmd"]]
    return f"cd {test['workdir'] or f'/millrace/{BUILD}'} && timeout {TEST_S - 60} {shlex.join(words)}"


def make_disk(directory: Path) -> list[str]:
    """QEMU's arguments for the guest's /tmp."""
    disk = directory / "disk.img"
    disk.unlink(missing_ok=True)
    with open(disk, "wb") as file:
        file.truncate(DISK_BYTES)
    subprocess.run(["mkfs.ext4", "-q", disk], check=True)
    return ["-drive", f"file={disk},if=virtio,format=raw,cache=unsafe"]


def main() -> int:
    kernel, busybox, root, tree, directory = (Path(argument) for argument in sys.argv[1:6])
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    ramdisk = make_ramdisk(kernel, busybox, directory, ARM64)
    shares = {"root": root, "tree": tree}
    guest = Guest(kernel, ramdisk, directory, make_disk(directory), ARM64, shares, Path("/guest_init.sh"))
    try:
        print(guest.run("uname -srm").strip(), flush=True)
        for test in arm64_tests.in_guest(str(tree / BUILD)):
            if len(sys.argv) > 6 and test["name"] not in sys.argv[6:]:
                continue
            began = time.monotonic()
            output = guest.run(f"({command_of(test)}); echo status=$?", patience_s=TEST_S)
            status = int(output.rstrip().rpartition("status=")[2])
            result = {0: "passed", SKIPPED: "skipped"}.get(status, "failed")
            counts[result] += 1
            print(f"{test['name']}: {result} in {time.monotonic() - began:.0f} s", flush=True)
            if result == "failed":
                print("".join(f"    {line}\n" for line in output.splitlines()[-arm64_tests.LAST_LINES :]))
    finally:
        guest.stop()
    print(", ".join(f"{count} {result}" for result, count in counts.items()))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
