"""Rows from files of tensors: what is read, what goes where, and what is refused."""
import contextlib
import itertools
import json
import os
import pathlib
import pickle
import resource
import shutil
import sys
import types
import zipfile

import numpy as np
import pytest
import write_distributed

import millrace
from millrace import importer, optim
from millrace._base import distributed_checkpoint

FOUR_TENSORS = pathlib.Path(__file__).parent / "data/four_tensors.safetensors"  # by the package safetensors
DISTRIBUTED = pathlib.Path(__file__).parent / "data/distributed"  # by write_distributed.py, with torch 2.14
DIM = 4


def numbers(*shape):
    return np.random.default_rng(3).normal(size=shape).astype(np.float32)


def save_safetensors(path, arrays):
    header, data = {}, b""
    for name, array in arrays.items():
        begin, data = len(data), data + array.tobytes()
        kind = {"float32": "F32", "float64": "F64", "int64": "I64", "complex64": "C64"}[array.dtype.name]
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [begin, len(data)]}
    head = json.dumps(header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + data)
    return path


def values(entries, rows=2):
    return {
        name: np.concatenate(list(entry.pieces(rows))) if entry.shape else entry.all()
        for name, entry in entries.items()
    }


def only_state(optimizer):
    """Without param_groups, whose floats torch 1's weights_only does not read."""
    return {"state": optimizer.state_dict()["state"]}


@contextlib.contextmanager
def descriptors_left(count):
    """No more than so many can be opened."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = set(map(int, os.listdir("/proc/self/fd")))
    lowered = next(n for n in itertools.count() if n - sum(fd < n for fd in taken) == count)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowered, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


# ---- files ----


def test_safetensors_as_the_package_writes_them():
    tensors = values(importer.read(FOUR_TENSORS))
    assert np.array_equal(tensors["embedding_bags.t1.weight"], np.arange(12).reshape(3, 4))
    assert np.array_equal(tensors["embedding_bags.t2.weight"], np.arange(8).reshape(2, 4) / 4)
    assert (tensors["half"] == 0.5).all() and tensors["keys"].tolist() == [7, -1, 9]


def test_a_file_of_more_tensors_than_descriptors(tmp_path):
    arrays = {str(i): numbers(i % 3, DIM) + i for i in range(60)}
    path = save_safetensors(tmp_path / "many", arrays)
    with descriptors_left(8):
        entries = importer.read(path)
        assert all(np.array_equal(entries[name].all(), array) for name, array in arrays.items())
        assert entries["0"].all().shape == (0, DIM)


def test_npz_and_npy(tmp_path):
    arrays = {"rows": numbers(7, DIM), "one": np.float64(3)}
    np.savez(tmp_path / "a.npz", **arrays)
    np.savez_compressed(tmp_path / "b.npz", **arrays)
    np.save(tmp_path / "rows.npy", arrays["rows"])
    for name in ("a.npz", "b.npz"):
        read = values(importer.read(tmp_path / name))
        assert np.array_equal(read["rows"], arrays["rows"]) and read["one"] == 3
    assert np.array_equal(values(importer.read(tmp_path / "rows.npy"))["rows"], arrays["rows"])
    np.savez(tmp_path / "c.npz", rows=np.asfortranarray(arrays["rows"]))
    with pytest.raises(importer.FileError, match="column by column"):
        values(importer.read(tmp_path / "c.npz"))


def test_a_structured_npy_is_a_tensor_for_each_field(tmp_path):
    table = np.zeros(9, [("keys", "<u8"), ("values", "<f4", DIM), ("sum", "<f4", DIM), ("name", "S3")])
    table["keys"], table["values"] = np.arange(9, dtype=np.uint64) + np.uint64(2**63), numbers(9, DIM)
    np.save(tmp_path / "user.npy", table)
    entries = importer.read(tmp_path / "user.npy")
    assert list(entries) == ["keys", "values", "sum", "name"] and entries["values"].shape == (9, DIM)
    for name in ("keys", "values", "sum"):
        assert np.array_equal(entries[name].all(), table[name])
        assert np.array_equal(np.concatenate(list(entries[name].pieces(4))), table[name])
    assert "has the type" in entries["name"].refused
    np.save(tmp_path / "bf16.npy", np.zeros(2, [("keys", "<u8"), ("values", "<u2", DIM)]))
    assert importer.read(tmp_path / "bf16.npy")["values"].refused.endswith("no bf16: export --as-f32")


def test_torch_files(tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.ModuleDict({"item": torch.nn.Embedding(5, DIM), "out": torch.nn.Linear(DIM, 1)})
    optimizer = torch.optim.Adagrad(model.parameters())
    model["out"](model["item"](torch.arange(5))).sum().backward()
    optimizer.step()
    state = {"model": model.bfloat16().state_dict(), "optimizer": only_state(optimizer), "epoch": 3}
    for new in (True, False):
        torch.save(state, tmp_path / "model.pt", _use_new_zipfile_serialization=new)
        read = values(importer.read(tmp_path / "model.pt"))
        weight = model["item"].weight.detach().float().numpy()
        assert np.array_equal(read["model.item.weight"], weight) and read["epoch"] == 3
        assert read["optimizer.state.0.sum"].shape == (5, DIM) and read["optimizer.state.0.step"] == 1
    torch.save(model, tmp_path / "whole.pt")
    with pytest.raises(importer.FileError, match="weights_only.*save a state_dict alone"):
        importer.read(tmp_path / "whole.pt")


def test_damaged_files_are_refused(tmp_path):
    whole = FOUR_TENSORS.read_bytes()
    path = tmp_path / "damaged"
    for content, says in (
        (whole[:-5], "cut off"),
        (whole[:100], "cut off"),
        (whole.replace(b'"F32"', b'"F99"'), "has the type F99"),
        (whole.replace(b"[24,72]", b"[24,73]"), "damaged"),
        (whole.replace(b"[3,4]", b"[3,x]"), "no JSON"),
        (whole.replace(b"[3,4]", b"null "), "shape"),
        (b"nothing of this kind", "is no file of tensors"),
        (b"", "is no file of tensors"),
        (b"\x93NUMPY\x01", "damaged"),
        (b"PK\x03\x04 no zip file", "damaged"),
    ):
        path.write_bytes(content)
        with pytest.raises(importer.FileError, match=says):
            values(importer.read(path))
    with zipfile.ZipFile(tmp_path / "cut.npz", "w") as archive:
        np.save(tmp_path / "rows.npy", numbers(9, DIM))
        archive.writestr("rows.npy", (tmp_path / "rows.npy").read_bytes()[:-8])
    with pytest.raises(importer.FileError, match="rows is cut off"):
        values(importer.read(tmp_path / "cut.npz"))


# ---- directories of torch.distributed.checkpoint ----


def check_distributed(directory):
    entries = importer.read(directory)
    for name, whole in write_distributed.tensors().items():
        assert entries[name].shape == (whole.shape or (1,))
        for rows in (1, 3, 100):
            pieces = list(entries[name].pieces(rows))
            assert all(len(piece) == min(rows, entries[name].shape[0]) for piece in pieces[:-1])
            assert np.array_equal(np.concatenate(pieces), whole.reshape(entries[name].shape)), (name, rows)
    assert entries["model.columns.weight"].dtype == "bfloat16"
    assert entries["epoch"].all() == 3 and entries["optimizer.param_groups.0.lr"].all() == 0.5
    assert "optimizer.param_groups.0.name" not in entries  # a text


def test_a_sharded_checkpoint_of_every_sharding():
    """Needs no torch."""
    check_distributed(DISTRIBUTED)


def test_a_sharded_checkpoint_that_this_torch_writes(tmp_path):
    torch = pytest.importorskip("torch")
    if int(torch.__version__.split(".")[0]) < 2:
        pytest.skip("torch 1 has no DTensor")
    write_distributed.write(tmp_path / "made")
    check_distributed(tmp_path / "made")


def test_a_sharded_checkpoint_is_mapped():
    """Pieces of one chunk are the file's own bytes."""
    (piece,) = importer.read(DISTRIBUTED)["model.table.weight"].pieces(100)
    while piece.base is not None and not isinstance(piece, np.memmap):
        piece = piece.base
    assert isinstance(piece, np.memmap) and piece.filename.endswith(".distcp")


def refuse(directory, says):
    with pytest.raises(importer.FileError, match=says) as caught:
        importer.read(directory)
    assert str(directory) in str(caught.value) and "\n" not in str(caught.value)


class Spoiler:
    def __reduce__(self):
        return os.mkdir, (os.path.join(os.getcwd(), "spoiled"),)


def test_damaged_sharded_checkpoints_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "made"

    def change(file, change):
        shutil.rmtree(made, ignore_errors=True)
        shutil.copytree(DISTRIBUTED, made)
        content = change((made / file).read_bytes())
        if content is None:
            (made / file).unlink()
        else:
            (made / file).write_bytes(content)

    for file, how, says in (
        (".metadata", lambda _: None, "has no .metadata: it is no complete checkpoint"),
        (".metadata", lambda whole: whole[:1000], "damaged"),
        (".metadata", lambda _: b"", "damaged"),
        (".metadata", lambda _: pickle.dumps({"state_dict": 1}), "another form"),
        (".metadata", lambda _: pickle.dumps(Spoiler()), "it names posix.mkdir, which does not belong there"),
        (".metadata", lambda whole: whole.replace(b"1.0.0", b"2.0.0"), "has the version 2.0.0"),
        (".metadata", lambda whole: whole.replace(b"__1_0.d", b"../_0.d"), "outside of the directory"),
        (".metadata", lambda whole: whole.replace(b"bfloat16", b"bfloat17"), "it names torch.bfloat17"),
        ("__1_0.distcp", lambda _: None, "__1_0.distcp is missing: model.* is in it"),
        ("__1_0.distcp", lambda _: b"", "has 0 bytes and is cut off"),
        ("__1_0.distcp", lambda whole: whole[:-1], "is cut off"),
        ("__1_0.distcp", lambda whole: whole.replace(b"PK", b"KP"), "model.*not a zip file"),
        ("__1_0.distcp", lambda whole: whole.replace(b"FloatStorage", b"DoublStorage"), "Bad CRC-32"),
        ("__1_0.distcp", lambda whole: whole.replace(b"data/0", b"data/9"), "data/0"),
    ):
        change(file, how)
        refuse(made, says)
    assert not (tmp_path / "spoiled").exists()


class Fields:
    def __init__(self, **fields):
        self.__dict__.update(fields)


@pytest.fixture
def torch_classes(monkeypatch):
    """Classes under the names that pickle has from torch, which need no torch and take any fields."""
    made = {"TensorProperties": type("TensorProperties", (Fields,), {"__getstate__": lambda own: own.state})}
    for parent in ("torch", "torch.distributed", "torch.distributed.checkpoint"):  # pickle imports these, too
        if parent not in sys.modules:
            monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
    for last, names in {
        "metadata": "Metadata TensorStorageMetadata ChunkStorageMetadata MetadataIndex TensorProperties",
        "filesystem": "_StorageInfo",
    }.items():
        module = types.ModuleType(f"torch.distributed.checkpoint.{last}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        for name in names.split():
            kind = made.setdefault(name, type(name, (Fields,), {}))
            kind.__module__ = module.__name__
            setattr(module, name, kind)
    return types.SimpleNamespace(**made)


def test_tensors_of_any_type_of_torch_lie_beside_others(torch_classes, tmp_path, monkeypatch):
    """Names of types are what pickles of torch have in its module."""
    c, module = torch_classes, types.ModuleType("torch")
    monkeypatch.setitem(sys.modules, "torch", module)

    def read(*kinds):
        tensors = {}
        for kind in kinds:
            made = type(kind, (), {"__module__": "torch"})
            setattr(module, kind, made)
            properties = c.TensorProperties(state=(made, "strided", False, 0, False))
            tensors[kind] = c.TensorStorageMetadata(properties=properties, size=(3, DIM), chunks=[])
        content = c.Metadata(state_dict_metadata=tensors, storage_data={}, planner_data=None)
        (tmp_path / ".metadata").write_bytes(pickle.dumps(content))
        return importer.read(tmp_path)

    odd = (
        "complex32 complex64 complex128 bcomplex32 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz "
        "float8_e8m0fnu float4_e2m1fn_x2 qint8 qint32 quint8 quint4x2 quint2x4 bits8 bits16 bits1x8 bits2x4 "
        "bits4x2 uint1 uint7 int4"
    ).split()
    assert {name: entry.dtype for name, entry in read(*odd).items()} == dict(zip(odd, odd))
    for kind in ("load", "float", "int", "floats8", "xfloat8", "float8_", "float8_e4m3fn_loads", "uint1٣"):
        with pytest.raises(importer.FileError, match=f"it names torch.{kind}, which does not belong there"):
            read("complex64", kind)


def test_a_sharded_checkpoint_of_more_files_than_descriptors(torch_classes, tmp_path):
    """A tensor in all files, and one in each. What is checked is closed again; a few files are mapped."""
    c, count = torch_classes, 60
    known = distributed_checkpoint._Directory(str(DISTRIBUTED))._places["model.table.weight", (0, 0)]
    once, tensors, places = write_distributed.tensors()["model.table.weight"], {}, {}

    def add(name, files):
        chunks = []
        for i, file in enumerate(files):
            chunks.append(c.ChunkStorageMetadata(offsets=(5 * i, 0), sizes=(5, DIM)))
            places[c.MetadataIndex(fqn=name, offset=(5 * i, 0), index=i)] = c._StorageInfo(
                relative_path=file, offset=known.offset, length=known.length
            )
        tensors[name] = c.TensorStorageMetadata(
            properties=c.TensorProperties(state=("float32", "strided", False, 0, False)),
            size=(5 * len(files), DIM),
            chunks=chunks,
        )

    files = [f"{i}.distcp" for i in range(count)]
    shutil.copy(DISTRIBUTED / known.file, tmp_path / "all")
    for file in files:
        os.link(tmp_path / "all", tmp_path / file)
    add("whole", files)
    for file in files:
        add(file, [file])
    content = c.Metadata(state_dict_metadata=tensors, storage_data=places, planner_data=None)
    (tmp_path / ".metadata").write_bytes(pickle.dumps(content))
    with descriptors_left(24):
        entries = importer.read(tmp_path)
        assert all(np.array_equal(entries[file].all(), once) for file in files)
        assert np.array_equal(entries["whole"].all(), np.tile(once, (count, 1)))
        (tmp_path / files[3]).unlink()
        (tmp_path / files[3]).write_bytes(b"shorter")
        with pytest.raises(importer.FileError, match="3.distcp has 7 bytes and is cut off: whole is at"):
            entries["whole"].all()


def test_what_the_metadata_of_a_sharded_checkpoint_says(torch_classes, tmp_path):
    """A tensor of chunks [5, DIM] that are all in one place, and others that do not fit."""
    directory, c = tmp_path / "made", torch_classes
    shutil.copytree(DISTRIBUTED, directory)
    known = distributed_checkpoint._Directory(str(DISTRIBUTED))._places["model.table.weight", (0, 0)]
    place = {"relative_path": known.file, "offset": known.offset, "length": known.length}

    def write(shape, *begins, size=(5, DIM), dtype="float32", **other):
        chunks = [c.ChunkStorageMetadata(offsets=at, sizes=size) for at in begins]
        what = c.TensorStorageMetadata(
            properties=c.TensorProperties(state=(dtype, "strided", False, 0, False)),
            size=shape,
            chunks=chunks,
        )
        where = {
            c.MetadataIndex(fqn="w", offset=at, index=0): c._StorageInfo(**{**place, **other})
            for at in begins
        }
        content = c.Metadata(state_dict_metadata={"w": what}, storage_data=where, planner_data=None)
        (directory / ".metadata").write_bytes(pickle.dumps(content))

    write((10, DIM), (5, 0), (0, 0))
    once = write_distributed.tensors()["model.table.weight"]
    assert np.array_equal(importer.read(directory)["w"].all(), np.concatenate([once, once]))
    write((3, DIM), dtype="complex64")
    assert importer.read(directory)["w"].shape == (3, DIM)
    with pytest.raises(importer.FileError, match="w has the type complex64; known are"):
        importer.read(directory)["w"].all()
    for says, shape, begins, other in (
        ("the chunks of w are not its .7, 4., each part once", (7, DIM), [(0, 0)], {}),
        ("each part once", (10, DIM), [(0, 0), (4, 0)], {}),
        ("each part once", (5, DIM), [(1, 0)], {}),
        ("each part once", (5, DIM), [], {}),
        ("another form", (5, DIM), [(0,)], {}),
        ("another form", (-5, DIM), [(0, 0)], {}),
        ("another form", (5, DIM), [(0, 0)], {"offset": "0"}),
        ("is not the float32 .4, 4.", (4, DIM), [(0, 0)], {"size": (4, DIM)}),
        ("is not the float64", (5, DIM), [(0, 0)], {"dtype": "float64"}),
        ("is cut off: w is at", (5, DIM), [(0, 0)], {"length": 10**9}),
        ("w: .*zip file", (5, DIM), [(0, 0)], {"length": known.length - 30}),
        (
            "written through stream.zstd: save it without",
            (5, DIM),
            [(0, 0)],
            {"transform_descriptors": ["stream.zstd"]},
        ),
    ):
        write(shape, *begins, **other)
        refuse(directory, says)
    for says, members in (
        ("it names posix.mkdir, which does not belong there", {"a/data.pkl": pickle.dumps(Spoiler())}),
        ("its numbers are big-endian", {"a/data.pkl": b"", "a/byteorder": b"big"}),
        ("byteorder has more than 16 bytes", {"a/data.pkl": b"", "a/byteorder": b"little".ljust(17)}),
        ("data.pkl has more than 1048576 bytes", {"a/data.pkl": bytes((1 << 20) + 1)}),
        ("byteorder is compressed", {"a/data.pkl": b"", "a/byteorder": b"little, compressed"}),
        ("data.pkl is compressed", {"a/data.pkl": b"compressed"}),
        ("no archive of torch.save", {"data": b""}),
        ("is not the float32", {"a/data.pkl": pickle.dumps(3)}),
    ):
        with zipfile.ZipFile(directory / "other", "w") as archive:
            for member, content in members.items():
                how = zipfile.ZIP_DEFLATED if b"compressed" in content else zipfile.ZIP_STORED
                archive.writestr(member, content, how)
        write((5, DIM), (0, 0), relative_path="other", offset=0, length=os.path.getsize(directory / "other"))
        refuse(directory, says)


def test_optimizer_state_of_a_sharded_checkpoint(client, name):
    importer.import_rows(
        client,
        DISTRIBUTED,
        {"model.rows.weight": name},
        state={"optimizer.state.rows": name},
        create={"optimizer": optim.Adam()},
    )
    rows, whole = (
        client.table(name).rows(np.arange(write_distributed.ROWS), state=True),
        write_distributed.tensors(),
    )
    assert np.array_equal(rows.values, whole["model.rows.weight"]) and (rows.state["step"] == 3).all()
    assert np.array_equal(rows.state["m"], whole["optimizer.state.rows.exp_avg"])
    assert np.array_equal(rows.state["v"], whole["optimizer.state.rows.exp_avg_sq"])


# ---- into tables ----


def run(capsys, *words):
    code = importer.main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command_makes_tables_and_sets_their_rows(client, name, capsys, tmp_path):
    command = [FOUR_TENSORS, "--server", client.server, "--map", f"embedding_bags.*.weight={name[-50:]}.*"]
    code, out, err = run(capsys, *command)
    assert code == 1 and out == "" and "there is no table" in err and "--create" in err
    code, out, _ = run(capsys, *command, "--create", "--optimizer", "adagrad(lr=0.5)", "--dry-run")
    assert code == 0 and f"t1.weight f32 [3, 4] -> {name[-50:]}.t1 (new)" in out and "keys i64 [3]\n" in out
    assert "would import 5 rows (0.0 MiB) into 2 tables" in out
    with pytest.raises(LookupError):
        client.table(f"{name[-50:]}.t1")
    code, out, err = run(capsys, *command, "--create", "--optimizer", "adagrad(lr=0.5)", "--dtype", "bf16")
    assert (code, out, err) == (0, "imported 5 rows (0.0 MiB) into 2 tables\n", "")
    table = client.table(f"{name[-50:]}.t1")
    assert table.spec.optimizer == optim.Adagrad(lr=0.5) and table.spec.dtype == "bf16"
    rows = table.rows([0, 1, 2, 3])
    assert np.array_equal(rows.values[:3], np.arange(12).reshape(3, 4)) and not rows.is_stored[3]


def test_keys_of_a_file(client, name):
    done = importer.import_rows(
        client, FOUR_TENSORS, {"embedding_bags.t1.weight": name}, keys="keys", create={}
    )
    assert [(what.table, what.rows, what.dim, what.is_new) for what in done] == [(name, 3, 4, True)]
    rows = client.table(name).rows(np.array([-1, 9, 0]))
    assert rows.values[:2].tolist() == [[4, 5, 6, 7], [8, 9, 10, 11]]
    assert rows.is_stored.tolist() == [True, True, False]


def test_large_files_go_in_pieces(client, name, tmp_path, monkeypatch):
    monkeypatch.setattr(importer, "_PIECE_BYTES", 100 * 12 * DIM)
    array = numbers(1000, DIM)
    state = {"o.exp_avg": array / 2, "o.exp_avg_sq": array**2, "o.step": np.arange(1000)}
    path = save_safetensors(tmp_path / "adam", {"w": array.astype(np.float64), **state})
    done = importer.import_rows(
        client, path, {"w": name}, state={"o": name}, first_key=10, create={"optimizer": optim.Adam()}
    )
    assert done[0].state == ("m", "v", "step")
    rows = client.table(name).rows(np.arange(10, 1010), state=True)
    assert np.array_equal(rows.values, array) and np.array_equal(rows.state["m"], array / 2)
    assert np.array_equal(rows.state["v"], array**2) and np.array_equal(rows.state["step"], np.arange(1000))


def test_training_goes_on_where_torch_s_was(client, name, tmp_path):
    """Weights and Adagrad's sums, from torch's own files: the next step is the same."""
    torch = pytest.importorskip("torch")
    theirs = torch.nn.Embedding(6, DIM)
    optimizer = torch.optim.Adagrad(theirs.parameters(), lr=0.1)
    keys, factors = torch.arange(6), torch.randn(6, DIM)

    def step():
        optimizer.zero_grad()
        (theirs(keys) * factors).sum().backward()
        optimizer.step()

    step()
    torch.save({"model": theirs.state_dict(), "optimizer": only_state(optimizer)}, tmp_path / "model.pt")
    importer.import_rows(
        client,
        tmp_path / "model.pt",
        {"model.weight": name},
        state={"optimizer.state.0": name},
        create={"optimizer": optim.Adagrad(lr=0.1)},
    )
    client.table(name).push_gradients(keys, factors)
    step()
    torch.testing.assert_close(
        torch.from_numpy(client.table(name).rows(keys.numpy()).values), theirs.weight.data
    )


def test_mistakes_are_told_before_anything_is_set(client, name, capsys, tmp_path):
    client.table(name, DIM)
    wrong = save_safetensors(
        tmp_path / "wrong", {"v": numbers(3, DIM), "w": numbers(3, 5), "s": numbers(3), "s.sum": numbers(3)}
    )

    def refused(says, *words):
        code, out, err = run(capsys, wrong, "--server", client.server, *words)
        assert (code, out) == (1, "") and says in err and err.startswith("python3 -m millrace.importer: ")

    refused(f"w has rows of 5; those of table '{name}' have 4", "--map", f"w={name}")
    refused("the file has no tensor of that name; it has v, w, s", "--map", f"x={name}")
    refused("s has the shape [3]; rows of a table are [n, dim]", "--map", f"s={name}")
    refused(f"v and w both go to table '{name}'", "--map", f"w={name}", "--map", f"v={name}")
    refused("which keeps no state", "--map", f"v={name}", "--state", f"s={name}")
    refused("no tensor goes to table 'other'", "--map", f"v={name}", "--state", "s=other")
    refused("keys w have the shape [3, 5]; v has 3 rows", "--map", f"v={name}", "--keys", "w")
    refused("keys s have the type f32; keys are whole numbers", "--map", f"v={name}", "--keys", "s")
    for words in (["--map", "x"], ["--map", "v=t", "--dtype", "f16"], []):
        with pytest.raises(SystemExit, match="2"):
            run(capsys, wrong, *words)
    assert not client.table(name).rows([0, 1, 2]).is_stored.any()
    nan = save_safetensors(tmp_path / "nan", {"v": np.full((3, DIM), np.nan, np.float32)})
    with pytest.raises(millrace.RowsNotSet, match="of 3 rows 3 hold NaN"):
        importer.import_rows(client, nan, {"v": name})


def save_npz(path, arrays):
    np.savez(path, **arrays)
    return path


def save_torch(path, arrays):
    torch = pytest.importorskip("torch")
    torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, path)
    return path


@pytest.mark.parametrize("save", [save_safetensors, save_npz, save_torch])
def test_types_that_are_not_known_are_told_before_anything_is_set(client, name, capsys, tmp_path, save):
    odd = numbers(3, DIM).astype(np.complex64)
    arrays = {"a": numbers(3, DIM), "b": odd, "a.sum": odd, "keys": odd[:, 0].copy()}
    path, first, second = save(tmp_path / "odd.npz", arrays), f"{name[-50:]}.a", f"{name[-50:]}.b"
    client.table(first, DIM, optimizer=optim.Adagrad())

    def refuse(what, *words):
        command = [path, "--server", client.server, "--map", f"a={first}", "--create", *words]
        for dry in ([], ["--dry-run"]):
            code, out, err = run(capsys, *command, *dry)
            assert (code, out) == (1, "") and f"odd.npz: {what} has the type " in err

    refuse("b", "--map", f"b={second}")
    refuse("a.sum", "--state", f"a={first}")
    refuse("keys", "--keys", "keys")
    assert not client.table(first).rows([0, 1, 2]).is_stored.any()
    with pytest.raises(LookupError):
        client.table(second)
    code, out, _ = run(capsys, path, "--dry-run")
    says = {line.split(" ", 1)[0]: line.endswith(", cannot be read") for line in out.splitlines()}
    assert code == 0 and says == {"a": False, "b": True, "a.sum": True, "keys": True}


def test_names_of_tensors_give_a_terminal_no_commands(capsys, tmp_path):
    path = save_safetensors(tmp_path / "w.safetensors", {"\033]0;x\a\x9b2J": numbers(3, DIM)})
    assert run(capsys, path, "--dry-run") == (0, "\\x1b]0;x\\x07\\xc2\\x9b2J f32 [3, 4]\n", "")


def test_an_outcome_that_is_not_known_is_tried_again(client, name, tmp_path, monkeypatch):
    path = save_safetensors(tmp_path / "w", {"w": numbers(3, DIM)})
    set_rows, tries = millrace.Table.set_rows, []

    def fail_at_first(table, *arguments, **options):
        tries.append(set_rows(table, *arguments, **options))
        if len(tries) == 1:
            raise millrace.UnknownOutcome("lost")
        return tries[-1]

    monkeypatch.setattr(millrace.Table, "set_rows", fail_at_first)
    importer.import_rows(client, path, {"w": name}, create={})
    assert len(tries) == 2 and np.array_equal(client.table(name).rows(np.arange(3)).values, numbers(3, DIM))
