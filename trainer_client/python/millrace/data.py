"""Batches from a hub for a training loop: read ahead, with their lookups, and counted until their gradients
are applied."""
from __future__ import annotations

import collections
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional, Sequence

import numpy as np

from . import errors
from ._base.library import counted, lib, text
from .future import Future
from .hub import Hub
from .table import Table

if TYPE_CHECKING:
    from .client import Client
    from .hub import SampleInfo

__all__ = ["Batch", "DataLoader", "LoaderCounts"]

_NOT_READY_S = 0.001
_PAUSE_S = 0.02
_START_S = 600.0  # the hub may read a large file through first
_SEEN_MAX = 1 << 17  # far more than a hub has on their way, of which it may hand one out again

# What goes by, of a server or hub that restarts or has much to do. What was lost by it the hub hands out
# again.
PASSING = (
    errors.DeadlineExceeded,
    errors.UnknownOutcome,
    errors.Unreachable,
    errors.Busy,
    errors.UnknownBatch,
    errors.BatchExpired,
    errors.AlreadyLearnt,
    errors.NotReady,
    errors.NotStarted,
    errors.AlreadyStarted,
    errors.ShuttingDown,
    errors.WrongOwner,
)


class Batch:
    """Samples that were fed together, under one id.

    id, samples (how many), epoch; dense [samples, dense] and labels [samples], f32, tensors of torch's if the
    program uses torch, else of numpy's. read_only: it is for evaluation, and takes no gradients.
    """

    def __init__(
        self,
        id: int,
        samples: int,
        epoch: int = 0,
        dense: Any = None,
        labels: Any = None,
        *,
        read_only: bool = False,
    ) -> None:
        self.id, self.samples, self.epoch, self.dense, self.labels = id, samples, epoch, dense, labels
        self.read_only = read_only
        self.loader: Optional[DataLoader] = None
        self.is_given_back = False
        self._values: dict[tuple[int, int], Any] = {}
        self._pushes: dict[int, Future] = {}

    def __repr__(self) -> str:
        return f"<millrace.Batch {self.id}: {counted(self.samples, 'sample')}>"

    def prefetch(self, feature: Any, **options: Any) -> None:
        """Asks for values() ahead of their use."""
        key = (id(feature.client), feature.id)
        if key not in self._values:
            self._values[key] = (
                feature.client.lookup_batch_async(self.id, feature, **options)
                if _is_table(feature)
                else feature.pull_async(**options)
            )

    def values(self, feature: Any, **options: Any) -> np.ndarray:
        """A table's rows for it, pooled: f32 [samples, slots, dim]; or a variable, as it was when it was
        first asked for."""
        self.prefetch(feature, **options)
        return self._values[id(feature.client), feature.id].result()

    def wait_values(self) -> None:
        """Waits for all that was asked for ahead; raises what became of it."""
        for future in self._values.values():
            future.result()

    @property
    def pushed(self) -> bool:
        """Whether gradients are on their way."""
        return bool(self._pushes)

    def push(self, gradients: Sequence[tuple[Any, Any]], **options: Any) -> None:
        """Begins to push [(table or variable, gradient of what values() gave), ...], once: for a loop without
        torch's backward, which does it by itself. Gradients have the shapes of the values. RuntimeError: it
        has been pushed."""
        by_client: dict[Client, list] = {}
        for feature, gradient in gradients:
            by_client.setdefault(feature.client, []).append((feature, gradient))
        for client, its in by_client.items():
            self.push_async(client, its, **options)

    def push_async(
        self, client: Client, gradients: Sequence[tuple[Any, Any]], **options: Any
    ) -> tuple[Callable[[], Any], Callable[[], bool]]:
        """The same to one server. Returns what waits for the end of it, and what says whether somebody has;
        with a loader errors are the loader's to judge."""
        if id(client) in self._pushes:
            raise RuntimeError(
                f"batch {self.id} has been pushed, and a batch is applied once: add the losses up and call "
                "backward() on the sum"
            )
        future = self._pushes[id(client)] = client.push_gradients_batch_async(self.id, gradients, **options)
        if self.loader is None:
            return future.result, future._is_taken
        self.loader.look_ahead()
        return lambda: _await(future), future._is_taken

    def wait(self) -> bool:
        """Waits until its gradients are applied. False: a server had applied it before, and left them out."""
        return all([future.result() for future in self._pushes.values()])

    def give_back(self) -> None:
        """Without gradients: the hub hands it out again."""
        self.is_given_back = True


def _await(future: Future) -> None:
    try:
        future.result()
    except errors.Error:
        pass


def _is_table(feature: Any) -> bool:
    return isinstance(feature, Table)


def is_batch(value: Any) -> bool:
    """A Batch, or one as Hub.read() gives it."""
    return hasattr(value, "id") and hasattr(value, "samples")


def values_of(batch: Any, feature: Any, options: dict[str, Any]) -> np.ndarray:
    """Batch.values() for either kind; an array that is the caller's alone."""
    if isinstance(batch, Batch):
        return np.array(batch.values(feature, **options))
    return (
        feature.client.lookup_batch(batch.id, feature, **options)
        if _is_table(feature)
        else feature.pull(**options)
    )


@dataclass
class LoaderCounts:
    """What became of a loader's batches."""

    batches: int = 0  #: handed out
    samples: int = 0  #: in those that were applied, or evaluated
    applied: int = 0  #: applied
    known: int = 0  #: that a server had applied before: left out
    dropped: int = 0  #: lost with a server, or too late; they come again
    given_back: int = 0  #: by the program, without gradients; they come again


class DataLoader:
    """Batches of a plan, as an iterator; several trainers with the same plan share its batches.

        loader = millrace.DataLoader(hub, "/data/clicks.tsv", "criteo", 512, table="clicks", tables=[bag],
                                     staleness=2)
        for batch in loader:
            loss = criterion(model(batch), batch.labels)
            loss.backward()

    hub, path, format, batch_samples and all further keyword arguments: as of Hub.start().
    tables: Tables (or modules over one) that each batch is looked up in ahead; variables: those that are
    pulled with it.
    staleness: how many batches may be on their way through the trainer besides the one that it gets now: up
        to so many have gradients that no server has confirmed, and staleness + 1 are read and looked up
        ahead. The hub's --prefetch adds to it.
    give_up_s: how long server and hub may be away before their error is raised. Of standard input and files
        that are followed it waits for more samples as long as the hub is there.

    The loop ends when all batches are applied. Each one that it gets out of here must be pushed, as
    backward() does, or given back (batch.give_back()); those of a plan's held-out part take no gradients. A
    batch that comes to nothing because a server restarted is counted (counts.dropped), and comes again: it is
    applied once. Use it in one thread.

    ValueError: a negative staleness. The iterator raises RuntimeError for a batch that was neither pushed nor
    given back, and at once those errors of server and hub that do not pass by themselves.
    """

    def __init__(
        self,
        hub: Hub,
        path: str,
        format: str,
        batch_samples: int,
        *,
        tables: Sequence[Any] = (),
        variables: Sequence[Any] = (),
        staleness: int = 1,
        give_up_s: float = 60.0,
        **plan: Any,
    ) -> None:
        if not isinstance(hub, Hub):
            raise TypeError(
                f"hub is {hub!r}; it is a millrace.Hub, for example millrace.Hub('10.0.0.1:7800')"
            )
        if staleness < 0:
            raise ValueError(f"staleness is {staleness}; it is a number of batches, 0 or more")
        self.hub, self.staleness, self.give_up_s = hub, staleness, give_up_s
        self.counts = LoaderCounts()
        self._plan: dict[str, Any] = {
            "path": path,
            "format": format,
            "batch_samples": batch_samples,
            "deadline_s": _START_S,
            **plan,
        }
        self._read_only = plan.get("part", "train") == "held_out"
        self._tables = [_with_options(table) for table in tables]
        self._variables = [_with_options(variable) for variable in variables]
        self._reading: Optional[Future] = None
        self._telling: list[int] = []  # ids that the read in flight names
        self._done: list[int] = []  # ids for the next one
        self._ahead: collections.deque[Batch] = collections.deque()
        self._handed: collections.deque[Batch] = collections.deque()
        self._seen: dict[int, None] = {}  # of a plan for evaluation: the last ones, the oldest first
        self._is_over = False
        self._progress_s = time.monotonic()
        self.info = self._start()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._read_only:
            self._settle(0)
        while not self._is_over:
            self._settle(self.staleness)
            self._read_on()
            batch = self._take()
            if batch is not None:
                return batch
        raise StopIteration

    def flush(self) -> None:
        """Waits until the gradients of all batches that were pushed are applied."""
        while self._handed and (self._handed[0].pushed or self._handed[0].is_given_back):
            self._settle(len(self._handed) - 1)

    def look_ahead(self) -> None:
        """Takes in what has come from the hub, and asks for its rows. Does not wait. Batch.push_async() calls
        it."""
        if self._reading is not None and self._reading.done():
            self._end_read()
        if self._reading is None and self._has_room():
            self._begin_read()

    # ---- trouble ----

    def _progress(self) -> None:
        self._progress_s = time.monotonic()

    def _bear(self, error: errors.Error) -> None:
        """Goes on after a pause, or raises what does not pass or has lasted too long."""
        if not isinstance(error, PASSING) or time.monotonic() - self._progress_s > self.give_up_s:
            raise error
        time.sleep(_PAUSE_S)

    def _start(self) -> SampleInfo:
        while True:
            try:
                info = self.hub.start(**self._plan)
            except errors.Error as error:
                self._bear(error)
            else:
                self._progress()
                return info

    # ---- batches that were handed out ----

    def _settle(self, leave: int) -> None:
        while len(self._handed) > leave:
            batch = self._handed.popleft()
            self._done.append(batch.id)
            self._end(batch)

    def _end(self, batch: Batch) -> None:
        if self._read_only:
            self._seen[batch.id] = None
            if len(self._seen) > _SEEN_MAX:
                del self._seen[next(iter(self._seen))]
            self.counts.samples += batch.samples
        elif batch.is_given_back:
            self.counts.given_back += 1
        elif not batch.pushed:
            raise RuntimeError(
                f"batch {batch.id} has got no gradients: call backward() on what its rows have come to, or "
                'batch.give_back(); part="held_out" makes a plan for evaluation'
            )
        else:
            self._end_push(batch)

    def _end_push(self, batch: Batch) -> None:
        try:
            applied = batch.wait()
        except errors.Error as error:
            self.counts.dropped += 1
            self._bear(error)
            return
        self._progress()
        self.counts.applied += applied
        self.counts.known += not applied
        self.counts.samples += batch.samples

    # ---- batches ahead ----

    def _has_room(self) -> bool:
        return len(self._ahead) <= self.staleness and not self._is_over

    def _read_on(self) -> None:
        """Reads until there is a batch, and takes what else has come by then."""
        while self._has_room():
            if self._reading is None:
                self._begin_read()
            if self._reading is None or self._ahead and not self._reading.done() or not self._end_read():
                return

    def _begin_read(self) -> None:
        try:
            self._reading = self.hub.read_async(done=self._done)
        except errors.Error as error:
            self._bear(error)
            return
        self._telling, self._done = self._done, []

    def _end_read(self) -> bool:
        """Waits for the hub's answer. Whether it was a batch."""
        reading, self._reading = self._reading, None
        assert reading is not None
        try:
            found = reading.result()
        except errors.EndOfData:
            self._is_over = True
            self._ahead.clear()
            self._settle(0)
            return False
        except errors.NotStarted:  # the hub restarted
            self._done = self._telling + self._done
            self._start()
            return False
        except errors.Error as error:
            self._done = self._telling + self._done
            self._bear(error)
            return False
        if found is None:
            self._idle()
            return False
        self._progress()
        self._come(found)
        return True

    def _idle(self) -> None:
        """The hub has nothing now. It may have when more is applied."""
        if self._ahead:
            return
        if self._handed and self._handed[0].pushed:
            self._settle(len(self._handed) - 1)
        else:
            # An input that is read once has no end yet: there is none to wait for.
            if self.info.batches > 0 and time.monotonic() - self._progress_s > self.give_up_s:
                self._give_up()
                return
            time.sleep(_NOT_READY_S)

    def _give_up(self) -> None:
        """Asks the hub a last time, and raises why it has no batch, unless it has one now."""
        try:
            found = self.hub._run(self.hub._read(())._replace(none_status=0), {})
        except errors.NotReady as error:
            line = f"no batch for {self.give_up_s:g} s: {error}"
            if line.endswith(text(lib.mr_status_text(lib.MR_NOT_READY))):  # the hub names no reason
                line += "; the server that it feeds may be away, or another trainer does not end its batches"
            raise errors.NotReady(line) from None
        self._progress()
        self._come(found)

    def _come(self, found: Any) -> None:
        """A batch has come: its rows are asked for."""
        if found.id in self._seen:  # the hub may hand one out twice
            self._done.append(found.id)
            return
        batch = Batch(
            found.id,
            found.samples,
            found.epoch,
            _tensor(found.dense),
            _tensor(found.labels),
            read_only=self._read_only,
        )
        batch.loader = self
        self._ahead.append(batch)
        try:
            self._prefetch(batch, self._tables + (self._variables if self.staleness > 0 else []))
        except errors.Error as error:
            self._ahead.pop()
            self._drop(batch, error)

    @staticmethod
    def _prefetch(batch: Batch, features: list[tuple[Any, dict]]) -> None:
        for i, (feature, options) in enumerate(features):
            batch.prefetch(feature, **{**options, "more": i + 1 < len(features)})

    def _take(self) -> Optional[Batch]:
        if not self._ahead:
            return None
        batch = self._ahead.popleft()
        try:
            if self.staleness == 0:
                self._prefetch(batch, self._variables)
            batch.wait_values()
        except errors.Error as error:
            self._drop(batch, error)
            return None
        self._handed.append(batch)
        self.counts.batches += 1
        self.look_ahead()
        return batch

    def _drop(self, batch: Batch, error: errors.Error) -> None:
        self.counts.dropped += 1
        if (
            not self._read_only
        ):  # what is not applied comes again once it is said to be done; else when it was kept too long
            self._done.append(batch.id)
        self._bear(error)


def _with_options(feature: Any) -> tuple[Any, dict]:
    """A table or variable, alone or as a module of millrace.nn."""
    module = getattr(feature, "feature", None)
    return (feature, {}) if module is None else (module, feature.options)


def _tensor(array: Any) -> Any:
    torch = sys.modules.get("torch")
    return array if torch is None or not isinstance(array, np.ndarray) else torch.from_numpy(array)
