"""Arrays of numpy and tensors of torch in and out of the library, without copies where the memory allows it.

torch is used only if the program has imported it: without it the package works on numpy alone.
"""
from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ._library import ffi, lib

_NUMPY = {lib.MR_U8: np.uint8, lib.MR_I8: np.int8, lib.MR_U16: np.uint16, lib.MR_F16: np.float16, lib.MR_U32: np.uint32,
          lib.MR_I32: np.int32, lib.MR_F32: np.float32, lib.MR_U64: np.uint64, lib.MR_I64: np.int64, lib.MR_F64: np.float64}
DTYPE_OF_NUMPY = {np.dtype(kind): number for number, kind in _NUMPY.items()}


def is_torch(value: Any) -> bool:
    """Whether it is a tensor of torch's."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _numpy(value: Any, dtype: type) -> np.ndarray:
    if is_torch(value):
        value = value.detach().cpu().contiguous().numpy()
    array = np.asarray(value)
    if dtype is np.uint64 and array.dtype == np.int64:
        array = array.view(np.uint64)  # a key is 64 bits, as torch has them
    if array.dtype != dtype and array.dtype.kind == "f" and np.dtype(dtype).kind != "f":
        raise TypeError(f"whole numbers are needed here ({np.dtype(dtype).name}), not {array.dtype.name}")
    return np.ascontiguousarray(array, dtype=dtype)


def keys(value: Any) -> np.ndarray:
    """u64 keys; int64 is taken as it stands, bit by bit."""
    return _numpy(value, np.uint64)


def offsets(value: Any) -> np.ndarray:
    """u32 offsets of bags."""
    return _numpy(value, np.uint32)


def floats(value: Any) -> np.ndarray:
    """f32."""
    return _numpy(value, np.float32)


def pointer(ctype: str, array: np.ndarray):
    """`ctype` ("float *") to the array's memory, which must outlive it."""
    return ffi.from_buffer(ctype[:-1].strip() + "[]", array, require_writable=False)


def view(tensor, owner) -> np.ndarray:
    """A struct mr_tensor as an array over the same memory, which lives as long as the array; `owner` is kept until then."""
    kind = _NUMPY.get(tensor.dtype)
    shape = tuple(tensor.dims[i] for i in range(tensor.rank))
    if tensor.dtype == lib.MR_BF16:
        kind = np.uint16
    if tensor.bytes == 0:
        return np.empty(shape, dtype=kind)
    memory = ffi.gc(ffi.cast("char *", tensor.data), lambda _, held=owner: None)
    return np.frombuffer(ffi.buffer(memory, tensor.bytes), dtype=kind).reshape(shape)


def like(array: np.ndarray, model: Any) -> Any:
    """The array as what `model` is: a torch tensor over the same memory, or itself."""
    return sys.modules["torch"].from_numpy(array) if is_torch(model) else array
