"""Keys of values, as hubs make them of the fields of a line."""
from __future__ import annotations

from typing import Any

import numpy as np

from ._base import arrays
from ._base.arrays import Like, u32_pointer, u64_pointer
from ._base.library import ffi, lib
from ._base.options import whole

_U32_MAX = 0xFFFFFFFF


def keys_of_text(slot: int, text: Any, offsets: np.ndarray) -> np.ndarray:
    """Keys of values text[offsets[i]:offsets[i + 1]] of a buffer of bytes; offsets: u32 [n + 1]. u64 [n]."""
    keys = np.empty(len(offsets) - 1, np.uint64)
    memory = ffi.from_buffer("char[]", text)
    lib.mr_slot_keys(slot, memory, u32_pointer(offsets), len(keys), u64_pointer(keys))
    return keys


def _text_of(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of all elements, one after the other, and their offsets."""
    if array.dtype.kind == "b":
        array = array.astype(np.uint8)
    if array.dtype.kind in "iu":
        array = array.astype("S20")
    elif array.dtype.kind == "U":
        array = np.char.encode(array, "utf-8")
    elif array.dtype.kind == "O":
        parts = [value if isinstance(value, bytes) else str(value).encode() for value in array]
        lengths = np.fromiter(map(len, parts), np.int64, len(parts))
        return np.frombuffer(b"".join(parts) + b"\0", np.uint8), _offsets(lengths)
    elif array.dtype.kind != "S":
        raise TypeError(f"values are strings, bytes or whole numbers, not {array.dtype.name}")
    width = array.dtype.itemsize
    lengths = np.char.str_len(array)
    bytes_of = np.ascontiguousarray(array).view(np.uint8).reshape(-1, width)
    text = bytes_of[np.arange(width) < lengths.reshape(-1, 1)]
    return np.append(text, np.uint8(0)), _offsets(lengths)


def _offsets(lengths: np.ndarray) -> np.ndarray:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > _U32_MAX:
        raise ValueError(f"values have {offsets[-1]} bytes; up to {_U32_MAX} can be hashed at once")
    return offsets.astype(np.uint32)


def slot_keys(values: Like, slot: int = 0) -> np.ndarray:
    """Keys of values in a slot, as a hub makes them of a file's fields: u64, of the values' shape.

    values: strings, bytes or whole numbers, an array of numpy's, a tensor or a list. A number has the key of
        its decimal text.
    slot: number of the slot, from 0 on: equal values of two slots have two keys.
    """
    array = arrays.to_numpy(values)
    if array.size == 0:
        return np.empty(array.shape, np.uint64)
    text, offsets = _text_of(array.reshape(-1))
    return keys_of_text(whole("slot", slot, _U32_MAX), text, offsets).reshape(array.shape)
