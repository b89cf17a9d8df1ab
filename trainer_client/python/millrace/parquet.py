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
        count = schema.names.count(name)
        if count == 0:
            raise ValueError(f"{path} has no column {name!r}; it has {', '.join(map(repr, schema.names))}")
        if count > 1:
            raise ValueError(
                f"{path} has {count} columns named {name!r}; rename all but the one that is meant"
            )


def _is_list(kind: Any) -> bool:
    """Lists of whatever layout; a map is none."""
    return str(kind).startswith(
        ("list<", "large_list<", "fixed_size_list<", "list_view<", "large_list_view<")
    )


def _stored(column: Any) -> Any:
    """Extension types, such as UUIDs, as what they are stored as; views of text as text."""
    pa = _pyarrow()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    views = {"string_view": pa.string, "binary_view": pa.binary}
    return column.cast(views[str(column.type)]()) if str(column.type) in views else column


class _Column:
    """A column of that name in all files. The values at hand are of file `path` from row `first` on."""

    def __init__(self, name: str, nan_is_missing: bool) -> None:
        self.name, self._nan_is_missing = name, nan_is_missing
        self.path, self.first = "", 0
        self._unit: tuple[Any, str] | None = None  # the type of instants, and the first file that has it

    def wrong(self, what: str) -> ValueError:
        return ValueError(f"{self.path}: column {self.name!r} {what}")

    def _wrong_value(self, value: Any, row: int | None, why: str) -> ValueError:
        """row: None for one of a list's values."""
        if value != value:
            why = "it is no number; nan_is_missing=True reads it as missing"
        return self.wrong(f"has {value}{'' if row is None else f' in row {self.first + row}'}: {why}")

    def _without_nan(self, column: Any) -> Any:
        pa = _pyarrow()
        if self._nan_is_missing and pa.types.is_floating(column.type):
            return pa.compute.if_else(pa.compute.is_nan(column), None, column)
        return column

    def _count(self, column: Any) -> Any:
        """Days, instants, times of day and durations as the whole numbers that they are stored as; others as
        they are."""
        pa = _pyarrow()
        kind = column.type
        if pa.types.is_date(kind):
            return column.cast(pa.date32()).cast(pa.int32())
        if not (pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind)):
            return column
        before, path = self._unit = self._unit or (kind, self.path)
        if before.unit != kind.unit:
            raise self.wrong(
                f"is {kind}, and {before} in {path}, which counts in another unit; cast one of them"
            )
        return column.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64())

    def numbers(self, column: Any, when_null: float | None) -> np.ndarray:
        """f32 [n]; when_null: None refuses missing values."""
        pa = _pyarrow()
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        column = self._count(self._without_nan(_stored(column)))
        kind = column.type
        if pa.types.is_null(kind) or pa.types.is_decimal(kind):
            column = column.cast(pa.float64())
        elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            raise self.wrong(f"is {kind}; labels and dense values are numbers: {_cure(kind)}")
        if column.null_count:
            if when_null is None:
                raise self.wrong(f"has {counted(column.null_count, 'missing label')}")
            column = column.fill_null(when_null)
        values: np.ndarray = column.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(~np.isfinite(values))
        if wrong.size:
            row = int(wrong[0])
            raise self._wrong_value(column[row].as_py(), row, "it is too large for a float")
        return values

    def whole(self, column: Any, has_rows: bool) -> Any:
        """Whole numbers of 64 bits at most, by whatever type; None: it has other types."""
        pa = _pyarrow()
        kind = column.type
        if pa.types.is_decimal(kind):
            try:
                return column.cast(pa.int64())
            except pa.ArrowInvalid:
                wrong = [v is not None and (v != int(v) or abs(v) >= 1 << 63) for v in column.to_pylist()]
                row = wrong.index(True)
                raise self._wrong_value(column[row].as_py(), row if has_rows else None, _NO_KEY) from None
        if not pa.types.is_floating(kind):
            column = self._count(column)
            return column if pa.types.is_integer(column.type) else None
        column = self._without_nan(column)
        exact = 2.0 ** {16: 11, 32: 24, 64: 53}[kind.bit_width]
        is_there = column.is_valid().to_numpy(zero_copy_only=False)
        values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
        fine = np.isfinite(values) & (np.abs(values) <= exact)
        fine &= np.trunc(values) == values
        if not fine.all():
            row = int(np.flatnonzero(~fine)[0])
            raise self._wrong_value(values[row], row if has_rows else None, _NO_KEY)
        return pa.array(values.astype(np.int64), mask=~is_there)


_NO_KEY = (
    "keys are made of whole numbers that the type can tell apart (double: up to 2**53); cast it to string or "
    "int64, or take it as a dense value"
)


def _cure(kind: Any) -> str:
    """How to write a column of a type that is not read."""
    pa = _pyarrow()
    if pa.types.is_struct(kind):
        return "write the field that is meant as a column of its own"
    if pa.types.is_map(kind):
        return "write its keys as a list"
    if _is_list(kind):
        return "write each of its elements as a column, or take it as a slot"
    return "cast it to one of these where the file is written, text as its number"


class _Slot:
    """A column whose values are keys of a slot."""

    def __init__(self, number: int, column: _Column, raw: bool) -> None:
        self.number, self.column, self.name, self.raw = number, column, column.name, raw

    def bags(self, column: Any) -> Any:
        """[n] keys, or (keys, offsets) where some have none or several."""
        count = len(column)
        column = _stored(column)
        if _is_list(column.type):
            pa = _pyarrow()
            lengths = pa.compute.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
            keys, is_there = self._keys(column.flatten(), False)
            if not is_there.all():
                bag = np.repeat(np.arange(count), lengths)
                lengths = np.bincount(bag[is_there], minlength=count)
        else:
            keys, is_there = self._keys(column, True)
            if is_there.all():
                return keys
            lengths = is_there
        offsets = np.zeros(count + 1, np.uint32)
        np.cumsum(lengths, out=offsets[1:])
        return keys[is_there], offsets

    def _keys(self, values: Any, has_rows: bool) -> tuple[np.ndarray, np.ndarray]:
        """Keys of values, and which of them are there: what is missing, and an empty text, has none."""
        pa = _pyarrow()
        values = _stored(values)
        kind = values.type
        if pa.types.is_null(kind):
            return np.zeros(len(values), np.uint64), np.zeros(len(values), bool)
        if pa.types.is_dictionary(kind):
            keys, is_there = self._keys(values.dictionary, False)
            places = values.indices.fill_null(len(keys)).to_numpy(zero_copy_only=False)
            return np.append(keys, np.uint64(0))[places], np.append(is_there, False)[places]
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        is_text |= pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        is_text |= pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind)
        if pa.types.is_boolean(kind) and not self.raw:
            values = values.cast(pa.uint8()).cast(pa.string())
        elif not is_text or self.raw:
            whole = self.column.whole(values, has_rows)
            if whole is None and self.raw:
                raise self.column.wrong(f"is {kind}; raw keys are whole numbers")
            if whole is None:
                raise self.column.wrong(
                    f"is {kind}; slots are strings, whole numbers, days, instants, booleans or lists of "
                    f"these: {_cure(kind)}"
                )
            values = whole if self.raw else whole.cast(pa.string())
        is_valid = values.is_valid().to_numpy(zero_copy_only=False)
        if self.raw:
            array = values.fill_null(0).to_numpy(zero_copy_only=False)
            return array.astype(np.int64 if array.dtype.kind == "i" else np.uint64).view(np.uint64), is_valid
        if not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
            values = values.cast(pa.binary())
        _, offsets, text = values.buffers()
        if len(values) == 0 or text is None:
            return np.empty(len(values), np.uint64), np.zeros(len(values), bool)
        ends = np.frombuffer(offsets, np.uint32)[values.offset : values.offset + len(values) + 1]
        return keys_of_text(self.number, text, ends), is_valid & (ends[1:] > ends[:-1])


def read_parquet(
    paths: Paths,
    *,
    label: str | None,
    dense: Sequence[str] = (),
    slots: Sequence[str],
    batch_size: int = 8192,
    raw_keys: bool = False,
    nan_is_missing: bool = False,
) -> Iterator[Mapping[str, Any]]:
    """Reads Parquet files as batches for millrace.feed(): dicts with labels [n], dense [n, dense] (f32) and
    slots, a dict of [n] keys or (keys, offsets). Rows come in the order of the files.

    paths: a file, a pattern ("clicks/day=*/*.parquet"), whose files are taken by name, or a list of them.
    label, dense: columns of numbers, decimals or booleans; a missing dense value is 0. Days, instants and
        durations are the whole numbers that the file has of them. label=None: there is none, and the labels
        of batches are None: they are to be scored.
    slots: a column for each slot, of strings, bytes, whole numbers, days, instants, booleans or lists of
        these; what is missing or "" has no key. A key is made of the value's text and the slot's number, as
        by slot_keys(): the same as the hub's for a text file with these fields. A boolean's text is 1 or 0.
        Whole numbers may come as floats, as pandas writes them where some are missing, or as decimals.
    batch_size: rows of a batch at most; the hub cuts batches of its own.
    raw_keys: whole numbers are keys as they are; equal values of two slots share a row then.
    nan_is_missing: NaN counts as a missing value. Otherwise it is refused; infinity always is.

    Raises FileNotFoundError, ValueError (a column is not there, there twice, or of another type, or a value
    cannot be taken; the text has file, column and the row, from 0), ImportError without pyarrow.
    """
    pa = _pyarrow()
    for name in slots:
        if list(slots).count(name) > 1:
            raise ValueError(f"slots names {name!r} twice; each slot has a column of its own")
    columns = {
        name: _Column(name, nan_is_missing) for name in [*([] if label is None else [label]), *dense, *slots]
    }
    readers = [_Slot(number, columns[name], raw_keys) for number, name in enumerate(slots)]
    for path in _files(paths):
        with pa.parquet.ParquetFile(path) as file:
            _check_columns(path, file.schema_arrow, list(columns))
            first = 0
            for rows in file.iter_batches(batch_size, columns=list(columns)):
                for column in columns.values():
                    column.path, column.first = path, first
                first += len(rows)
                values = [columns[name].numbers(rows.column(name), 0.0) for name in dense]
                yield {
                    "labels": None if label is None else columns[label].numbers(rows.column(label), None),
                    "dense": np.stack(values, axis=1) if values else None,
                    "slots": {slot.name: slot.bags(rows.column(slot.name)) for slot in readers},
                }
