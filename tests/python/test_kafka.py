"""A hub that reads a topic of a real Kafka broker. Skipped where that cannot be had."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Iterator

import numpy as np
import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "stores"))

from conftest import NO_STORE  # noqa: E402
from stores import Kafka, find_classes  # noqa: E402

import millrace  # noqa: E402
from millrace import init, optim  # noqa: E402

BATCH = 8
FORMAT = """[format]
name = numbers
label = y
header = none
[columns]
y = flag
n = integer
[dense]
n = n
[slots]
n = range(n)
text = n
"""


@pytest.fixture(scope="session", autouse=True)
def classes() -> tuple[str, str]:
    """Before `cable`, which is a session's, too: in the test's namespace there is no Maven Central."""
    return find_classes("kafka")


@pytest.fixture(scope="module")
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="millrace-test-", ignore_cleanup_errors=True) as folder:
        yield folder


@pytest.fixture(scope="module")
def broker(cable, classes, folder) -> Iterator[Kafka]:
    found, why = classes
    if why:
        pytest.skip(f"{NO_STORE}kafka: {why}")
    broker = Kafka(folder, found)
    yield broker
    broker.close()


def write_file(folder: str, name: str, text: str) -> str:
    """Returns its path."""
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    return path


class Training:
    """A table that counts how often each number of a topic was applied, and a hub that reads the topic."""

    def __init__(self, new_node, new_hub, broker: Kafka, folder: str, topic: str, *options: str) -> None:
        self.broker, self.topic, self.folder = broker, topic, folder
        description = write_file(folder, "numbers.ini", FORMAT)
        self.node = new_node(cores=2)
        self.client = millrace.Client(self.node.address, deadline_s=60, connect_s=60)
        self.table = self.client.table("t", 2, optimizer=optim.SGD(lr=1), initializer=init.constant(0))
        # A trainer that stops reading leaves batches behind: they come again soon.
        self.hub = new_hub(
            self.node,
            *("--trainer-timeout", "1", "--format", description),
            *(options or ("--kafka", broker.address)),
        )
        self.seen: list[int] = []

    def put(self, partition: int, numbers: range, how: str = "put") -> None:
        lines = "".join(f"{n % 2},{n}\n" for n in numbers)
        path = write_file(self.folder, f"{self.topic}-lines", lines)
        self.broker.tell(f"{how} {self.topic} {partition} {path}", f"done {how}")

    def loader(self, hub: millrace.Hub, run: int = 0) -> millrace.DataLoader:
        path = f"kafka:{self.topic}"
        return millrace.DataLoader(
            hub, path, "numbers", BATCH, table=self.table, tables=[self.table], run=run
        )

    def train(self, batches: int = 1 << 30, run: int = 0, until: range = range(1 << 30)) -> None:
        """On that many batches that have samples, or until these numbers have come."""
        with millrace.Hub(self.hub.address, deadline_s=60, connect_s=60) as hub:
            loader = self.loader(hub, run)
            for left, batch in zip(range(batches - 1, -1, -1), loader):
                self.seen += np.asarray(batch.dense)[:, 0].astype(int).tolist()
                values = batch.values(self.table)
                batch.push([(self.table, np.full_like(values, -1))])
                if left == 0 or (len(self.seen) >= len(until) and set(self.seen) >= set(until)):
                    break
            loader.flush()

    def check_applied(self, numbers: list[int], others: range) -> None:
        """Each of the numbers once, none of the others."""
        for wanted, count in ((numbers, 1), (others, 0)):
            keys = millrace.slot_keys([str(n) for n in wanted], 1)
            assert (self.table.lookup(keys, read_only=True)[:, 0] == count).all()


@pytest.fixture
def train(new_node, new_hub, broker, folder) -> Iterator[type]:
    made = []

    def make(topic: str, *options: str) -> Training:
        made.append(Training(new_node, new_hub, broker, folder, topic, *options))
        return made[-1]

    yield make
    for training in made:
        training.hub.kill()  # its trainers did not wait for an end
        training.client.close()


def test_each_message_is_applied_once(broker, train):
    """Through kills of the hub and of the server, with messages that were taken back."""
    broker.tell("topic clicks 3", "done topic")
    training = train("clicks")
    training.put(0, range(300))
    training.put(0, range(1000, 1050), "put-aborted")
    training.put(0, range(300, 340), "put-committed")  # 392 offsets, of which 390 are messages
    training.put(1, range(340, 444))
    training.train(12)
    training.client.wait_for_save(training.client.save())
    training.train(5)
    training.node.kill()
    training.node.restart()
    training.train(9)
    training.hub.kill()
    training.hub.restart()
    training.train(until=range(444))
    assert set(training.seen) == set(range(444))
    training.check_applied(list(range(444)), range(1000, 1050))


def test_partitions_are_added_while_it_trains(broker, train, folder):
    """With messages of before the hub knows of them, and through a kill of the hub."""
    properties = f"bootstrap.servers={broker.address}\ntopic.metadata.refresh.interval.ms=100\n"
    broker.tell("topic grows 1", "done topic")
    training = train("grows", "--kafka-config", write_file(folder, "grows.properties", properties))
    training.put(0, range(40))
    training.train(2)
    broker.tell("grow grows 3", "done grow")
    training.put(1, range(40, 48))
    training.put(2, range(48, 64))
    training.train(until=range(64))
    training.hub.kill()
    training.hub.restart()
    training.put(2, range(64, 72))
    training.train(until=range(72))
    training.check_applied(list(range(72)), range(0))


def trained_and_stopped(broker: Kafka, train: type, topic: str, numbers: range) -> Training:
    """On two batches of a new topic that has one partition. Its hub is away."""
    broker.tell(f"topic {topic} 1", "done topic")
    training = train(topic)
    training.put(0, numbers)
    training.train(2)
    training.hub.kill()
    return training


def test_what_was_deleted_is_an_error(broker, train):
    training = trained_and_stopped(broker, train, "short", range(60))
    broker.tell("delete short 0 40", "done delete")
    training.hub.restart()
    with pytest.raises(
        millrace.IoError,
        match=r"short\[0\]: retention has deleted offsets 16 to 39, at which the plan continues",
    ):
        training.train(1)
    training.train(2, run=1)
    assert training.seen == [*range(16), *range(40, 56)]


def test_a_deleted_end_of_a_transaction_is_no_loss(broker, train):
    """Of a topic whose messages were all trained on, and that rested for longer than its retention."""
    broker.tell("topic rests 1", "done topic")
    training = train("rests")
    training.put(0, range(16), "put-committed")
    training.put(0, range(100, 110), "put-aborted")
    training.train(2)
    broker.tell("committed rests 0 28", "done committed")  # two ends, and what was taken back
    training.hub.kill()
    broker.tell("delete rests 0 28", "done delete")
    training.hub.restart()
    training.put(0, range(16, 48), "put-committed")  # at offsets 28 to 59
    training.train(until=range(44))
    training.check_applied(list(range(44)), range(100, 110))


def test_a_topic_made_anew_is_another(broker, train):
    training = trained_and_stopped(broker, train, "anew", range(16))
    broker.tell("anew anew", "done anew")
    training.put(0, range(100, 132))
    training.hub.restart()
    with millrace.Hub(training.hub.address, deadline_s=60, connect_s=60) as hub:
        with pytest.raises(millrace.AlreadyStarted, match="holds other samples than when this plan began"):
            hub.start("kafka:anew", "numbers", BATCH, table="t")
    training.train(4, run=1)
    training.check_applied([*range(16), *range(100, 132)], range(0))


def test_a_password_is_asked_for(broker, train, folder):
    broker.tell("topic secret 1", "done topic")

    def write(password: str, more: str = "") -> str:
        return write_file(
            folder,
            "kafka.properties",
            f"# SASL\nbootstrap.servers={broker.secure}\nsecurity.protocol=SASL_PLAINTEXT\n"
            f"sasl.mechanism=PLAIN\nsasl.username=hub\nsasl.password={password}\n{more}",
        )

    training = train("secret", "--kafka-config", write("secret"))
    training.put(0, range(8))
    training.train(1)
    for password, more, error, says in (
        ("wrong", "", millrace.Unauthorized, "kafka:secret: .*[Aa]uthentication fail"),
        ("secret", "fetch.mx=1\n", millrace.InvalidArgument, r"properties:7: No such configuration property"),
        (
            "secret",
            "auto.offset.reset=latest\n",
            millrace.InvalidArgument,
            ":7: auto.offset.reset is error or earliest",
        ),
    ):
        write(password, more)
        training.hub.kill()
        training.hub.restart()
        with pytest.raises(error, match=says):
            training.train(1)


def test_a_topic_or_a_broker_that_is_not_there(broker, train):
    for topic, brokers, error, says in (
        (
            "missing",
            broker.address,
            millrace.InvalidArgument,
            "kafka:missing: the brokers have no such topic",
        ),
        ("away", "127.0.0.1:1", millrace.IoError, "kafka:away: 127.0.0.1:1/bootstrap: Connect to"),
    ):
        with pytest.raises(error, match=says):
            train(topic, "--kafka", brokers).train(1)
