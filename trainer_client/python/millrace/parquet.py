"""Batches of Parquet files for millrace.feed(). Needs pyarrow."""
from __future__ import annotations

import glob
import os
from typing import Any, Iterator, Mapping, Sequence, Union

import numpy as np

from ._base.library import counted
from .slot_keys import keys_of_text

Paths = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"Parquet is read by pyarrow: python3 -m pip install pyarrow ({error})") from None
    return pyarrow


def _files(paths: Paths) -> list[str]:
    """In the order given; those of a pattern by name."""
    found: list[str] = []
    for path in [paths] if isinstance(paths, (str, os.PathLike)) else paths:
        pattern = os.fspath(path)
        matches = sorted(glob.glob(pattern, recursive=True)) if glob.has_magic(pattern) else [pattern]
        if not matches or not os.path.exists(matches[0]):
            raise FileNotFoundError(f"there is no file {pattern}")
        found += matches
    return found


def _check_columns(path: str, schema: Any, wanted: Sequence[str]) -> None:
    for name in wanted:
        if name not in schema.names:
            raise ValueError(f"{path} has no column {name!r}; it has {', '.join(map(repr, schema.names))}")


def _numbers(path: str, name: str, column: Any, when_null: float | None) -> np.ndarray:
    """A column as f32 [n]; when_null: None refuses missing values."""
    pa = _pyarrow()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise ValueError(f"{path}: column {name!r} is {kind}; labels and dense values are numbers")
    if column.null_count:
        if when_null is None:
            raise ValueError(f"{path}: column {name!r} has {counted(column.null_count, 'missing label')}")
        column = column.fill_null(when_null)
    return column.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False)


class _Slot:
    """A column whose values are keys of a slot."""

    def __init__(self, number: int, name: str, raw: bool) -> None:
        self.number, self.name, self.raw = number, name, raw

    def bags(self, path: str, column: Any) -> Any:
        """[n] keys, or (keys, offsets) where some have none or several."""
        pa = _pyarrow()
        count = len(column)
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
            keys, is_there = self._keys(path, column.flatten())
            if not is_there.all():
                bag = np.repeat(np.arange(count), lengths)
                lengths = np.bincount(bag[is_there], minlength=count)
        else:
            keys, is_there = self._keys(path, column)
            if is_there.all():
                return keys
            lengths = is_there
        offsets = np.zeros(count + 1, np.uint32)
        np.cumsum(lengths, out=offsets[1:])
        return keys[is_there], offsets

    def _keys(self, path: str, values: Any) -> tuple[np.ndarray, np.ndarray]:
        """Keys of values, and which of them are there: what is missing, and an empty text, has none."""
        pa = _pyarrow()
        kind = values.type
        if pa.types.is_dictionary(kind):
            keys, is_there = self._keys(path, values.dictionary)
            places = values.indices.fill_null(len(keys)).to_numpy(zero_copy_only=False)
            return np.append(keys, np.uint64(0))[places], np.append(is_there, False)[places]
        is_valid = values.is_valid().to_numpy(zero_copy_only=False)
        if self.raw:
            if not pa.types.is_integer(kind):
                raise ValueError(f"{path}: column {self.name!r} is {kind}; raw keys are whole numbers")
            array = values.fill_null(0).to_numpy(zero_copy_only=False)
            return array.astype(np.int64 if array.dtype.kind == "i" else np.uint64).view(np.uint64), is_valid
        if pa.types.is_boolean(kind):
            values = values.cast(pa.uint8()).cast(pa.string())
        elif pa.types.is_integer(kind):
            values = values.cast(pa.string())
        elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
            values = values.cast(pa.binary())
        elif not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            raise ValueError(
                f"{path}: column {self.name!r} is {kind}; slots are strings, whole numbers, booleans or "
                "lists of these"
            )
        _, offsets, text = values.buffers()
        if len(values) == 0 or text is None:
            return np.empty(len(values), np.uint64), np.zeros(len(values), bool)
        ends = np.frombuffer(offsets, np.uint32)[values.offset : values.offset + len(values) + 1]
        return keys_of_text(self.number, text, ends), is_valid & (ends[1:] > ends[:-1])


def read_parquet(
    paths: Paths,
    *,
    label: str,
    dense: Sequence[str] = (),
    slots: Sequence[str],
    batch_size: int = 8192,
    raw_keys: bool = False,
) -> Iterator[Mapping[str, Any]]:
    """Reads Parquet files as batches for millrace.feed(): dicts with labels [n], dense [n, dense] (f32) and
    slots, a dict of [n] keys or (keys, offsets). Rows come in the order of the files.

    paths: a file, a pattern ("clicks/day=*/*.parquet"), whose files are taken by name, or a list of them.
    label, dense: columns of numbers or booleans; a missing dense value is 0.
    slots: a column for each slot, of strings, whole numbers, booleans or lists of these; what is missing or
        "" has no key. A key is made of the value's text and the slot's number, as by slot_keys(): the same as
        the hub's for a text file with these fields. A boolean's text is 1 or 0.
    batch_size: rows of a batch at most; the hub cuts batches of its own.
    raw_keys: whole numbers are keys as they are; equal values of two slots share a row then.

    Raises FileNotFoundError, ValueError (a column is not there or of another type; the text has file and
    column), ImportError without pyarrow.
    """
    pa = _pyarrow()
    for name in slots:
        if list(slots).count(name) > 1:
            raise ValueError(f"slots names {name!r} twice; each slot has a column of its own")
    readers = [_Slot(number, name, raw_keys) for number, name in enumerate(slots)]
    columns = list(dict.fromkeys([label, *dense, *slots]))
    for path in _files(paths):
        with pa.parquet.ParquetFile(path) as file:
            _check_columns(path, file.schema_arrow, columns)
            for rows in file.iter_batches(batch_size, columns=columns):
                values = [_numbers(path, name, rows.column(name), 0.0) for name in dense]
                yield {
                    "labels": _numbers(path, label, rows.column(label), None),
                    "dense": np.stack(values, axis=1) if values else None,
                    "slots": {slot.name: slot.bags(path, rows.column(slot.name)) for slot in readers},
                }
