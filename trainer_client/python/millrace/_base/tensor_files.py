"""Files of named tensors, read piece by piece: safetensors, what torch.save() writes, directories of
torch.distributed.checkpoint (distributed_checkpoint.py), npz and npy.

safetensors (https://github.com/huggingface/safetensors#format): a u64 with the length of the header; the
header, a JSON object {name: {"dtype", "shape", "data_offsets": [begin, end]}}; then the tensors' bytes,
little endian and row-major. It and npy are mapped, as torch's files are from torch 2.1 on; members of an npz
are streams. So a file may be larger than the memory.
"""
from __future__ import annotations

import json
import os
import zipfile
from typing import Any, BinaryIO, Callable, Iterator, Mapping

import numpy as np

from . import arrays, distributed_checkpoint, torch_archive
from .entry import Entry, FileError, as_it_is, of_bf16, refused, slices

_HEADER_BYTES_MAX = 100 << 20  # of safetensors' own reader
_DTYPES: dict[str, np.dtype] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}


def read(path: str | os.PathLike[str]) -> dict[str, Entry]:
    """The tensors in a file, or in a directory of torch.distributed.checkpoint, by name. Nested mappings of a
    torch file have names joined by dots, and so have lists, by place; numbers are scalars. FileError,
    OSError."""
    path = os.fspath(path)
    if os.path.isdir(path):
        return distributed_checkpoint.read(path)
    with open(path, "rb") as file:
        head = file.read(16)
    if head.startswith(b"\x93NUMPY"):
        return _read_npy(path)
    if head.startswith(b"PK"):
        return _read_npz(path) if _is_npz(path) else _read_torch(path)
    if len(head) > 8 and head[8:9] == b"{":
        return _read_safetensors(path)
    if head.startswith(b"\x80"):  # a pickle, as torch wrote before it wrote zip files
        return _read_torch(path)
    raise FileError(f"{path} is no file of tensors: safetensors, torch.save(), npz and npy are known")


# ---- npy: mapped ----


def _no_numbers(path: str, name: str, dtype: np.dtype) -> str | None:
    """Why an array of this type cannot be read."""
    if dtype.hasobject:
        return f"{path}: {name} holds Python objects, no numbers"
    if dtype.kind not in "fiub":
        return f"{path}: {name} has the type {dtype.name}; known are floats, whole numbers and bool"
    return None


def _read_npy(path: str) -> dict[str, Entry]:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise FileError(f"{path}: {error}") from None
    if array.dtype.names is not None:
        return {name: _field(path, name, array[name]) for name in array.dtype.names}
    name = os.path.splitext(os.path.basename(path))[0]
    why = _no_numbers(path, name, array.dtype)
    if why is not None:
        return {name: refused(name, array.shape, array.dtype.name, why)}
    return {name: Entry(name, array.shape, array.dtype.name, slices(array, as_it_is))}


def _field(path: str, name: str, array: np.ndarray) -> Entry:
    """Of a structured array, as `millrace ckpt export` writes it."""
    why = _no_numbers(path, name, array.dtype)
    if name == "values" and array.dtype == np.uint16:
        why = f"{path}: {name} are the upper halves of floats, as numpy has no bf16: export --as-f32"
    if why is not None:
        return refused(name, array.shape, array.dtype.name, why)
    return Entry(name, array.shape, array.dtype.name, slices(array, np.ascontiguousarray))


# ---- safetensors ----


def _read_safetensors(path: str) -> dict[str, Entry]:
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > min(_HEADER_BYTES_MAX, size - 8):
            raise FileError(
                f"{path}: its header has {length} bytes; the file has {size}, and is cut off or damaged"
            )
        try:
            header = json.loads(file.read(length))
        except ValueError as error:
            raise FileError(f"{path}: its header is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise FileError(f"{path}: its header is no JSON object")
    entries, data = {}, np.memmap(path, np.uint8, "r")[8 + length :]  # one map, as each takes a descriptor
    for name, what in header.items():
        if name != "__metadata__":
            entries[name] = _safetensor(path, name, what, data)
    return entries


def _safetensor(path: str, name: str, what: Any, data: np.ndarray) -> Entry:
    try:
        kind, shape = str(what["dtype"]), tuple(int(n) for n in what["shape"])
        begin, end = (int(n) for n in what["data_offsets"])
    except (KeyError, TypeError, ValueError):
        raise FileError(f"{path}: {name}: dtype, shape or data_offsets are missing or damaged") from None
    dtype = _DTYPES.get(kind)
    if dtype is None:
        why = f"{path}: {name} has the type {kind}; known are {', '.join(_DTYPES)}"
        return refused(name, shape, kind.lower(), why)
    count = int(np.prod(shape, dtype=object))
    if (
        min(shape, default=0) < 0
        or not 0 <= begin <= end <= len(data)
        or end - begin != count * dtype.itemsize
    ):
        raise FileError(
            f"{path}: {name} has {list(shape)} of {kind} at bytes {begin} to {end} of {len(data)}: "
            "the file is cut off or damaged"
        )
    array = data[begin:end].view(dtype).reshape(shape)
    return Entry(name, shape, kind.lower(), slices(array, of_bf16 if kind == "BF16" else as_it_is))


# ---- npz: a zip file of npy files ----


def _is_npz(path: str) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except zipfile.BadZipFile as error:
        raise FileError(f"{path}: {error}") from None
    return bool(names) and all(name.endswith(".npy") for name in names)


def _npy_header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    return np.lib.format.read_array_header_2_0(file)


def _read_npz(path: str) -> dict[str, Entry]:
    entries = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            name = member[: -len(".npy")]
            try:
                with archive.open(member) as file:
                    shape, by_column, dtype = _npy_header(file)  # type: ignore[arg-type]
            except (ValueError, zipfile.BadZipFile) as error:
                raise FileError(f"{path}: {name}: {error}") from None
            why = _no_numbers(path, name, dtype)
            if by_column and len(shape) > 1:
                why = why or f"{path}: {name} lies column by column: save np.ascontiguousarray() of it"
            if why is not None:
                entries[name] = refused(name, shape, dtype.name, why)
            else:
                entries[name] = Entry(name, shape, dtype.name, _streamed(path, member, name))
    return entries


def _streamed(path: str, member: str, name: str) -> Callable[[int], Iterator[np.ndarray]]:
    def pieces(rows: int) -> Iterator[np.ndarray]:
        with zipfile.ZipFile(path) as archive, archive.open(member) as file:
            shape, _, dtype = _npy_header(file)  # type: ignore[arg-type]
            count = shape[0] if shape else 1
            for first in range(0, count, rows):
                some = (min(rows, count - first), *shape[1:])
                wanted = int(np.prod(some, dtype=object)) * dtype.itemsize
                try:
                    data = file.read(wanted)
                except (zipfile.BadZipFile, EOFError) as error:
                    raise FileError(f"{path}: {name}: {error}") from None
                if len(data) < wanted:
                    raise FileError(f"{path}: {name} is cut off")
                yield np.frombuffer(data, dtype).reshape(some if shape else ())

    return pieces


# ---- torch ----


def _load_torch(torch: Any, path: str) -> Any:
    arguments: dict[str, Any] = {"map_location": "cpu", "weights_only": True}
    try:
        return torch.load(path, mmap=True, **arguments)
    except TypeError:  # torch before 2.1
        pass
    except RuntimeError as error:
        if "mmap" not in str(error):  # of a file in the form of before torch 1.6
            raise
    return torch.load(path, **arguments)


def _read_torch(path: str) -> dict[str, Entry]:
    try:
        import torch
    except ImportError:
        raise FileError(f"{path} was written by torch.save(): install torch to read it") from None
    try:
        content = _load_torch(torch, path)
    except Exception as error:  # of many kinds, by what is wrong with the file
        line = str(error).strip().splitlines()[0]
        raise FileError(
            f"{path}: torch.load(weights_only=True) refuses it: {line}; save a state_dict alone"
        ) from None
    entries: dict[str, Entry] = {}
    _flatten(path, content, "", entries)
    if not entries:
        raise FileError(f"{path} holds no tensors")
    return entries


def _flatten(path: str, value: Any, name: str, entries: dict[str, Entry]) -> None:
    items: Any = None
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    for key, item in items or ():
        _flatten(path, item, f"{name}.{key}" if name else str(key), entries)
    is_torch = arrays.torch_of(value) is not None
    if items is None and (is_torch or isinstance(value, (int, float))):
        array = value if is_torch else np.asarray(value)
        name = name or "tensor"
        kind = str(array.dtype).replace("torch.", "")
        shape = tuple(array.shape)
        if kind in torch_archive.DTYPES:
            entries[name] = Entry(name, shape, kind, slices(array, arrays.to_numpy))
        else:
            why = f"{path}: {name} has the type {kind}; known are {', '.join(torch_archive.DTYPES)}"
            entries[name] = refused(name, shape, kind, why)
