"""Fixtures: a running node, alone or with a hub. Tests that need one are skipped where namespaces cannot be
made."""
from __future__ import annotations

import os
import sys
from typing import Callable, Iterator

import pytest

sys.path.insert(0, os.path.dirname(__file__))

for _name in ("MILLRACE_KEY_FILE", "MILLRACE_REPLAY"):  # which change what clients do
    os.environ.pop(_name, None)

from cable import Cable  # noqa: E402
from programs import Hub, Node  # noqa: E402

import millrace  # noqa: E402


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "forks: forks a process that has threads; skipped under ASan")
    config.addinivalue_line("markers", "once: not where with_torch.py runs the file again with another torch")
    for kind in ("DeprecationWarning", "PendingDeprecationWarning", "FutureWarning"):
        config.addinivalue_line("filterwarnings", rf"error::{kind}:millrace(\.|$)")  # those of our own code


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What the markers say."""
    if "MILLRACE_AGAIN" in os.environ:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("once")])
        items[:] = [item for item in items if not item.get_closest_marker("once")]
    if "MILLRACE_ASAN" not in os.environ:
        return
    for item in items:  # libasan's allocator may leave a lock taken in the child of a process with threads
        if item.get_closest_marker("forks"):
            item.add_marker(pytest.mark.skip(reason="libasan does not survive fork() beside threads"))


NO_STORE = "no store: "
"""What the reason begins with when a real server cannot be had."""

MESON_SKIPPED = 77


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A run of no test, or without one of the real stores, counts as skipped: nobody is to take it for a
    whole one."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", [])
    lacks_store = any(NO_STORE in str(report.longrepr) for report in skipped)
    if (exitstatus == pytest.ExitCode.OK and lacks_store) or (
        exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and skipped
    ):
        session.exitstatus = MESON_SKIPPED


@pytest.fixture(scope="session")
def cable() -> Iterator[Cable]:
    """The test process is in a network namespace of its own from here on."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root; run it with sudo")
    cable = Cable()
    yield cable
    cable.close()


NODE_CORES = [int(cores) for cores in os.environ.get("MILLRACE_NODE_CORES", "1 2").split()]


@pytest.fixture(scope="module", params=NODE_CORES, ids={1: "1_core", 2: "2_cores"}.get)
def node(cable: Cable, request: pytest.FixtureRequest) -> Iterator[Node]:
    """A node that a file's tests share, with one core and then with two; with fewer where with_torch.py says
    so. Its tables are the tests' to name apart. What the file has as NODE_SETTINGS are further settings."""
    node = Node(cable, request.param, getattr(request.module, "NODE_SETTINGS", ())).start()
    yield node
    node.stop()


@pytest.fixture(scope="module")
def client(node: Node) -> Iterator[millrace.Client]:
    """Of the shared node; for a file's tests, or as they say themselves."""
    with millrace.Client(node.address, deadline_s=60, connect_s=60) as client:
        yield client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of a table that no other test has."""
    return "".join(c if c.isalnum() else "." for c in request.node.name)[-60:]


@pytest.fixture
def new_node(cable: Cable) -> Iterator[Callable[..., Node]]:
    """Makes nodes for one test alone: new_node(cores=1, settings=("section.key=value",)), started. One that
    is near is in the test's namespace."""
    nodes: list[Node] = []

    def make(cores: int = 1, settings: tuple[str, ...] = (), near: bool = False) -> Node:
        nodes.append(Node(cable, cores, settings, near))
        return nodes[-1].start()

    yield make
    for node in nodes:
        node.stop()


@pytest.fixture
def new_hub() -> Iterator[Callable[..., Hub]]:
    """Makes hubs for one test alone: new_hub(node, *options of the command line), started."""
    hubs: list[Hub] = []

    def make(node: Node, *options: str) -> Hub:
        hubs.append(Hub(node, *options))
        return hubs[-1].start()

    yield make
    for hub in reversed(hubs):
        hub.stop()
