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


def test_samples_to_be_scored_have_no_labels(files):
    labelled = millrace.read_parquet(files / "*.parquet", label="clicked", dense=["age"], slots=SLOTS)
    for batch, other in zip(
        labelled, millrace.read_parquet(files / "*.parquet", label=None, dense=["age"], slots=SLOTS)
    ):
        assert other["labels"] is None and np.array_equal(other["dense"], batch["dense"])
        count = len(batch["labels"])
        assert [bags_of(slot, count) for slot in other["slots"].values()] == [
            bags_of(slot, count) for slot in batch["slots"].values()
        ]


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
        ({"slots": ["tags"], "raw_keys": True}, "column 'tags' is string; raw keys are whole numbers"),
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


def write(path, **columns):
    count = len(next(iter(columns.values())))
    pq.write_table(pa.table({"clicked": pa.array([0, 1] * count)[:count], **columns}), path)
    return path


def one_batch(path, **arguments):
    (batch,) = millrace.read_parquet(path, **{"label": "clicked", "slots": ["a"], **arguments})
    return batch


def keys_of(path, **arguments):
    return bags_of(one_batch(path, **arguments)["slots"]["a"], 3)


def expect_refused(says, path, **arguments):
    with pytest.raises(ValueError, match=says):
        one_batch(path, **arguments)


DAY, SECOND = 20_000, 1_700_000_000
#: What other tools write, and the whole numbers or texts that are meant.
WRITTEN = {
    "nothing": (lambda: pa.nulls(3), [[], [], []]),
    "whole floats": (lambda: pa.array([7.0, None, -(2.0**53)]), [[7], [], [-(2**53)]]),
    "whole halves": (lambda: pa.array(np.array([7, 2048, 0], np.float16)), [[7], [2048], [0]]),
    "days": (lambda: pa.array([DAY, None, -1], pa.date32()), [[DAY], [], [-1]]),
    "days in ms": (lambda: pa.array([DAY * 86_400_000, None, 0], pa.date64()), [[DAY], [], [0]]),
    "instants": (lambda: pa.array([SECOND, None, -1], pa.timestamp("us", "UTC")), [[SECOND], [], [-1]]),
    "times": (lambda: pa.array([86_399, None, 0], pa.time32("ms")), [[86_399], [], [0]]),
    "durations": (lambda: pa.array([5, None, -5], pa.duration("ns")), [[5], [], [-5]]),
    "decimals": (lambda: pa.array([7, None, -8]).cast(pa.decimal128(22, 2)), [[7], [], [-8]]),
    "fixed lists": (lambda: pa.array([[1, None], None, [2, 3]], pa.list_(pa.int64(), 2)), [[1], [], [2, 3]]),
    "large lists": (lambda: pa.array([[1], [], [2, 3]], pa.large_list(pa.int8())), [[1], [], [2, 3]]),
    "lists of nothing": (lambda: pa.array([[], None, [None]], pa.list_(pa.null())), [[], [], []]),
    "lists of floats": (lambda: pa.array([[1.0, None], [], [3.0]]), [[1], [], [3]]),
    "categories of floats": (lambda: pa.array([1.0, None, 1.0]).dictionary_encode(), [[1], [], [1]]),
    "bytes of one size": (lambda: pa.array([b"ab", None, b"cd"], pa.binary(2)), [["ab"], [], ["cd"]]),
}


@pytest.mark.parametrize("column, values", WRITTEN.values(), ids=WRITTEN)
def test_what_other_tools_write(tmp_path, column, values):
    path = write(tmp_path / "a.parquet", a=column())
    assert keys_of(path) == [millrace.slot_keys(value, 0).tolist() if value else [] for value in values]
    if not any(isinstance(v, str) for value in values for v in value):
        raw = [[v % 2**64 for v in value] for value in values]
        assert keys_of(path, raw_keys=True) == raw


def test_numbers_that_other_tools_write(tmp_path):
    path = write(
        tmp_path / "a.parquet",
        nothing=pa.nulls(2),
        day=pa.array([DAY, None], pa.date32()),
        price=pa.array([150, None]).cast(pa.decimal128(22, 2)),
        kind=pa.array([0.5, None]).dictionary_encode(),
        a=pa.nulls(2),
    )
    batch = one_batch(path, dense=["nothing", "day", "price", "kind"])
    assert batch["dense"].tolist() == [[0, DAY, 150, 0.5], [0, 0, 0, 0]]
    expect_refused("column 'nothing' has 2 missing labels", path, label="nothing")


def test_numbers_that_are_none(tmp_path):
    """NaN, which is missing where that is asked for, and infinity."""
    path = write(
        tmp_path / "a.parquet",
        a=pa.array([1.0, 2.0, np.nan], from_pandas=False),
        infinite=pa.array([1.0, -np.inf, 0]),
        large=pa.array([1e39, 0, 0]),
    )
    for arguments in ({}, {"dense": ["a"], "slots": ["clicked"]}, {"label": "a", "slots": ["clicked"]}):
        expect_refused("a.parquet: column 'a' has nan in row 2: .*nan_is_missing=True", path, **arguments)
    assert keys_of(path, nan_is_missing=True)[2] == []
    assert one_batch(path, dense=["a"], slots=["clicked"], nan_is_missing=True)["dense"][:, 0].tolist() == [
        1,
        2,
        0,
    ]
    expect_refused("column 'a' has 1 missing label", path, label="a", slots=["clicked"], nan_is_missing=True)
    for column in ("infinite", "large"):
        for name in ("dense", "slots"):
            arguments = {"slots": ["clicked"], name: [column], "nan_is_missing": True}
            expect_refused(f"column '{column}' has (-inf in row 1|1e.39 in row 0): ", path, **arguments)


def test_keys_that_are_not_whole(tmp_path):
    third = pa.array([1, 2, 3.5]).cast(pa.decimal128(9, 1))
    path = write(
        tmp_path / "a.parquet",
        a=pa.array([1.0, 2.5, 3.5]),
        b=pa.array([1.0, 2.0**53 + 2, 0]),
        c=third,
        d=pa.array([[1.5], [], []]),
        e=pa.array(np.array([1, 2**24 + 2, 0], np.float32)),
        f=pa.array([{"x": 1}] * 3),
        g=pa.array([[("x", 1)]] * 3, pa.map_(pa.string(), pa.int8())),
        h=pa.array([[[1]], [], []]),
    )
    for name, says in (
        ("a", "has 2.5 in row 1: .*cast it to string or int64"),
        ("b", "has 9007199254740994.0 in row 1: "),
        ("c", "has 3.5 in row 2: "),
        ("d", "has 1.5: "),
        ("e", "has 16777218.0 in row 1: "),
        ("f", "is struct.*: write the field that is meant as a column of its own"),
        ("g", "is map.*: write its keys as a list"),
        ("h", "is list.*; slots are strings, whole numbers, .*: write each of its elements as a column"),
    ):
        expect_refused(f"a.parquet: column '{name}' {says}", path, slots=[name])
    expect_refused("column 'h' is list.*; labels and dense values are numbers: ", path, dense=["h"])
    # The row is of the file, whatever the batches.
    path = write(tmp_path / "b.parquet", a=pa.array([1.0] * 700 + [1.5] + [2.0] * 99))
    with pytest.raises(ValueError, match="has 1.5 in row 700"):
        list(millrace.read_parquet(path, label="clicked", slots=["a"], batch_size=128))


def test_two_columns_of_one_name(tmp_path):
    both = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["clicked", "a", "a"])
    pq.write_table(both, tmp_path / "a.parquet")
    expect_refused("a.parquet has 2 columns named 'a'; rename", tmp_path / "a.parquet")
    assert one_batch(tmp_path / "a.parquet", slots=["clicked"])["labels"].tolist() == [1]  # others may be


def test_instants_of_two_units_are_not_mixed(tmp_path):
    """pandas 2 writes ns, pandas 3 us: one instant would have two keys."""
    for name, unit in (("a", "ns"), ("b", "us")):
        write(tmp_path / f"{name}.parquet", a=pa.array([SECOND], pa.timestamp(unit)))
    with pytest.raises(
        ValueError, match=r"b.parquet: column 'a' is timestamp\[us\], and timestamp\[ns\] in .*a.parquet"
    ):
        list(millrace.read_parquet(tmp_path / "*.parquet", label="clicked", slots=["a"]))


def test_a_quiet_day_does_not_stop_a_plan(tmp_path):
    """A column that is empty in one file, and has whole numbers, floats and nothing in others."""
    columns = [pa.array([1, 2]), pa.nulls(2), pa.array([3.0, None])]
    for day, column in enumerate(columns):
        write(tmp_path / f"day-{day}.parquet", a=column)
    batches = millrace.read_parquet(tmp_path / "*.parquet", label="clicked", dense=["a"], slots=["a"])
    assert [bags_of(batch["slots"]["a"], 2) for batch in batches] == [
        [millrace.slot_keys([value], 0).tolist() if value else [] for value in day]
        for day in ((1, 2), (0, 0), (3, 0))
    ]


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
