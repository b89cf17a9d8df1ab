"""Batches of a loader, with the lookups of the next ones made while this one trains."""
from __future__ import annotations

import collections
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, Union

from . import lookups
from .ahead import Ahead, PrefetchCounts
from .lookups import Needs
from ..errors import Error

Module = Any  #: Embedding, EmbeddingBag, or a collection of them, in millrace.torchrec


class _Batch:
    """A batch that was read."""

    def __init__(self, value: Any, error: Optional[Exception] = None) -> None:
        self.value = value
        self.ahead: Optional[Ahead] = None  #: its lookups, which begin later
        self.error = error  #: why there are none


class Prefetch:
    """What prefetch() returns: iterating over it begins the loader anew."""

    def __init__(
        self, loader: Iterable[Any], bags: Mapping[Module, Any], depth: int = 1, stale: bool = False
    ) -> None:
        if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
            raise ValueError(f"depth is {depth!r}; it is how many batches are looked up ahead, 1 or more")
        if not isinstance(bags, Mapping) or not bags:
            raise TypeError(
                "bags say for each module what it is given of a batch: "
                "{module: function of the batch, or key}"
            )
        for module in bags:
            if not hasattr(module, "_needs"):
                raise TypeError(
                    f"bags: {type(module).__name__} is no millrace.nn.EmbeddingBag or Embedding, nor a "
                    "collection of millrace.torchrec; others have nothing to look up ahead"
                )
        self.loader, self.bags, self.depth, self.stale = loader, dict(bags), depth, bool(stale)
        self.counts = PrefetchCounts()  #: of all passes so far

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<millrace.prefetch of {self.loader!r}, depth={self.depth}: {self.counts}>"

    def _ask(self, batch: _Batch) -> None:
        """Makes its lookups ready. An error is the batch's, whose turn is later."""
        try:
            needs: list[Needs] = []
            for module, given in self.bags.items():
                arguments = given(batch.value) if callable(given) else batch.value[given]
                its = module._needs(*(arguments if isinstance(arguments, tuple) else (arguments,)))
                needs += its if isinstance(its, list) else [its]  # of a collection, or of one module
            batch.ahead = Ahead(needs, self.counts, self.depth if self.stale else None)
        except Exception as error:
            batch.error = error

    def _look_up(self, batch: _Batch) -> None:
        """Sends its lookups."""
        if batch.ahead is None or batch.ahead.is_started:
            return
        try:
            batch.ahead.start()
        except Exception as error:
            batch.error = error

    def _read(self, loader: Iterator[Any]) -> Optional[_Batch]:
        """None: there are no more."""
        try:
            batch = _Batch(next(loader))
        except StopIteration:
            return None
        except Exception as error:
            return _Batch(None, error)
        self._ask(batch)
        return batch

    def __iter__(self) -> Iterator[Any]:
        loader = iter(self.loader)
        waiting: collections.deque[_Batch] = collections.deque()
        is_over = False
        try:
            while True:
                while not is_over and len(waiting) <= self.depth:
                    batch = self._read(loader)
                    is_over = batch is None or batch.error is not None
                    if batch is not None:
                        waiting.append(batch)
                if not waiting:
                    return
                yield from self._hand_out(waiting.popleft(), waiting)
        finally:
            for batch in waiting:
                _drop(batch)

    def _hand_out(self, batch: _Batch, following: Iterable[_Batch]) -> Iterator[Any]:
        """The lookups of those that follow begin when this batch's rows are up to date: before, servers would
        do them first, and what changes until then would have to be looked up once more."""
        self._look_up(batch)
        if batch.error is not None:
            raise batch.error
        assert batch.ahead is not None

        def look_up_following() -> None:
            for later in following:
                self._look_up(later)
                if later.error is not None:  # which ends the loop
                    return

        batch.ahead.arrive()
        self.counts.batches += 1
        batch.ahead.afterwards = look_up_following
        lookups.enter(batch.ahead)
        try:
            yield batch.value
            batch.ahead.finish()
        finally:
            lookups.leave(batch.ahead)


def _drop(batch: _Batch) -> None:
    """Nobody wants it: its lookups end, so that none is in flight."""
    if batch.ahead is None or not batch.ahead.is_started:
        return
    try:
        batch.ahead.arrive()
    except Error:
        pass


def prefetch(
    loader: Iterable[Any],
    bags: Mapping[Module, Union[Callable[[Any], Any], Any]],
    depth: int = 1,
    stale: bool = False,
) -> Prefetch:
    """The loader's batches, whose lookups have been made: those of the next ones are while this one trains.

        keys = {users: "user", items: lambda batch: (batch.keys, batch.offsets)}
        for batch in millrace.prefetch(loader, keys):
            loss = model(batch)  # users(batch["user"]) finds its rows here
            loss.backward()

    loader: any iterable of batches, as a DataLoader of torch's or a list.
    bags: for each EmbeddingBag and Embedding what it will be given of a batch: a function of the batch, or
        what the batch is indexed with. That is a tuple of the forward's arguments, or the first of them
        alone. The same for a collection of millrace.torchrec.
    depth: how many batches are looked up ahead of the one that trains.
    stale: rows stay as they were when they were looked up. Else those that this client has changed since are
        looked up again before a forward takes them, and results are those without prefetching. What other
        clients change shows with the next lookup, as in any asynchronous training.

    Where a table is trained with a dense optimizer, each step moves all of its rows: that needs stale=True.
    ValueError otherwise, when the first batch is asked for.

    A forward with the keys that were looked up takes their rows, once; with other keys it makes a lookup of
    its own. The result's `counts` say how often either happened, and how stale rows were. An error of the
    loader, of `bags` or of a lookup is raised when it is its batch's turn. A loop that is left early waits
    for what is in flight.
    """
    return Prefetch(loader, bags, depth, stale)
