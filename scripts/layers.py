#!/usr/bin/env python3
"""Checks that includes go down only: from each folder to those below it, in the order that
docs/architecture.md draws.

usage: scripts/layers.py     prints each include that goes up, and each exception below that is no longer
needed
"""
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# From the ground up: a folder may include those before it. A folder's own folders are ordered by themselves.
ORDERS = {
    "": (
        "dataplane/wire",
        "dataplane/udp",
        "dataplane/metrics",
        "dataplane/optimizer",
        "dataplane/rpc",
        "dataplane",
        "ps",
        "trainer_client",
        "tools",
    ),
    "dataplane": ("net", "capture", "dpdk", "loop"),
    "dataplane/wire": ("base", "format", "session", "call"),
    "dataplane/rpc": ("base", "world", "rref", "call", "autograd", "dist_optimizer"),
    "ps": (
        "base",
        "config",
        "memory",
        "io",
        "checkpoint",
        "log",
        "store",
        "cluster",
        "row",
        "index",
        "table",
        "exactly_once",
        "save",
        "core",
        "restore",
        "move",
        "control",
        "node_cluster",
        "ops",
        "server",
    ),
    "trainer_client": (
        "socket",
        "call",
        "api",
        "replay",
        "rpc",
        "hub/format",
        "hub/plan",
        "hub/samples",
        "hub/kafka",
        "hub",
    ),
}
# Folders that must stay apart, although one stands above the other, and what of it may be used nevertheless.
APART = {
    ("trainer_client", "dataplane"): (),
    ("trainer_client", "ps"): (),
    ("tools", "dataplane"): (),
    ("tools", "ps"): (
        "ps/checkpoint/",
        "ps/io/",
        "ps/log/log_disk.h",
        "ps/row/",
        "ps/store/",
        "ps/cluster/zookeeper_hosts.h",
    ),
}  # files and rows: millrace ckpt reads them without a node; doctor resolves ZooKeeper's names as a node does

# Where installed headers lie, which are included as users do.
PUBLIC = ("trainer_client", "dataplane/wire/format")

# (folder, folder above it): why. Fewer is better.
EXCEPTIONS = {
    (
        "dataplane/rpc/base",
        "dataplane/rpc/world",
    ): "an agent's state has its members and messages to them in it",
    (
        "dataplane/rpc/world",
        "dataplane/rpc/rref",
    ): "who holds others' values, or whose values others hold, cannot leave",
    ("dataplane/rpc/call", "dataplane/rpc/autograd"): "a call in a context is recorded",
    ("ps/save", "ps/core"): "a save walks the core's tables",
    ("ps/core", "ps/server"): "core 0 drives the node's worker of remote calls",
}


def included(file: str) -> Iterator[str]:
    """The project's headers that a file includes, by their paths from the root, where there is one."""
    for header in re.findall(r'^#include "([^"]+)"', (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE):
        places = [header, *(f"{folder}/{header}" for folder in (str(Path(file).parent), *PUBLIC))]
        yield next((place for place in places if (ROOT / place).is_file()), header)


def ranked(path: str, top: str) -> tuple[int, str] | None:
    """How high a file stands among the folders of `top`, and in which it lies; None: in none of them."""
    prefix = f"{top}/" if top else ""
    for folder in sorted(ORDERS[top], key=len, reverse=True):
        if path.startswith(f"{prefix}{folder}/"):
            return ORDERS[top].index(folder), folder
    return None


def wrong(file: str, header: str) -> bool:
    for top in ORDERS:
        user, used = ranked(file, top), ranked(header, top)
        if user and used and user[0] < used[0]:
            return True
        if (
            user
            and used
            and not top
            and (user[1], used[1]) in APART
            and not header.startswith(APART[user[1], used[1]])
        ):
            return True
    return False


def excepted(file: str, header: str) -> tuple[str, str] | None:
    return next(
        (pair for pair in EXCEPTIONS if file.startswith(pair[0] + "/") and header.startswith(pair[1] + "/")),
        None,
    )


def main() -> int:
    files = subprocess.run(
        ["git", "ls-files", "*.c", "*.h"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    status, needed = 0, set()
    for file in (name for name in files if not name.startswith("tests/")):
        for header in (name for name in included(file) if not (ROOT / name).is_file()):
            print(f"{file}: includes {header}, which is not there: write its path from the root")
            status = 1
        for header in filter(lambda name: wrong(file, name), included(file)):
            pair = excepted(file, header)
            if pair is None:
                print(
                    f"{file}: includes {header}, which stands above it or apart from it: see "
                    "scripts/layers.py"
                )
                status = 1
            needed.add(pair)
    for pair in EXCEPTIONS.keys() - needed:
        print(f"scripts/layers.py: {pair[0]} no longer includes {pair[1]}: delete the exception")
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
