"""A named tensor of a file, read piece by piece, and how an array is one."""
from __future__ import annotations

from typing import Any, Callable, Iterator

import numpy as np


class FileError(ValueError):
    """A file is none of these, or is damaged. The text names it."""


class Entry:
    """A tensor of a file. `shape`; `dtype`: as the file has it; pieces(rows): arrays of so many rows each, in
    order (one array of a scalar); raises FileError. `refused`: why it cannot be read; None: it can."""

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        pieces: Callable[[int], Iterator[np.ndarray]],
        refused: str | None = None,
    ) -> None:
        self.name, self.shape, self.dtype, self.pieces = name, shape, dtype, pieces
        self.refused = refused

    def __repr__(self) -> str:
        return f"<{self.name} {self.dtype} {list(self.shape)}>"

    def all(self) -> np.ndarray:
        """As one array."""
        pieces = list(self.pieces(max(1, self.shape[0] if self.shape else 1)))
        return pieces[0] if pieces else np.zeros(self.shape)


def refused(name: str, shape: tuple[int, ...], dtype: str, why: str) -> Entry:
    """A tensor that is there and cannot be read. `why` names the file and it."""

    def pieces(_: int) -> Iterator[np.ndarray]:
        raise FileError(why)

    return Entry(name, shape, dtype, pieces, why)


def slices(array: Any, convert: Callable[[Any], np.ndarray]) -> Callable[[int], Iterator[np.ndarray]]:
    def pieces(rows: int) -> Iterator[np.ndarray]:
        if len(array.shape) == 0:
            yield convert(array)
            return
        for first in range(0, array.shape[0], rows):
            yield convert(array[first : first + rows])

    return pieces


def as_it_is(array: np.ndarray) -> np.ndarray:
    return np.asarray(array)


def of_bf16(array: np.ndarray) -> np.ndarray:
    return (array.astype(np.uint32) << 16).view(np.float32)
