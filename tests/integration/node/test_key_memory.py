"""A node's pre-shared keys are only in memory that no core dump has, also after a call and a reload.

usage: test_key_memory.py MILLRACED MILLRACE
in a network namespace of its own: needs root, to read the node's memory
"""
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from own_node import NODE, PATIENCE_S, own_network, start_node, wait_for

PAGE = os.sysconf("SC_PAGE_SIZE")
PRESENT = 1 << 63
SWAPPED = 1 << 62


def mappings(pid: int) -> Iterator[tuple[int, int, str, set[str]]]:
    """Begin, end, first line and flags of each that can be read."""
    first = ""
    for line in Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8").splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            first = line
        elif line.startswith("VmFlags:") and first.split()[1].startswith("r"):
            begin, end = (int(side, 16) for side in first.split()[0].split("-"))
            yield begin, end, first, set(line.split()[1:])


def used(pid: int, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The pages that take memory, as runs."""
    with open(f"/proc/{pid}/pagemap", "rb") as pagemap, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        pagemap.seek(begin // PAGE * 8)
        entries = struct.unpack(f"{(end - begin) // PAGE}Q", pagemap.read((end - begin) // PAGE * 8))
        first = None
        for index, entry in enumerate((*entries, 0)):
            if entry & (PRESENT | SWAPPED):
                first = index if first is None else first
            elif first is not None:
                try:
                    memory.seek(begin + first * PAGE)
                    yield begin + first * PAGE, memory.read((index - first) * PAGE)
                except OSError:
                    pass  # of a device
                first = None


def places(pid: int, wanted: bytes) -> list[tuple[str, bool]]:
    """Each mapping that has these bytes, and whether a core dump leaves it out."""
    found = []
    for begin, end, first, flags in mappings(pid):
        if any(wanted in content for _, content in used(pid, begin, end)):
            found.append((first, "dd" in flags))
    return found


def main() -> None:
    own_network()
    with tempfile.TemporaryDirectory(prefix="millrace-test-keys-") as made:
        directory = Path(made)
        keys = {name: os.urandom(32) for name in ("operator", "trainer")}
        for name, key in keys.items():
            (directory / name).touch(mode=0o600)
            (directory / name).write_text(key.hex() + "\n", encoding="ascii")
        node = start_node(
            sys.argv[1],
            directory,
            node__key_file=str(directory / "operator"),
            node__key=f"trainer:{directory / 'trainer'}",
        )
        log = directory / "node.log"
        try:
            wait_for("the node serves", lambda: "millraced: ready" in log.read_text(encoding="utf-8"))
            for name in keys:
                subprocess.run(
                    [sys.argv[2], "ctl", "list", "--server", NODE, "--key-file", str(directory / name)],
                    check=True,
                    stdout=subprocess.DEVNULL,
                )
            node.send_signal(signal.SIGHUP)
            wait_for(
                "the keys are read again", lambda: "keys read again: 2" in log.read_text(encoding="utf-8")
            )
            for name, key in keys.items():
                found = places(node.pid, key)
                assert found, f"the {name}'s key is nowhere: this test looks in the wrong place"
                assert all(is_left_out for _, is_left_out in found), f"the {name}'s key: {found}"
                assert (
                    places(node.pid, key.hex().encode()) == []
                ), f"the text of the {name}'s key stays in memory"
        finally:
            node.terminate()
            ended = node.wait(PATIENCE_S)
        assert ended == 0, log.read_text(encoding="utf-8")


main()
