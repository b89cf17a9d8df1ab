"""Nodes and trainers of two builds make the same bits of the same calls, restore each other's checkpoints,
and work in one cluster. The builds are of two architectures (scripts/arm64.sh), or one build twice.

usage: test_architectures.py BUILD OTHER_BUILD
in a network namespace of its own: needs root; the cluster needs Debian's package zookeeper
"""
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "node"))
from own_node import NODE, PATIENCE_S, own_network, start_node, wait_for  # noqa: E402

STEPS = 24  # and as many again after a restore
ZOOKEEPER_JAR = Path("/usr/share/java/zookeeper.jar")
ZOOKEEPER_PORT = 2181


class Build:
    def __init__(self, label: str, directory: str) -> None:
        self.directory = Path(directory).resolve()
        self.name = f"{label}-{self.directory.name}"
        self.millraced = str(self.directory / "ps/millraced")

    def call(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [self.directory / program, *arguments], capture_output=True, text=True, check=False
        )
        assert (
            done.returncode == 0
        ), f"{self.name} {program} {' '.join(arguments)}: {done.stderr}{done.stdout}"
        return done.stdout

    def trainer(self, *arguments: str, address: str = NODE) -> str:
        return self.call("tests/integration/step_trainer", address, *arguments)

    def ctl(self, *arguments: str, address: str = NODE) -> str:
        return self.call("tools/millrace", "ctl", *arguments, "--server", address)


@contextmanager
def running(build: Build, directory: Path, **settings: str) -> Iterator[Path]:
    """A node of this build that serves; its checkpoints are in the directory that is yielded."""
    checkpoints = directory / "checkpoints"
    checkpoints.mkdir(parents=True)
    node = start_node(
        build.millraced,
        directory,
        checkpoint__allow=str(directory.parent),
        checkpoint__every_s="0",
        checkpoint__save_on_stop="no",
        **settings,
    )
    log = directory / "node.log"
    try:
        wait_for(
            f"{build.name} serves or ends",
            lambda: node.poll() is not None or "ready" in log.read_text(encoding="utf-8"),
        )
        assert node.poll() is None, f"{build.name} ended with {node.returncode}"
        yield checkpoints
    except BaseException:
        print(log.read_text(encoding="utf-8"), file=sys.stderr)
        raise
    finally:
        node.terminate()
        node.wait(PATIENCE_S)


def train(trainer: Build, first: int, last: int, address: str = NODE) -> str:
    trainer.trainer("train", str(first), str(last), address=address)
    return trainer.trainer("print", str(last + 1), address=address)


def trained(node: Build, trainer: Build, directory: Path) -> tuple[str, Path]:
    """What came of the first steps, and the checkpoint of it."""
    with running(node, directory) as checkpoints:
        bits = train(trainer, 0, STEPS - 1)
        trainer.ctl("save", "--wait")
    return bits, checkpoints


def trained_on(node: Build, trainer: Build, directory: Path, checkpoints: Path, bits: str) -> str:
    """What comes of the next steps, from a checkpoint whose bits are these."""
    with running(node, directory):
        trainer.ctl("restore", "--directory", str(checkpoints))
        assert (
            trainer.trainer("print", str(STEPS)) == bits
        ), f"{node.name} restores other bits of {checkpoints}"
        return train(trainer, STEPS, 2 * STEPS - 1)


def newest(checkpoints: Path) -> str:
    return str(max(checkpoints.glob("ckpt-*"), key=lambda path: int(path.name.removeprefix("ckpt-"))))


def check_checkpoints(one: Build, other: Build, directory: Path) -> str:
    bits, saved = trained(one, one, directory / "one")
    other_bits, other_saved = trained(other, other, directory / "other")
    assert bits == other_bits, f"{one.name}:\n{bits}{other.name}:\n{other_bits}"
    for build in one, other:
        build.call("tools/millrace", "ckpt", "verify", newest(saved))
        build.call("tools/millrace", "ckpt", "verify", newest(other_saved))
        build.call("tools/millrace", "ckpt", "diff", newest(saved), newest(other_saved))
    print(f"the same bits and checkpoints of {one.name} and {other.name} after {STEPS} steps")
    then = trained_on(other, one, directory / "other-on", saved, bits)
    other_then = trained_on(one, other, directory / "one-on", other_saved, bits)
    assert then == other_then, f"{other.name}:\n{then}{one.name}:\n{other_then}"
    assert then != bits
    print(f"each restores the other's, and they make the same of {STEPS} steps more")
    return bits


@contextmanager
def zookeeper(directory: Path) -> Iterator[str]:
    directory.mkdir()
    (directory / "zoo.cfg").write_text(
        f"tickTime=1000\ndataDir={directory}/data\nclientPort={ZOOKEEPER_PORT}\nclientPortAddress=127.0.0.1\n"
        "admin.enableServer=false\n",
        encoding="utf-8",
    )
    with open(directory / "log", "w", encoding="utf-8") as log:
        options = ["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", str(ZOOKEEPER_JAR)]
        main = ["org.apache.zookeeper.server.ZooKeeperServerMain", str(directory / "zoo.cfg")]
        server = subprocess.Popen(["java", *options, *main], stdout=log, stderr=log)
    try:

        def answers() -> bool:
            with socket.create_connection(("127.0.0.1", ZOOKEEPER_PORT)):
                return True

        wait_for("ZooKeeper serves", answers)
        yield f"127.0.0.1:{ZOOKEEPER_PORT}"
    finally:
        server.kill()
        server.wait()


def without_bags(bits: str) -> list[str]:
    return [line.partition(" bags ")[0] for line in bits.splitlines()]


def check_cluster(one: Build, other: Build, directory: Path, bits: str) -> None:
    """Two nodes, one of each build, that share the keys; and a trainer of either."""
    directory.mkdir()
    with ExitStack() as stack:
        coordinator = stack.enter_context(zookeeper(directory / "zookeeper"))
        for number, build in enumerate((one, other)):
            settings = {
                "node__name": f"architectures-{number}",
                "port__udp_port": str(7700 + 10 * number),
                "cluster__name": "ads",
                "cluster__node": f"node-{number}",
                "cluster__nodes": "2",
                "cluster__zookeeper": coordinator,
                "cluster__session_ms": "20000",
            }
            stack.enter_context(running(build, directory / f"node-{number}", **settings))
        one.trainer("train", "0", str(STEPS // 2 - 1))
        both = train(other, STEPS // 2, STEPS - 1)
        # A bag over more cores is summed in another order.
        assert without_bags(both) == without_bags(bits), f"a cluster of both:\n{both}one node:\n{bits}"
    print(f"a cluster of {one.name} and {other.name} makes the same bits, trained by both")


def main() -> None:
    own_network()
    one, other = Build("one", sys.argv[1]), Build("other", sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="millrace-test-architectures-") as made:
        directory = Path(made)
        bits = check_checkpoints(one, other, directory)
        for node, trainer in ((one, other), (other, one)):
            mixed, _ = trained(node, trainer, directory / f"{node.name}-by-{trainer.name}")
            assert mixed == bits, f"a node of {node.name} with a trainer of {trainer.name}:\n{mixed}"
            print(f"the same bits of a node of {node.name} with a trainer of {trainer.name}")
        if ZOOKEEPER_JAR.exists():
            check_cluster(one, other, directory / "cluster", bits)
        else:
            print("no cluster: install Debian's package zookeeper")


main()
