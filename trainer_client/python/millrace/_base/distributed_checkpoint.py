"""Directories of torch.distributed.checkpoint, from torch 1.13 on, read piece by piece without torch.

`.metadata` is a pickle of Metadata: for each tensor its type, its shape and its chunks, which are boxes of
any place and size; for each chunk the file that has it, and the bytes there. They are an archive of
torch.save() with one tensor (torch_archive.py). What is no tensor is an archive of its own; of these, numbers
are read. Lists and mappings have names joined by dots, which torch makes.
"""
from __future__ import annotations

import functools
import os
import pickle
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Mapping

import numpy as np

from . import torch_archive
from .entry import Entry, FileError, as_it_is, refused, slices

METADATA = ".metadata"
_VERSION = "1."  # how the version of the format begins; older ones of torch write none
_SIZE_MAX = 1 << 48  # of one dimension, and of a file
_MAPS_MAX = 16  # files of a directory that are mapped at a time; each takes a descriptor

_PACKAGES = ("torch.distributed.checkpoint", "torch.distributed._shard.checkpoint")  # torch 2; 1.13
_CLASSES = {
    "metadata": "Metadata TensorStorageMetadata BytesStorageMetadata ChunkStorageMetadata MetadataIndex "
    "TensorProperties StorageMeta _MEM_FORMAT_ENCODING",
    "filesystem": "_StorageInfo",
}
_OTHER_CLASSES = (
    "torch.distributed._shard.sharded_tensor.metadata.TensorProperties",  # before torch 2.3
    "torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING",
    "pathlib.PosixPath",
    "pathlib._local.PosixPath",
)


@dataclass(frozen=True)
class _Place:
    """Where an archive is."""

    file: str
    offset: int
    length: int


@dataclass(frozen=True)
class _Chunk:
    """A box of a tensor: from `begin`, of the shape of `tensor`, which is in the file `path`."""

    begin: tuple[int, ...]
    path: str
    tensor: torch_archive.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape


def read(path: str) -> dict[str, Entry]:
    """The tensors and numbers of a directory, by name. FileError: it is no such directory, a file is missing,
    cut off or damaged, or the format is one that torch did not write when this was made. OSError."""
    return _Directory(path).entries()


def _known() -> dict[str, Any]:
    """What `.metadata` may name."""
    known: dict[str, Any] = {
        "torch.Size": tuple,
        "torch.serialization._get_layout": lambda name: name,
        "builtins.getattr": lambda _, name: name,  # of an enumeration; not Python's own
    }
    for package in _PACKAGES:
        for module, names in _CLASSES.items():
            for name in names.split():
                known[f"{package}.{module}.{name}"] = torch_archive.record(name)
    for name in _OTHER_CLASSES:
        known[name] = torch_archive.record(name.rsplit(".", 1)[-1])
    return known


def _map(path: str) -> np.ndarray:
    """The bytes of a file, [bytes] u8."""
    return np.memmap(path, np.uint8, "r")


def _sizes(value: Any) -> tuple[int, ...]:
    sizes = tuple(value)
    if not all(type(size) is int and 0 <= size <= _SIZE_MAX for size in sizes):
        raise TypeError("sizes are whole numbers")
    return sizes


def _count(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=object))


def _check_size(path: str, size: int, name: str, begin: int, end: int) -> None:
    if end > size:
        raise FileError(f"{path} has {size} bytes and is cut off: {name} is at {begin} to {end}")


class _Directory:
    def __init__(self, path: str) -> None:
        self._path = path
        self._map = functools.lru_cache(_MAPS_MAX)(_map)
        self._places: dict[tuple[str, tuple[int, ...]], _Place] = {}
        metadata = os.path.join(path, METADATA)
        try:
            with open(metadata, "rb") as file:
                content = torch_archive.unpickle(file, _known())
        except FileNotFoundError:
            raise FileError(
                f"{path} has no {METADATA}: it is no complete checkpoint of torch.distributed.checkpoint"
            ) from None
        except pickle.UnpicklingError as error:
            raise FileError(f"{metadata}: {error}") from None
        try:
            self._stored = self._take(content)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, FileError):
                raise
            raise FileError(
                f"{metadata} has another form than torch.distributed.checkpoint writes ({error})"
            ) from None

    def _take(self, content: Any) -> dict[str, Any]:
        """Where everything is, and what there is: by name, (type, shape, {begin: shape} of the chunks), or
        None of what is no tensor."""
        version = content.fields.get("version")
        if version is not None and not str(version).startswith(_VERSION):
            raise FileError(f"{self._path} has the version {version} of its format; known is {_VERSION}x")
        for index, info in content.fields["storage_data"].items():
            begin, place = index.fields.get("offset"), info.fields
            if place.get("transform_descriptors"):
                raise FileError(
                    f"{self._path} is written through {', '.join(map(str, place['transform_descriptors']))}: "
                    "save it without"
                )
            self._places[index.fields["fqn"], _sizes(begin or ())] = _Place(
                str(place["relative_path"]), *_sizes((place["offset"], place["length"]))
            )
        stored: dict[str, Any] = {}
        for name, what in content.fields["state_dict_metadata"].items():
            stored[str(name)] = None
            if type(what).__name__ == "TensorStorageMetadata":
                chunks = {
                    _sizes(chunk.fields["offsets"]): _sizes(chunk.fields["sizes"])
                    for chunk in what.fields["chunks"]
                }
                dtype, shape = str(what.fields["properties"].fields[0]), _sizes(what.fields["size"])
                if any(len(box) != len(shape) for chunk in chunks.items() for box in chunk):
                    raise ValueError(f"chunks of {name}")
                stored[name] = dtype, shape, chunks
        return stored

    def entries(self) -> dict[str, Entry]:
        found = {}
        for name, what in self._stored.items():
            entry = self._number(name) if what is None else self._tensor(name, *what)
            if entry is not None:
                found[name] = entry
        return found

    def _value(self, name: str, begin: tuple[int, ...]) -> tuple[str, Any]:
        """The path of the file that has an archive, and the archive's value."""
        place = self._places.get((name, begin))
        if place is None:
            raise FileError(f"{self._path}: {METADATA} does not say where {name} from {list(begin)} on is")
        if os.path.basename(place.file) != place.file:
            raise FileError(
                f"{self._path}: {METADATA} has {name} in {place.file!r}, outside of the directory"
            )
        path = os.path.join(self._path, place.file)
        try:
            with open(path, "rb", buffering=0) as file:
                size, end = os.fstat(file.fileno()).st_size, place.offset + place.length
                _check_size(path, size, name, place.offset, end)
                return path, torch_archive.value(file, place.offset, place.length)
        except FileNotFoundError:
            raise FileError(f"{path} is missing: {name} is in it") from None

    def _number(self, name: str) -> Entry | None:
        """None: it is something else, such as a text."""
        try:
            _, value = self._value(name, ())
        except torch_archive.NoValue:
            return None
        if not isinstance(value, (int, float)):
            return None
        array = np.asarray(value)
        return Entry(name, (), array.dtype.name, slices(array, as_it_is))

    def _tensor(
        self, name: str, dtype: str, shape: tuple[int, ...], boxes: Mapping[tuple[int, ...], tuple[int, ...]]
    ) -> Entry:
        if dtype not in torch_archive.DTYPES:
            known = ", ".join(torch_archive.DTYPES)
            why = f"{self._path}: {name} has the type {dtype}; known are {known}"
            return refused(name, shape, dtype, why)
        chunks = [self._chunk(name, dtype, begin, size) for begin, size in boxes.items() if 0 not in size]
        self._check_cover(name, shape, chunks)
        return Entry(name, shape, dtype, self._pieces(name, shape, chunks))

    def _chunk(self, name: str, dtype: str, begin: tuple[int, ...], size: tuple[int, ...]) -> _Chunk:
        try:
            path, tensor = self._value(name, begin)
        except torch_archive.NoValue as error:
            place = self._places[name, begin]
            raise FileError(f"{os.path.join(self._path, place.file)}: {name}: {error}") from None
        is_tensor = isinstance(tensor, torch_archive.Tensor)
        if not is_tensor or (tensor.dtype, tensor.shape) != (dtype, size):
            raise FileError(
                f"{self._path}: {name} from {list(begin)} on is not the {dtype} {list(size)} that {METADATA} "
                "has"
            )
        return _Chunk(begin, path, tensor)

    def _check_cover(self, name: str, shape: tuple[int, ...], chunks: list[_Chunk]) -> None:
        """That each element is in one chunk: as many as there are, and no two chunks meet."""
        begins = np.array([chunk.begin for chunk in chunks], np.int64).reshape(len(chunks), len(shape))
        sizes = np.array([chunk.shape for chunk in chunks], np.int64).reshape(begins.shape)
        ends = begins + sizes
        count = sum(_count(chunk.shape) for chunk in chunks)
        is_whole = count == _count(shape) and bool((ends <= shape).all())
        for i in range(len(chunks) if is_whole else 0):
            meets = (begins[i + 1 :] < ends[i]) & (ends[i + 1 :] > begins[i])
            is_whole = is_whole and not meets.all(axis=1).any()
        if not is_whole:
            raise FileError(
                f"{self._path}: the chunks of {name} are not its {list(shape)}, each part once; "
                "it was not saved to the end, or is damaged"
            )

    def _pieces(
        self, name: str, shape: tuple[int, ...], chunks: list[_Chunk]
    ) -> Callable[[int], Iterator[np.ndarray]]:
        """Of each piece, the parts of the chunks that are in these rows; maps files as it needs them."""

        def part_of(chunk: _Chunk, rows: slice) -> np.ndarray:
            data, tensor = self._map(chunk.path), chunk.tensor
            _check_size(chunk.path, len(data), name, tensor.offset, tensor.end)
            array = tensor.array(data)
            return tensor.to_numpy(array[rows] if shape else array)

        def pieces(rows: int) -> Iterator[np.ndarray]:
            if not shape:
                yield part_of(chunks[0], slice(0))
                return
            firsts = np.array([chunk.begin[0] for chunk in chunks], np.int64)
            lasts = firsts + np.array([chunk.shape[0] for chunk in chunks], np.int64)
            for first in range(0, shape[0], rows):
                last = min(first + rows, shape[0])
                piece: np.ndarray | None = None
                inside = np.flatnonzero((firsts < last) & (lasts > first))
                for i in inside:
                    chunk = chunks[i]
                    begin, end = max(first, int(firsts[i])), min(last, int(lasts[i]))
                    part = part_of(chunk, slice(begin - int(firsts[i]), end - int(firsts[i])))
                    if len(inside) == 1:  # it is the piece
                        piece = part
                        break
                    if piece is None:
                        piece = np.empty((last - first, *shape[1:]), part.dtype)
                    others = (slice(at, at + n) for at, n in zip(chunk.begin[1:], part.shape[1:]))
                    piece[(slice(begin - first, end - first), *others)] = part
                if piece is not None:
                    yield piece

        return pieces
