"""Batches of samples as programs have them, in the arrays that a hub reads (docs/data-formats.md)."""

from __future__ import annotations

import struct
from typing import Any, Iterator, Mapping, NamedTuple, Sequence, Tuple, Union

import numpy as np

from ._base import arrays
from ._base.arrays import Like
from ._base.library import counted

Slot = Union[
    Like, Tuple[Like, Like], Tuple[Like, Like, Like]
]  #: [n] or [n, keys of each]; or (keys, offsets); or (keys, offsets, weights)
Slots = Union[
    Like, Sequence[Slot], Mapping[str, Slot]
]  #: an array [n, slots], a key in each; or slot by slot

_HEAD = struct.Struct("<4sIIIIIQ")
_MAGIC, _HAS_WEIGHTS, _IS_END, _HAS_FAILED, _HAS_NO_LABELS = b"MRSB", 1, 2, 4, 8
_SAMPLES_MAX, _SLOTS_MAX, _DENSE_MAX, _KEYS_MAX = 65536, 1024, 4096, 1 << 23
_REASON_MAX = 300

END: bytes = _HEAD.pack(_MAGIC, _IS_END, 0, 0, 0, 0, 0)  #: the block behind the last samples


class Samples(NamedTuple):
    """n samples. Bag (sample s, slot j) is keys[offsets[s * slots + j]:offsets[s * slots + j + 1]]."""

    size: int  #: n
    labels: np.ndarray | None  #: f32 [n], or None
    dense: np.ndarray  #: f32 [n, dense]
    slots: int
    keys: np.ndarray  #: u64
    offsets: np.ndarray  #: u32 [n * slots + 1]
    weights: np.ndarray | None  #: f32 of the keys, or None


class _Bags(NamedTuple):
    """A slot's bags, one for each sample."""

    keys: np.ndarray
    offsets: np.ndarray
    weights: np.ndarray | None


def _check_finite(what: str, values: np.ndarray, shape: tuple[int, ...]) -> None:
    """ValueError names the sample of the first value that is NaN or infinite. values: of `shape`, sample by
    sample."""
    if not np.isfinite(values).all():
        place = int(np.flatnonzero(~np.isfinite(values.reshape(-1)))[0])
        sample, *index = np.unravel_index(place, shape)
        which = f"{what} {index[0]}" if index else what
        raise ValueError(f"sample {sample}: {which} is {values.reshape(-1)[place]}; it is a finite number")


def _dense(value: Any, count: int) -> np.ndarray:
    if value is None:
        return np.empty((count, 0), np.float32)
    array = arrays.floats(value)
    if array.ndim == 1:
        array = array.reshape(-1, 1)
    if array.ndim != 2 or len(array) != count:
        raise ValueError(
            f"dense values have the shape {array.shape} for {counted(count, 'sample')}; it is [samples, "
            "dense]"
        )
    if array.shape[1] > _DENSE_MAX:
        raise ValueError(f"a sample has {array.shape[1]} dense values; up to {_DENSE_MAX} can be fed")
    _check_finite("dense value", array, array.shape)
    return array


def _bags(name: Any, slot: Slot, count: int) -> _Bags:
    """A slot as bags; `name` for errors."""
    try:
        if not isinstance(slot, tuple):
            keys = arrays.keys(slot)
            if keys.ndim not in (1, 2) or len(keys) != count:
                raise ValueError(
                    f"keys have the shape {keys.shape} for {counted(count, 'sample')}; it is [samples] or "
                    "[samples, keys of each], or give (keys, offsets)"
                )
            width = keys.size // count if count else 0
            return _Bags(keys.reshape(-1), np.arange(count + 1, dtype=np.uint32) * np.uint32(width), None)
        if not 2 <= len(slot) <= 3:
            raise ValueError(f"it has {counted(len(slot), 'array')}; it is (keys, offsets[, weights])")
        keys = arrays.keys(slot[0]).reshape(-1)
        starts = arrays.offsets(slot[1], keys.size, len(slot[1]) != count)
        if starts.size != count + 1:
            raise ValueError(f"it has {counted(starts.size - 1, 'bag')} for {counted(count, 'sample')}")
        if starts[0] != 0 or (starts[1:] < starts[:-1]).any():
            raise ValueError("its offsets do not rise from 0")
        weights = arrays.weights(slot[2], keys.size) if len(slot) == 3 else None
        if weights is not None and not np.isfinite(weights).all():
            place = int(np.flatnonzero(~np.isfinite(weights.reshape(-1)))[0])
            sample = int(np.searchsorted(starts, place, "right")) - 1
            raise ValueError(
                f"sample {sample}: the weight of key {place - int(starts[sample])} is "
                f"{weights.reshape(-1)[place]}; it is a finite number"
            )
        return _Bags(keys, starts, None if weights is None else weights.reshape(-1))
    except (TypeError, ValueError) as error:
        raise type(error)(f"slot {name!r}: {error}") from None


def _join(slots: list[_Bags]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Bags of slot after slot as bags of sample after sample: keys, offsets, weights."""
    lengths = np.stack([np.diff(slot.offsets) for slot in slots], axis=1)
    offsets = np.zeros(lengths.size + 1, np.uint32)
    np.cumsum(lengths.reshape(-1), out=offsets[1:])
    has_weights = any(slot.weights is not None for slot in slots)
    if not has_weights and (lengths == 1).all():
        return np.stack([slot.keys for slot in slots], axis=1).reshape(-1), offsets, None
    keys = np.empty(offsets[-1], np.uint64)
    weights = np.ones(keys.size, np.float32) if has_weights else None
    starts = offsets[:-1].reshape(lengths.shape).astype(np.int64)
    for j, slot in enumerate(slots):
        places = np.repeat(starts[:, j] - slot.offsets[:-1], lengths[:, j]) + np.arange(slot.keys.size)
        keys[places] = slot.keys
        if weights is not None and slot.weights is not None:
            weights[places] = slot.weights
    return keys, offsets, weights


def _parts(batch: Any) -> tuple[Any, Any, Any]:
    """Labels, dense values and slots of a batch."""
    if isinstance(batch, Mapping):
        unknown = sorted(set(batch) - {"labels", "dense", "slots"})
        if unknown or "labels" not in batch or "slots" not in batch:
            raise ValueError(
                f"it has {', '.join(map(repr, batch))}; a batch has 'labels' (None: they are not known), "
                "'slots' and perhaps 'dense'"
            )
        return batch["labels"], batch.get("dense"), batch["slots"]
    if not isinstance(batch, (tuple, list)) or not 2 <= len(batch) <= 3:
        raise TypeError(
            f"it is {type(batch).__name__}; a batch is (labels, slots), (labels, dense, slots) or a dict of "
            "these"
        )
    return (batch[0], None, batch[1]) if len(batch) == 2 else (batch[0], batch[1], batch[2])


def _count(dense: Any, slots: Any) -> int:
    """How many samples a batch without labels has."""
    if dense is not None:
        return len(dense)
    if not isinstance(slots, (Mapping, list, tuple)):
        return len(slots)
    named = list(slots.values() if isinstance(slots, Mapping) else slots)
    counts = [len(slot) for slot in named if not isinstance(slot, tuple)]
    # As torch's EmbeddingBag has it without include_last_offset: one offset for each bag.
    counts += [len(slot[1]) for slot in named if isinstance(slot, tuple) and len(slot) > 1]
    return counts[0] if counts else 0


def samples_of(batch: Any) -> Samples:
    """The samples of a batch as millrace.feed() takes it. ValueError, TypeError: it is none; the text says
    what is wrong with which part."""
    labels, dense, slots = _parts(batch)
    if labels is None:
        count = _count(dense, slots)
    else:
        labels = arrays.floats(labels).reshape(-1)
        _check_finite("its label", labels, labels.shape)
        count = len(labels)
    dense = _dense(dense, count)
    if isinstance(slots, (Mapping, list, tuple)):
        named = list(slots.items() if isinstance(slots, Mapping) else enumerate(slots))
        if not 1 <= len(named) <= _SLOTS_MAX:
            raise ValueError(f"it has {counted(len(named), 'slot')}; 1 to {_SLOTS_MAX} can be fed")
        bags = _join([_bags(name, slot, count) for name, slot in named])
        return Samples(count, labels, dense, len(named), *bags)
    keys = arrays.keys(slots)
    if keys.ndim != 2 or len(keys) != count or not 1 <= keys.shape[1] <= _SLOTS_MAX:
        raise ValueError(
            f"slots have the shape {keys.shape} for {counted(count, 'sample')}; it is [samples, slots], with "
            f"1 to {_SLOTS_MAX} slots, or give a list of slots"
        )
    offsets = np.arange(keys.size + 1, dtype=np.uint32)
    return Samples(count, labels, dense, keys.shape[1], keys.reshape(-1), offsets, None)


def _block(samples: Samples, first: int, end: int) -> list[Any]:
    """Samples [first, end) as a block: buffers to be written one after the other."""
    offsets = samples.offsets[first * samples.slots : end * samples.slots + 1]
    keys = samples.keys[offsets[0] : offsets[-1]]
    if keys.size > _KEYS_MAX:
        raise ValueError(f"{counted(end - first, 'sample')} with {keys.size} keys are too large to be fed")
    weights = None if samples.weights is None else samples.weights[offsets[0] : offsets[-1]]
    labels = None if samples.labels is None else samples.labels[first:end]
    flags = (0 if weights is None else _HAS_WEIGHTS) | (_HAS_NO_LABELS if labels is None else 0)
    head = _HEAD.pack(_MAGIC, flags, end - first, samples.slots, samples.dense.shape[1], keys.size, 0)
    starts = offsets - offsets[0] if offsets[0] else offsets
    body = [keys, labels, samples.dense[first:end], starts, weights]
    return [
        head,
        *(array.reshape(-1).view(np.uint8).data for array in body if array is not None and array.size),
    ]


def blocks(samples: Samples) -> Iterator[list[Any]]:
    """Samples as a hub reads them: buffers of blocks."""
    count = samples.size
    largest = max(int(np.diff(samples.offsets[:: samples.slots]).max(initial=1)), 1)
    step = max(min(_SAMPLES_MAX, _KEYS_MAX // largest), 1)
    for first in range(0, count, step):
        yield _block(samples, first, min(first + step, count))


def failure(reason: str) -> list[bytes]:
    """The block in place of END when there will be no more samples; trainers see the reason."""
    text = reason.encode()[:_REASON_MAX]
    return [_HEAD.pack(_MAGIC, _HAS_FAILED, 0, 0, 0, len(text), 0), text]
