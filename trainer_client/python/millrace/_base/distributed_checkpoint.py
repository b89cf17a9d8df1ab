"""Directories of torch.distributed.checkpoint, from torch 1.13 on, read piece by piece without torch.

`.metadata` is a pickle of Metadata: for each tensor its type, its shape and its chunks, which are boxes of
any place and size; for each chunk the file that has it, and the bytes there. They are an archive of
torch.save() with one tensor (torch_archive.py). What is no tensor is an archive of its own; of these, numbers
are read. Lists and mappings have names joined by dots, which torch makes.
"""
from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Mapping

import numpy as np

from . import torch_archive
from .entry import Entry, FileError, as_it_is, slices

METADATA = ".metadata"
_VERSION = "1."  # how the version of the format begins; older ones of torch write none
_SIZE_MAX = 1 << 48  # of one dimension, and of a file

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
    """A box of a tensor: from `begin`, of the shape of `tensor`."""

    begin: tuple[int, ...]
    tensor: torch_archive.Tensor

    @property
    def array(self) -> np.ndarray:
        return self.tensor.array

    @property
    def convert(self) -> Callable[[np.ndarray], np.ndarray]:
        return self.tensor.to_numpy


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


def _sizes(value: Any) -> tuple[int, ...]:
    sizes = tuple(value)
    if not all(type(size) is int and 0 <= size <= _SIZE_MAX for size in sizes):
        raise TypeError("sizes are whole numbers")
    return sizes


class _Directory:
    def __init__(self, path: str) -> None:
        self._path = path
        self._files: dict[str, np.ndarray] = {}
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

    def _bytes(self, name: str, begin: tuple[int, ...]) -> np.ndarray:
        """Those of an archive, mapped."""
        place = self._places.get((name, begin))
        if place is None:
            raise FileError(f"{self._path}: {METADATA} does not say where {name} from {list(begin)} on is")
        if os.path.basename(place.file) != place.file:
            raise FileError(
                f"{self._path}: {METADATA} has {name} in {place.file!r}, outside of the directory"
            )
        path = os.path.join(self._path, place.file)
        if place.file not in self._files:
            try:
                is_empty = os.path.getsize(path) == 0  # nothing can be mapped
                self._files[place.file] = (
                    np.zeros(0, np.uint8) if is_empty else np.memmap(path, np.uint8, "r")
                )
            except FileNotFoundError:
                raise FileError(f"{path} is missing: {name} is in it") from None
        data, end = self._files[place.file], place.offset + place.length
        if end > len(data):
            raise FileError(
                f"{path} has {len(data)} bytes and is cut off: {name} is at {place.offset} to {end}"
            )
        return data[place.offset : end]

    def _number(self, name: str) -> Entry | None:
        """None: it is something else, such as a text."""
        try:
            value = torch_archive.value(self._bytes(name, ()))
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

            def unknown(_: int) -> Iterator[np.ndarray]:
                raise FileError(
                    f"{self._path}: {name} has the type {dtype}; known are {', '.join(torch_archive.DTYPES)}"
                )

            return Entry(name, shape, dtype, unknown)
        chunks = [self._chunk(name, dtype, begin, size) for begin, size in boxes.items() if 0 not in size]
        self._check_cover(name, shape, chunks)
        return Entry(name, shape, dtype, _pieces(shape, chunks))

    def _chunk(self, name: str, dtype: str, begin: tuple[int, ...], size: tuple[int, ...]) -> _Chunk:
        try:
            tensor = torch_archive.value(self._bytes(name, begin))
        except torch_archive.NoValue as error:
            place = self._places[name, begin]
            raise FileError(f"{os.path.join(self._path, place.file)}: {name}: {error}") from None
        is_tensor = isinstance(tensor, torch_archive.Tensor)
        if not is_tensor or (tensor.dtype, tensor.array.shape) != (dtype, size):
            raise FileError(
                f"{self._path}: {name} from {list(begin)} on is not the {dtype} {list(size)} that {METADATA} "
                "has"
            )
        return _Chunk(begin, tensor)

    def _check_cover(self, name: str, shape: tuple[int, ...], chunks: list[_Chunk]) -> None:
        """That each element is in one chunk: as many as there are, and no two chunks meet."""
        begins = np.array([chunk.begin for chunk in chunks], np.int64).reshape(len(chunks), len(shape))
        sizes = np.array([chunk.array.shape for chunk in chunks], np.int64).reshape(begins.shape)
        ends = begins + sizes
        count = sum(chunk.array.size for chunk in chunks)
        is_whole = count == int(np.prod(shape, dtype=object)) and bool((ends <= shape).all())
        for i in range(len(chunks) if is_whole else 0):
            meets = (begins[i + 1 :] < ends[i]) & (ends[i + 1 :] > begins[i])
            is_whole = is_whole and not meets.all(axis=1).any()
        if not is_whole:
            raise FileError(
                f"{self._path}: the chunks of {name} are not its {list(shape)}, each part once; "
                "it was not saved to the end, or is damaged"
            )


def _pieces(shape: tuple[int, ...], chunks: list[_Chunk]) -> Callable[[int], Iterator[np.ndarray]]:
    """Of each piece, the parts of the chunks that are in these rows."""
    if len(chunks) == 1:
        return slices(chunks[0].array, chunks[0].convert)

    def pieces(rows: int) -> Iterator[np.ndarray]:
        firsts = np.array([chunk.begin[0] for chunk in chunks], np.int64)
        lasts = firsts + [chunk.array.shape[0] for chunk in chunks]
        for first in range(0, shape[0], rows):
            last = min(first + rows, shape[0])
            piece: np.ndarray | None = None
            for i in np.flatnonzero((firsts < last) & (lasts > first)):
                chunk = chunks[i]
                begin, end = max(first, int(firsts[i])), min(last, int(lasts[i]))
                part = chunk.convert(chunk.array[begin - firsts[i] : end - firsts[i]])
                if piece is None:
                    piece = np.empty((last - first, *shape[1:]), part.dtype)
                others = (slice(at, at + n) for at, n in zip(chunk.begin[1:], part.shape[1:]))
                piece[(slice(begin - first, end - first), *others)] = part
            if piece is not None:
                yield piece

    return pieces
