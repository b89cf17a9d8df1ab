"""What forwards need of their tables, and lookups of it: one call for all of a client."""
from __future__ import annotations

import collections
from typing import Any, Callable, NamedTuple, Optional, Sequence

import numpy as np
import torch

from .._base import steps
from ..future import Future


class Needs(NamedTuple):
    """A lookup that a module's forward needs, and what the forward makes of its answer."""

    module: Any  #: EmbeddingBag or Embedding
    keys: np.ndarray  #: u64 [n]
    offsets: Optional[np.ndarray]  #: u32 [bags + 1], from 0 to n; None: a row for each key
    weights: Optional[np.ndarray]  #: f32 [n] of keys in bags; None: all are 1
    finish: Callable[[torch.Tensor], torch.Tensor]  #: the forward's result, of [n or bags, dim]

    @property
    def size(self) -> int:
        """How many rows or bags the answer has."""
        return len(self.keys) if self.offsets is None else len(self.offsets) - 1

    def options(self) -> dict:
        """Of the lookup, as the module is now. A learning rate is for pushes."""
        options = steps.read(self.module.feature, self.module.options)
        options["read_only"] = not self.module.learns
        options.pop("learning_rate", None)
        return options


class Lookups:
    """Lookups, one call for those of a client that have the same options: made ready first, then sent."""

    def __init__(self, needs: Sequence[Needs]) -> None:
        """Makes them ready. A forward without keys needs none."""
        self.options = [one.options() for one in needs]  #: of each
        self._values: list[Any] = [None] * len(needs)
        self._ready: list[tuple[Any, list[int], Any]] = []  # clients, places and calls
        self._sent: list[tuple[list[int], Future]] = []
        together: dict[tuple, list[int]] = collections.defaultdict(list)
        for i, (one, options) in enumerate(zip(needs, self.options)):
            if len(one.keys) > 0:
                together[(one.module.feature.client, *sorted(options.items()))].append(i)
            else:
                self._values[i] = np.zeros((one.size, one.module.embedding_dim), np.float32)
        for (client, *_), places in together.items():
            tables = [(needs[i].module.feature, *needs[i][1:4]) for i in places]
            self._ready.append((client, places, client._lookup_tables(tables)))

    def start(self) -> None:
        """Sends them."""
        while self._ready:
            client, places, call = self._ready.pop(0)
            more = any(other is client for other, *_ in self._ready)
            options = {**self.options[places[0]], "more": more}
            self._sent.append((places, client._start(call, options)))

    def values(self) -> list[np.ndarray]:
        """Waits: f32 [rows or bags, dim] of each. Raises the first error of a lookup."""
        for places, future in self._sent:
            for i, values in zip(places, future.result()):
                self._values[i] = values
        self._sent = []
        return self._values
