"""Values that torch.save() wrote, read without torch and without running code of theirs.

An archive is a zip file, here a part of a larger file: NAME/data.pkl is a pickle of the value, in which
torch._utils._rebuild_tensor_v2(storage, offset, size, stride, ...) stands for a tensor and a persistent id
("storage", torch.FloatStorage, KEY, "cpu", count) for its storage, whose bytes are in NAME/data/KEY. torch
compresses none of them, so a tensor is a place in the file, to be mapped. A pickle names functions to call:
those that it may name are here, and none of them is torch's.
"""
from __future__ import annotations

import io
import pickle
import re
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any, BinaryIO, Callable, Mapping

import numpy as np

from .entry import as_it_is, of_bf16

_PICKLE_BYTES_MAX = 1 << 20  # of an archive's; a tensor's has some hundred
_BYTEORDER_BYTES_MAX = 16  # of "little" or "big"
_LOCAL_HEADER_BYTES = 30  # of a zip file's member, before its name

# By torch's name of the type: as numpy has it, and of the storages that have this type.
DTYPES: dict[str, tuple[np.dtype, str]] = {
    "float64": (np.dtype("<f8"), "DoubleStorage"),
    "float32": (np.dtype("<f4"), "FloatStorage"),
    "float16": (np.dtype("<f2"), "HalfStorage"),
    "bfloat16": (np.dtype("<u2"), "BFloat16Storage"),
    "int64": (np.dtype("<i8"), "LongStorage"),
    "int32": (np.dtype("<i4"), "IntStorage"),
    "int16": (np.dtype("<i2"), "ShortStorage"),
    "int8": (np.dtype("i1"), "CharStorage"),
    "uint8": (np.dtype("u1"), "ByteStorage"),
    "bool": (np.dtype("?"), "BoolStorage"),
    "uint64": (np.dtype("<u8"), ""),
    "uint32": (np.dtype("<u4"), ""),
    "uint16": (np.dtype("<u2"), ""),
}

# Of any type of torch's, also of those that DTYPES lacks: complex64, float8_e4m3fnuz, quint4x2, bits1x8, ...
_DTYPE_NAME = re.compile(
    r"bool|bfloat16|b?complex\d{2,3}|float\d{1,2}(_e\dm\d(fn|fnu|fnuz)?(_x\d)?)?|(q?u?int|bits)\d{1,2}(x\d)?",
    re.ASCII,
)

_OF_ZIPFILE = (KeyError, EOFError, NotImplementedError, RuntimeError, OverflowError, struct.error, zlib.error)


class NoValue(ValueError):
    """These bytes are no archive, or a damaged one, or one of a value that is not known here."""


class Record:
    """Any object of a pickle. `fields`: its attributes by name, or what its class made of them; unchecked."""

    fields: Any = None

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.fields = state


def record(name: str) -> type:
    """A class of its own for each pickle, which may spoil it."""
    return type(name, (Record,), {})


class _Unpickler(pickle.Unpickler):
    def __init__(
        self, file: BinaryIO, known: Mapping[str, Any], storage: Callable[[Any], Any] | None
    ) -> None:
        super().__init__(file)
        self._known, self._storage = known, storage

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and _DTYPE_NAME.fullmatch(name):
            return name
        if f"{module}.{name}" not in self._known:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which does not belong there")
        return self._known[f"{module}.{name}"]

    def persistent_load(self, pid: Any) -> Any:
        if self._storage is None:
            raise pickle.UnpicklingError("it has a persistent id, which does not belong there")
        return self._storage(pid)


def unpickle(file: BinaryIO, known: Mapping[str, Any], storage: Callable[[Any], Any] | None = None) -> Any:
    """The value of a pickle, in which only the names of `known` ("module.name") and of torch's types occur;
    each stands for what `known` has, a type for its name. `storage` makes what a persistent id stands for.
    pickle.UnpicklingError: it is damaged, or names others."""
    try:
        return _Unpickler(file, known, storage).load()
    except (pickle.UnpicklingError, NoValue):
        raise
    except Exception as error:  # of many kinds, by what is wrong with it
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise pickle.UnpicklingError(f"it is damaged ({text})") from None


@dataclass(frozen=True)
class Tensor:
    """A tensor of an archive: element (i, j, ...) is at the byte offset + i * strides[0] + j * strides[1] +
    ... of the file that has the archive. array() is it as the file has it; to_numpy makes numbers of a part.
    """

    dtype: str
    offset: int  #: [bytes]
    shape: tuple[int, ...]
    strides: tuple[int, ...]  #: [bytes]

    @property
    def end(self) -> int:
        """Behind its last byte."""
        if 0 in self.shape:
            return self.offset
        last = sum((n - 1) * step for n, step in zip(self.shape, self.strides))
        return self.offset + last + DTYPES[self.dtype][0].itemsize

    def array(self, data: np.ndarray) -> np.ndarray:
        """Over `data`, [bytes] u8 of the file, up to `end` at least."""
        flat = data[self.offset : self.end].view(DTYPES[self.dtype][0])
        return np.lib.stride_tricks.as_strided(flat, self.shape, self.strides, writeable=False)

    @property
    def to_numpy(self) -> Callable[[np.ndarray], np.ndarray]:
        return of_bf16 if self.dtype == "bfloat16" else as_it_is


class _Part(io.RawIOBase):
    """Some bytes of a file as a file."""

    def __init__(self, file: BinaryIO, offset: int, length: int) -> None:
        self._file, self._offset, self._length, self._at = file, offset, length, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        self._at = max(0, start + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self._offset + self._at)
        some = self._file.read(max(0, min(len(buffer), self._length - self._at)))
        buffer[: len(some)] = some
        self._at += len(some)
        return len(some)


@dataclass(frozen=True)
class _Storage:
    """Numbers one after the other in a file."""

    dtype: str
    offset: int  # [bytes]
    length: int  # [bytes]


def _tensor(dtype: str, storage: _Storage, offset: int, size: Any, stride: Any) -> Tensor:
    """A tensor in a storage. `offset` and `stride` count numbers of `dtype`."""
    shape, steps = tuple(map(int, size)), tuple(map(int, stride))
    itemsize = DTYPES[dtype][0].itemsize
    if len(shape) != len(steps) or min((offset, *shape, *steps)) < 0:
        raise NoValue(f"a tensor has the shape {list(shape)} and the strides {list(steps)}")
    tensor = Tensor(
        dtype, storage.offset + offset * itemsize, shape, tuple(step * itemsize for step in steps)
    )
    if tensor.end > storage.offset + storage.length and 0 not in shape:
        raise NoValue(f"a tensor has the shape {list(shape)} in a storage of {storage.length // itemsize}")
    return tensor


def _known() -> dict[str, Any]:
    """What the pickle of an archive may name."""

    def of_storage(storage: _Storage, offset: int, size: Any, stride: Any, *_: Any) -> Tensor:
        return _tensor(storage.dtype, storage, offset, size, stride)

    def of_bytes(
        storage: _Storage, offset: int, size: Any, stride: Any, grad: Any, hooks: Any, dtype: str, *_: Any
    ) -> Tensor:
        return _tensor(dtype, storage, offset, size, stride)

    known: dict[str, Any] = {
        "torch._utils._rebuild_tensor_v2": of_storage,
        "torch._utils._rebuild_tensor_v3": of_bytes,
        "torch._utils._rebuild_parameter": lambda tensor, *_: tensor,
        "torch.storage.UntypedStorage": "uint8",
        "collections.OrderedDict": dict,
    }
    for dtype, (_, storage) in DTYPES.items():
        if storage:
            known[f"torch.{storage}"] = dtype
    return known


def value(file: BinaryIO, offset: int, length: int) -> Any:
    """The value of an archive, `length` bytes of the file from `offset` on. Its tensors (Tensor) are places
    in the file, which may be closed. NoValue: it is none, is damaged, or has what _known() does not. OSError.
    """
    part = io.BufferedReader(_Part(file, offset, length))
    try:
        with zipfile.ZipFile(part) as archive:
            return _value(part, offset, length, archive)
    except (zipfile.BadZipFile, pickle.UnpicklingError, ValueError, *_OF_ZIPFILE) as error:
        raise NoValue(str(error)) from None


def _value(part: BinaryIO, offset: int, length: int, archive: zipfile.ZipFile) -> Any:
    pickled = next((name for name in archive.namelist() if name.endswith("/data.pkl")), "")
    if not pickled:
        raise NoValue("it is no archive of torch.save()")
    folder = pickled[: -len("data.pkl")]
    order = f"{folder}byteorder"
    if order in archive.namelist() and _small(archive, order, _BYTEORDER_BYTES_MAX) != b"little":
        raise NoValue("its numbers are big-endian")
    content = _small(archive, pickled, _PICKLE_BYTES_MAX)

    def storage(pid: Any) -> _Storage:
        _, dtype, key, _, count = pid
        wanted, info = int(count) * DTYPES[dtype][0].itemsize, archive.getinfo(f"{folder}data/{key}")
        begin = _member_begin(part, length, info)
        if not 0 <= wanted <= info.file_size:
            raise NoValue(f"the storage {key} has {info.file_size} bytes, not {wanted}")
        return _Storage(dtype, offset + begin, wanted)

    return unpickle(io.BytesIO(content), _known(), storage)


def _small(archive: zipfile.ZipFile, name: str, bytes_max: int) -> bytes:
    """The bytes of a member. A compressed one, which torch does not write, could become any number."""
    info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED:
        raise NoValue(f"{name} is compressed")
    if max(info.file_size, info.compress_size) > bytes_max:
        raise NoValue(f"{name} has more than {bytes_max} bytes")
    return archive.read(info)


def _member_begin(part: BinaryIO, length: int, info: zipfile.ZipInfo) -> int:
    """Where the bytes of an archive's member begin in it. zipfile does not tell."""
    if info.compress_type != zipfile.ZIP_STORED or info.header_offset < 0:
        raise NoValue(f"{info.filename} is compressed or damaged")
    part.seek(info.header_offset)
    head = part.read(_LOCAL_HEADER_BYTES)
    name, extra = (int.from_bytes(head[at : at + 2], "little") for at in (26, 28))
    begin = info.header_offset + _LOCAL_HEADER_BYTES + name + extra
    if head[:4] != b"PK\x03\x04" or begin + info.file_size > length:
        raise NoValue(f"{info.filename} is cut off or damaged")
    return begin
