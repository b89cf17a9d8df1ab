"""Parquet files as batches for a feed."""
import numpy as np
import pytest

import millrace

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    pa = pq = None

pytestmark = pytest.mark.skipif(pa is None, reason="no pyarrow: python3 -m pip install pyarrow")

ROWS = 1000


def table_of(first, count):
    n = np.arange(first, first + count)
    return pa.table(
        {
            "clicked": n % 2 == 1,
            "age": pa.array([None if i % 10 == 0 else float(i) for i in n], pa.float64()),
            "number": n.astype(np.int32),
            "site": pa.array([None if i % 7 == 0 else "" if i % 7 == 1 else f"s{i % 13}" for i in n]),
            "city": pa.array([f"c{i % 5}" for i in n]).dictionary_encode(),
            "tags": pa.array([None if i % 4 == 0 else [f"t{j}" for j in range(i % 4)] for i in n]),
            "is_new": n % 3 == 0,
        }
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("parquet")
    for part, first in enumerate((0, 400, 800)):
        pq.write_table(
            table_of(first, min(400, ROWS - first)), directory / f"part-{part}.parquet", row_group_size=150
        )
    return directory


SLOTS = ["number", "site", "city", "tags", "is_new"]


def bags_of(slot, count):
    """Each sample's keys."""
    keys, offsets = slot if isinstance(slot, tuple) else (slot, np.arange(count + 1))
    return [keys[a:b].tolist() for a, b in zip(offsets, offsets[1:])]


def expected(i):
    def key(slot, *values):
        return millrace.slot_keys(list(values), slot).tolist()

    return [
        key(0, i),
        key(1, f"s{i % 13}") if i % 7 > 1 else [],
        key(2, f"c{i % 5}"),
        key(3, *(f"t{j}" for j in range(i % 4))),
        key(4, i % 3 == 0),
    ]


def test_rows_become_samples_in_order(files):
    i = 0
    for batch in millrace.read_parquet(
        str(files / "*.parquet"), label="clicked", dense=["age", "number"], slots=SLOTS, batch_size=128
    ):
        count = len(batch["labels"])
        assert 0 < count <= 128 and list(batch["slots"]) == SLOTS
        slots = [bags_of(slot, count) for slot in batch["slots"].values()]
        for row in range(count):
            assert batch["labels"][row] == i % 2
            assert batch["dense"][row].tolist() == [0.0 if i % 10 == 0 else i, i]
            assert [slot[row] for slot in slots] == expected(i)
            i += 1
    assert i == ROWS


def test_keys_as_they_are(files):
    batches = millrace.read_parquet(
        [files / "part-1.parquet"], label="clicked", slots=["number"], raw_keys=True
    )
    keys = [key for batch in batches for key in batch["slots"]["number"].tolist()]
    assert keys == list(range(400, 800))


@pytest.mark.parametrize(
    "arguments, says",
    [
        ({"label": "click"}, "part-0.parquet has no column 'click'; it has 'clicked', 'age'"),
        ({"label": "age"}, "part-0.parquet: column 'age' has 40 missing labels"),
        ({"label": "site"}, "part-0.parquet: column 'site' is string; labels and dense values are numbers"),
        ({"slots": ["age"]}, "column 'age' is double; slots are strings"),
        ({"slots": ["site"], "raw_keys": True}, "column 'site' is string; raw keys are whole numbers"),
        ({"slots": ["site", "site"]}, "slots names 'site' twice"),
    ],
)
def test_what_cannot_be_read_is_said(files, arguments, says):
    with pytest.raises(ValueError, match=says):
        list(
            millrace.read_parquet(
                files / "part-0.parquet", **{"label": "clicked", "slots": ["site"], **arguments}
            )
        )


def test_files_that_are_not_there(tmp_path):
    for path in (tmp_path / "none.parquet", str(tmp_path / "*.parquet")):
        with pytest.raises(FileNotFoundError, match="there is no file .*parquet"):
            next(millrace.read_parquet(path, label="a", slots=["b"]))


def test_parquet_is_trained_on(files, client, name):
    table = client.table(name, 2, optimizer=millrace.optim.SGD(lr=1), initializer=millrace.init.constant(0))
    batches = millrace.read_parquet(files / "*.parquet", label="clicked", dense=["number"], slots=SLOTS)
    with millrace.feed(batches, client) as feed:
        loader = feed.loader(64, table=table, tables=[table])
        for batch in loader:
            batch.push([(table, np.full_like(batch.values(table), -1))])
    assert loader.counts.samples == ROWS
    for slot, values, times in (
        (0, np.arange(ROWS), np.ones(ROWS)),
        (2, [f"c{i}" for i in range(5)], np.full(5, ROWS / 5)),
        (3, ["t0", "t1", "t2"], [750, 500, 250]),
    ):
        rows = table.lookup(millrace.slot_keys(values, slot), read_only=True)
        assert np.array_equal(rows[:, 0], times)
