"""Arrays of numpy and tensors of torch in and out of the library, without copies where the memory allows it.

torch is used only if the program has imported it: without it the package works on numpy alone.
"""
from __future__ import annotations

import contextlib
import operator
import os
import sys
from typing import Any, Callable, Sequence, Union

import numpy as np

from .library import counted, ffi, lib

Array = Any  #: an array of numpy's or a tensor of torch's: what the call was given
Like = Union[np.ndarray, list, tuple, Any]  #: anything that numpy makes an array of, or a tensor of torch's

NUMPY_OF_DTYPE = {
    lib.MR_U8: np.uint8,
    lib.MR_I8: np.int8,
    lib.MR_U16: np.uint16,
    lib.MR_F16: np.float16,
    lib.MR_U32: np.uint32,
    lib.MR_I32: np.int32,
    lib.MR_F32: np.float32,
    lib.MR_U64: np.uint64,
    lib.MR_I64: np.int64,
    lib.MR_F64: np.float64,
}
DTYPE_OF_NUMPY = {np.dtype(kind): number for number, kind in NUMPY_OF_DTYPE.items()}

_U64, _U32, _F32 = np.dtype(np.uint64), np.dtype(np.uint32), np.dtype(np.float32)
U64_ARRAY, U32_ARRAY, F32_ARRAY, _CHARS = (
    ffi.typeof(name) for name in ("uint64_t[]", "uint32_t[]", "float[]", "char *")
)
_ADDRESS = ffi.typeof("uintptr_t")
_U32_MAX = 0xFFFFFFFF


def torch_of(value: Any) -> Any:
    """The module torch when this is a tensor of its, else None."""
    if type(value) is np.ndarray:
        return None
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(value, torch.Tensor) else None


def to_numpy(value: Any) -> np.ndarray:
    """Over the same memory where it can be. Tensors of types that numpy lacks become float32."""
    torch = torch_of(value)
    if torch is not None:
        value = value.detach().cpu()
        if value.dtype == torch.bfloat16:
            value = value.float()
        return value.contiguous().numpy()
    return np.asarray(value)


def _exact(value: Any) -> np.ndarray:
    """Whole numbers of which numpy makes floats, as some are below 2**63, some not. TypeError: others."""
    given = np.array(value, dtype=object)
    numbers = [operator.index(number) for number in given.flat]
    if not all(-(2**63) <= number < 2**64 for number in numbers):
        raise TypeError
    return np.array([number % 2**64 for number in numbers], np.uint64).reshape(given.shape)


def _whole(name: str, value: Any) -> np.ndarray:
    array = to_numpy(value)
    if array.dtype.kind == "f" and isinstance(value, (list, tuple)):
        with contextlib.suppress(TypeError):
            array = _exact(value)
    if array.dtype.kind not in "iu" and array.size > 0:
        if array.dtype.kind == "O":
            wrong = [v for v in array.flat if not hasattr(v, "__index__") or not -(2**63) <= v < 2**64]
            what = f"{wrong[0]!r} is not" if wrong else "convert this array of objects with astype('int64')"
            raise TypeError(f"{name} are whole numbers of 64 bits; {what}")
        strings = (
            "; millrace.slot_keys(values, slot) makes keys of strings" if array.dtype.kind in "US" else ""
        )
        raise TypeError(f"{name} are whole numbers, not {array.dtype.name}{strings}")
    return array


def _contiguous(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return (
        array.astype(dtype, order="C", copy=False) if array.ndim == 0 else np.ascontiguousarray(array, dtype)
    )


def keys(value: Like) -> np.ndarray:
    """u64 keys, of any shape; int64 is taken as it stands, bit by bit."""
    if type(value) is np.ndarray and value.dtype is _U64 and value.flags.c_contiguous:
        return value
    array = _whole("keys", value)
    if array.dtype == np.int64:
        array = array.view(np.uint64)
    return _contiguous(array, _U64)


def offsets(value: Like, key_count: int, include_last: bool) -> np.ndarray:
    """u32 [bags + 1] offsets: 0 first, and the number of keys at the end, which is added where they lack
    it."""
    array = _whole("offsets", value)
    if array.ndim != 1:
        raise ValueError(f"offsets have the shape {array.shape}; they are one row of numbers")
    if not include_last:
        array = np.append(array.astype(np.int64, copy=False), key_count)
    if array.size == 0:
        raise ValueError(
            "offsets are empty; with include_last_offset there is at least the number of keys, 0"
        )
    if array.dtype != _U32 and (int(array.min()) < 0 or int(array.max()) > _U32_MAX):
        raise ValueError(
            f"offsets go from {array.min()} to {array.max()}; they are from 0 to the number of keys, "
            f"{key_count}"
        )
    if int(array[-1]) != key_count:
        raise ValueError(
            f"the last offset is {array[-1]}; it is the number of keys, {key_count}"
            " (or give include_last_offset=False)"
        )
    return np.ascontiguousarray(array, _U32)


def floats(value: Like) -> np.ndarray:
    """f32, of any shape."""
    if type(value) is np.ndarray and value.dtype is _F32 and value.flags.c_contiguous:
        return value
    array = to_numpy(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"numbers are needed here, not {array.dtype.name}")
    return _contiguous(array, _F32)


def gradients(value: Like, count: int, what: str, table: str, dim: int) -> np.ndarray:
    """f32, of any shape, for `count` keys or bags (`what`) of a table. ValueError: it is not [count, dim]."""
    array = floats(value)
    if array.size != count * dim or array.ndim == 0 or (array.size and array.shape[-1] != dim):
        raise ValueError(
            f"gradients have the shape {array.shape}; for {counted(count, what)} of {table!r} "
            f"they are [{count}, {dim}]"
        )
    return array


def gradients_of_keys(
    gradients: np.ndarray, offsets: np.ndarray, weights: np.ndarray | None, pooling: str
) -> np.ndarray:
    """Of bags [bags, dim], those of their keys [n, dim]: over the bag's divisor, times the key's weight."""
    sizes = np.diff(offsets.astype(np.int64))
    of_bag = np.repeat(np.arange(len(sizes)), sizes)
    each = gradients[of_bag]
    if pooling in ("mean", "sqrtn"):
        parts = np.ones(len(of_bag), np.float32) if weights is None else weights
        over = np.bincount(of_bag, parts if pooling == "mean" else parts * parts, len(sizes))
        over = (over if pooling == "mean" else np.sqrt(over)).astype(np.float32)
        factors = np.where(over != 0, 1 / np.where(over != 0, over, 1), 0).astype(np.float32)
        each = factors[of_bag, None] * each
    return each if weights is None else each * weights[:, None]


def weights(value: Like | None, key_count: int) -> np.ndarray | None:
    """f32, one for each key, or None."""
    if value is None:
        return None
    array = floats(value)
    if array.size != key_count:
        raise ValueError(f"the number of weights is {array.size}, for {counted(key_count, 'key')}")
    return array


def u64_pointer(array: np.ndarray) -> Any:
    """uint64_t * to the array's memory, which it keeps."""
    return ffi.from_buffer(U64_ARRAY, array)


def u32_pointer(array: np.ndarray) -> Any:
    """uint32_t * to the array's memory, which it keeps."""
    return ffi.from_buffer(U32_ARRAY, array)


def f32_pointer(array: np.ndarray | None) -> Any:
    """float * to the array's memory, which it keeps; NULL for None."""
    return ffi.NULL if array is None else ffi.from_buffer(F32_ARRAY, array)


def shape_of(tensor: Any) -> tuple[int, ...]:
    """The shape of a struct mr_tensor."""
    return tuple(tensor.dims[0 : tensor.rank])


def over(
    data: Any, nbytes: int, shape: tuple[int, ...], dtype: Any, free: Callable[[Any], None]
) -> np.ndarray:
    """An array over memory of the library's; free() is called with it when the array and all its views are
    gone."""
    memory = ffi.gc(ffi.cast(_CHARS, data), free)
    return np.ndarray(shape, dtype, ffi.buffer(memory, nbytes))


def _keeper(owner: Any) -> Callable[[Any], None]:
    def free(_: Any) -> None:
        assert owner is not None  # which goes with this function

    return free


def view(tensor: Any, owner: Any) -> np.ndarray:
    """A struct mr_tensor as an array over the same memory, which keeps `owner` alive. bf16 comes as
    uint16."""
    dtype = np.uint16 if tensor.dtype == lib.MR_BF16 else NUMPY_OF_DTYPE[tensor.dtype]
    shape = shape_of(tensor)
    if tensor.bytes == 0:
        return np.empty(shape, dtype)
    return over(tensor.data, tensor.bytes, shape, dtype, _keeper(owner))


# ---- replies ----

# of this process since it has the library: a parent's replies are not for its children to free
_forks = 0


def _after_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_after_fork)


def _freer(reply: Any) -> Callable[[Any], None]:
    born = _forks

    def free(_: Any, free_reply: Any = lib.mr_reply_free) -> None:
        if _forks == born:
            free_reply(reply)

    return free


def rows_of(reply: Any, torch: Any, shape: tuple[int, ...] | None = None) -> Array:
    """The f32 tensor that a struct mr_reply is of, over its memory, which is freed with the array; with
    `torch`, a tensor of torch's. `shape`: another than the reply's."""
    tensor = lib.mr_reply_tensor(reply, 0)
    nbytes = tensor.bytes
    shape = shape or shape_of(tensor)
    if nbytes == 0:
        lib.mr_reply_free(reply)
        array = np.empty(shape, _F32)
    else:
        array = np.ndarray(
            shape, _F32, ffi.buffer(ffi.gc(ffi.cast(_CHARS, tensor.data), _freer(reply)), nbytes)
        )
    return array if torch is None else torch.from_numpy(array)


def all_rows_of(reply: Any, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """All tensors of a struct mr_reply, f32 and of these shapes, over its memory, which is freed with the
    last of them."""
    tensors = [lib.mr_reply_tensor(reply, i) for i in range(len(shapes))]
    places = [(int(ffi.cast(_ADDRESS, tensor.data)), tensor.bytes) for tensor in tensors]
    begin = min((at for at, nbytes in places if nbytes > 0), default=0)
    end = max((at + nbytes for at, nbytes in places if nbytes > 0), default=0)
    if begin == end:
        lib.mr_reply_free(reply)
        return [np.empty(shape, _F32) for shape in shapes]
    memory = ffi.buffer(ffi.gc(ffi.cast(_CHARS, begin), _freer(reply)), end - begin)
    return [
        np.ndarray(shape, _F32, memory, at - begin) if nbytes > 0 else np.empty(shape, _F32)
        for shape, (at, nbytes) in zip(shapes, places)
    ]


def tensors_of(reply: Any) -> list[tuple[np.ndarray, int]]:
    """All tensors of a struct mr_reply with their dtypes, over its memory, which is freed with the last of
    them."""
    owner = ffi.gc(reply, _freer(reply))
    tensors = [lib.mr_reply_tensor(reply, i) for i in range(lib.mr_reply_tensor_count(reply))]
    return [(view(tensor, owner), tensor.dtype) for tensor in tensors]


def typed(value: Any) -> tuple[np.ndarray, int]:
    """An array and its enum mr_dtype; bfloat16 as the 16 bits that it is."""
    torch = torch_of(value)
    if torch is not None and value.dtype == torch.bfloat16:
        return value.detach().cpu().contiguous().view(torch.int16).numpy(), lib.MR_BF16
    array = to_numpy(value)
    dtype = DTYPE_OF_NUMPY.get(array.dtype)
    if dtype is None:
        raise TypeError(
            f"{array.dtype.name} cannot be sent; it is one of "
            f"{', '.join(d.name for d in DTYPE_OF_NUMPY)} or torch.bfloat16"
        )
    return np.ascontiguousarray(array).reshape(array.shape), dtype


def untyped(array: np.ndarray, dtype: int, torch: Any) -> Array:
    """The other way round; with `torch`, a tensor of torch's where it has the type."""
    if torch is None or array.dtype.name in ("uint16", "uint32", "uint64") and dtype != lib.MR_BF16:
        return array
    if dtype == lib.MR_BF16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def describe(struct: Any, array: np.ndarray, dtype: int) -> Any:
    """Fills in a struct mr_tensor. What is returned must live as long as that is used."""
    if array.ndim > lib.MR_RANK_MAX:
        raise ValueError(
            f"an array has the shape {array.shape}; up to {lib.MR_RANK_MAX} dimensions can be sent"
        )
    memory = ffi.from_buffer("char[]", array) if array.size else ffi.NULL
    struct.dtype, struct.rank, struct.bytes, struct.data = dtype, array.ndim, array.nbytes, memory
    for i, n in enumerate(array.shape):
        struct.dims[i] = n
    return memory
