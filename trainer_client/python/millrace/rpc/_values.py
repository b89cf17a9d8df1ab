"""Values of calls: tensors, numbers, strings and references, to the library and back."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Sequence

import numpy as np
import torch

from .._base.arrays import DTYPE_OF_NUMPY
from .._base.library import NULL, ffi, lib

if TYPE_CHECKING:
    from ._world import World

_OF_TORCH = {
    torch.float32: lib.MR_F32,
    torch.float64: lib.MR_F64,
    torch.float16: lib.MR_F16,
    torch.bfloat16: lib.MR_BF16,
    torch.int64: lib.MR_I64,
    torch.int32: lib.MR_I32,
    torch.int16: lib.MR_U16,
    torch.int8: lib.MR_I8,
    torch.uint8: lib.MR_U8,
    torch.bool: lib.MR_U8,
}
# Types that torch 1.13 does not have come as signed ones of the same width.
_TO_TORCH = {
    lib.MR_F32: torch.float32,
    lib.MR_F64: torch.float64,
    lib.MR_F16: torch.float16,
    lib.MR_BF16: torch.bfloat16,
    lib.MR_I64: torch.int64,
    lib.MR_U64: torch.int64,
    lib.MR_I32: torch.int32,
    lib.MR_U32: torch.int32,
    lib.MR_U16: torch.int16,
    lib.MR_I8: torch.int8,
    lib.MR_U8: torch.uint8,
}
#: Where the library puts a result. By its text ffi.new() takes as long again.
RESULT_PLACE = ffi.typeof("struct mr_rpc_result **")
_TENSOR, _U8 = lib.MR_VALUE_TENSOR, lib.MR_U8
_VIEW_BYTES = 4096  # smaller tensors are copied, so that they hold no message
VALUES_MAX = lib.MR_RPC_ARGUMENTS_MAX


def travels(tensor: torch.Tensor) -> bool:
    """Whether the value is sent as it is, not as part of a pickle."""
    return tensor.layout is torch.strided and tensor.dtype in _OF_TORCH and not tensor.is_quantized


_GAPS_MAX = 4  # times the elements: a view's memory with the gaps between them


def strides_kept(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The strides that the tensor has at the receiver, too; the elements travel without gaps. None: those of
    a contiguous one, since elements overlap, or lie far apart."""
    count = tensor.numel()
    if count == 0:
        return None
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size > 1 and stride < reach:
            return None  # the next of this dimension would lie among those before
        reach += stride * (size - 1)
    return tuple(tensor.stride()) if reach <= _GAPS_MAX * count else None


def with_strides(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The same elements in memory of these strides."""
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)


def wire_shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """The shape in messages: tensors with more dimensions than a message allows are sent flat."""
    return tuple(tensor.shape) if tensor.dim() <= lib.MR_RANK_MAX else (tensor.numel(),)


def _fill(value: Any, dtype: int, shape: Sequence[int], byte_count: int, data: Any) -> None:
    value.kind = _TENSOR
    tensor = value.tensor
    tensor.dtype = dtype
    tensor.rank = len(shape)
    for i, dim in enumerate(shape):
        tensor.dims[i] = dim
    tensor.bytes = byte_count
    tensor.data = data


def fill_shape(value: Any, tensor: torch.Tensor) -> None:
    """The tensor's shape without its data, for the tape."""
    _fill(value, _OF_TORCH[tensor.dtype], wire_shape(tensor), tensor.numel() * tensor.element_size(), NULL)


def fill_tensor(value: Any, tensor: torch.Tensor, number: int, alive: list) -> None:
    """A view of the tensor's memory, which `alive` keeps; `number`: its place on the context's tape, 0:
    none."""
    if tensor.device.type != "cpu":
        raise TypeError(
            f"a tensor on {tensor.device} cannot travel: tensors go between main memories; call .cpu() before"
        )
    dense = tensor.detach().contiguous()
    alive.append(dense)
    _fill(
        value,
        _OF_TORCH[dense.dtype],
        wire_shape(dense),
        dense.numel() * dense.element_size(),
        ffi.cast("void *", dense.data_ptr() or 64),
    )
    value.gradient = number


def fill_bytes(value: Any, content: bytes, alive: list) -> None:
    """u8 [len(content)]."""
    data = ffi.from_buffer(content)
    alive.append(data)
    _fill(value, _U8, (len(content),), len(content), data)


def fill_string(value: Any, content: str, alive: list) -> None:
    """UTF-8."""
    encoded = content.encode()
    data = ffi.new("char[]", encoded)
    alive.append(data)
    value.kind = lib.MR_VALUE_STRING
    value.string.text = data
    value.string.bytes = len(encoded)


def fill_i64(value: Any, number: int) -> None:
    """A whole number."""
    value.kind = lib.MR_VALUE_I64
    value.i64 = number


def fill_array(value: Any, array: np.ndarray, alive: list) -> None:
    """An array of numpy."""
    if array.dtype not in DTYPE_OF_NUMPY or array.ndim > lib.MR_RANK_MAX:
        raise TypeError(
            f"an array of {array.ndim} dimensions of {array.dtype} cannot be an argument: at most "
            f"{lib.MR_RANK_MAX}, "
            f"of a number type"
        )
    dense = np.ascontiguousarray(array)
    alive.append(dense)
    _fill(
        value, DTYPE_OF_NUMPY[dense.dtype], dense.shape, dense.nbytes, ffi.cast("void *", dense.ctypes.data)
    )


class Result:
    """The result of a call; freed when nothing uses its memory any more."""

    __slots__ = ("world", "pointer", "viewed_bytes")

    def __init__(self, world: World, pointer: Any) -> None:
        self.world = world
        self.pointer = pointer
        self.viewed_bytes = 0

    def may_view(self, byte_count: int) -> bool:
        """Views hold the memory of messages: no more than the world's share for them. Messages lie in blocks
        of powers of two."""
        byte_count = 1 << (byte_count + _VIEW_BYTES - 1).bit_length()
        if self.world.viewed_bytes + byte_count > self.world.view_bytes_max:
            return False
        self.world.viewed_bytes += byte_count
        self.viewed_bytes += byte_count
        return True

    def values(self) -> list:
        """struct mr_value *, valid as long as this."""
        return [
            lib.mr_rpc_result_value(self.pointer, i) for i in range(lib.mr_rpc_result_count(self.pointer))
        ]

    def __del__(self, free: Callable = lib.mr_rpc_result_free) -> None:
        if not self.world.is_abandoned:
            free(self.pointer)
        self.world.viewed_bytes -= self.viewed_bytes


def read_tensor(tensor: Any, owner: Result | None = None) -> torch.Tensor:
    """A copy, or a view that keeps `owner`."""
    dtype = _TO_TORCH[tensor.dtype]
    shape = [tensor.dims[i] for i in range(tensor.rank)]
    if tensor.bytes == 0:
        return torch.empty(shape, dtype=dtype)
    if owner is not None and tensor.bytes >= _VIEW_BYTES and owner.may_view(tensor.bytes):
        memory = ffi.gc(ffi.cast("char *", tensor.data), lambda _, held=owner: None)
        return torch.frombuffer(ffi.buffer(memory, tensor.bytes), dtype=dtype).reshape(shape)
    copy = torch.empty(shape, dtype=dtype)
    ffi.memmove(ffi.cast("char *", copy.data_ptr()), tensor.data, tensor.bytes)
    return copy


def read_string(value: Any) -> str:
    """A string value."""
    return ffi.buffer(value.string.text, value.string.bytes)[:].decode("utf-8", "replace")


def read_bytes(value: Any) -> bytes:
    """A u8 tensor."""
    return ffi.buffer(value.tensor.data, value.tensor.bytes)[:] if value.tensor.bytes else b""
