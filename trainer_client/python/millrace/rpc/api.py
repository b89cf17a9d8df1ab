"""What programs use of torch.distributed.rpc.api though its name begins with "_": barriers and gathering over
remote calls, as PyTorch Geometric's and GraphLearn's loaders do, and whether there is a world."""
from __future__ import annotations

import contextlib
import functools
import logging
import threading
from typing import Any, Callable, Iterable, Iterator, TypeVar

from ..errors import DeadlineExceeded, InvalidArgument
from . import _world
from ._calls import collecting as _thread_local_var, remote, rpc_async, rpc_sync
from ._contexts import waiting
from ._future import wait_all
from ._rref import RRef
from ._world import WorkerInfo, get_rpc_timeout, get_worker_info, shutdown

_set_rpc_timeout = _world.set_rpc_timeout

_UNSET_TIMEOUT = -1.0
_F = TypeVar("_F", bound=Callable[..., Any])
_logger = logging.getLogger(__name__)


def _is_current_rpc_agent_set() -> bool:
    """Whether this process is a worker now."""
    return _world._current is not None


def _require_initialized(func: _F) -> _F:
    """A decorator: the function raises a RuntimeError where there is no world."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        _world.current()
        return func(*args, **kwargs)

    return wrapper  # type: ignore[return-value]


class _Agent:
    """What programs ask torch's agent for."""

    def __init__(self, world: _world.World) -> None:
        self._its = world

    def get_worker_info(self, worker: Any = None) -> WorkerInfo:
        """As millrace.rpc's; also by rank."""
        return self._its.worker(self._its.rank if worker is None else self._its.rank_of(worker))

    def get_worker_infos(self) -> list[WorkerInfo]:
        """Of all workers, by rank. InvalidArgument: they join and leave one by one."""
        if self._its.is_open:
            raise InvalidArgument("in a world without a world_size workers join and leave one by one")
        return [self._its.worker(rank) for rank in range(self._its.world_size)]


def _get_current_rpc_agent() -> _Agent:
    """Of the world that this process is a worker of."""
    return _Agent(_world.current())


@contextlib.contextmanager
def _wait_all() -> Iterator[None]:
    """`with _wait_all():` waits at its end for all that this thread began by rpc_async() in the block, and
    raises the first error."""
    _thread_local_var.future_list = []
    try:
        yield
    finally:
        futures = _thread_local_var.future_list
        del _thread_local_var.future_list
        wait_all(futures)


# ---- gathering ----
# The worker whose name is the first in order leads: the others give it their objects, and get all from it.
# Workers that gather again among the same ones count, each for itself, so that all mean the same turn.


class AllGatherStates:
    """One gathering, on one worker; programs that gather in their own way use it, too."""

    def __init__(self) -> None:
        self.gathered_objects: dict[str, Any] = {}
        self.proceed_signal = threading.Event()


class _Turns:
    """All of one worker in one world."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.counts: dict[str, int] = {}
        self.turns: dict[str, AllGatherStates] = {}

    def next_name(self, names: Iterable[str]) -> str:
        """Of the turn that this worker begins now."""
        among = ",".join(sorted(names))
        with self.lock:
            count = self.counts[among] = self.counts.get(among, 0) + 1
        return f"{among} {count}"

    def find(self, name: str) -> AllGatherStates:
        """The turn, which another worker may have begun."""
        with self.lock:
            return self.turns.setdefault(name, AllGatherStates())

    def end(self, name: str) -> None:
        """It is over here."""
        with self.lock:
            self.turns.pop(name, None)


def _turns() -> _Turns:
    world = _world.current()
    with world.lock:
        if world.turns is None:
            world.turns = _Turns()
        return world.turns


def _give(name: str, worker: str, thing: Any, names: set[str]) -> None:
    """At the leader."""
    turns = _turns()
    turn = turns.find(name)
    with turns.lock:
        turn.gathered_objects[worker] = thing
        if set(turn.gathered_objects) == names:
            turn.proceed_signal.set()


def _take(name: str, objects: dict[str, Any]) -> None:
    """At the others."""
    turn = _turns().find(name)
    turn.gathered_objects = objects
    turn.proceed_signal.set()


def _hand_out(name: str, objects: dict[str, Any], followers: Iterable[str], timeout: float) -> None:
    calls = {follower: rpc_async(follower, _take, (name, objects), timeout=timeout) for follower in followers}
    errors = {follower: call.exception() for follower, call in calls.items()}
    failed = {follower: error for follower, error in errors.items() if error is not None}
    if failed:
        first = next(iter(failed.values()))
        raise RuntimeError(
            f"_all_gather: {', '.join(sorted(failed))} did not get the objects: {first}"
        ) from first


@_require_initialized
def _all_gather(obj: Any, worker_names: Any = None, timeout: float = _UNSET_TIMEOUT) -> dict[str, Any]:
    """Returns {name: its object} of all those workers, or of all, once each has called this with the same
    names. timeout: in seconds; -1: as long as it takes, with the worker's time-out for each call; 0: none."""
    agent = _get_current_rpc_agent()
    names = set(worker_names or (info.name for info in agent.get_worker_infos()))
    own, leader = agent.get_worker_info().name, min(names)
    if own not in names:
        raise InvalidArgument(f'_all_gather: worker "{own}" is none of {", ".join(sorted(names))}')
    turns = _turns()
    name = turns.next_name(names)
    turn = turns.find(name)
    try:
        if own == leader:
            _give(name, own, obj, names)
        else:
            rpc_sync(leader, _give, (name, own, obj, names), timeout=timeout)
        with waiting():
            is_whole = turn.proceed_signal.wait(timeout if timeout > 0 else None)
        if not is_whole:
            missing = f": {', '.join(sorted(names - set(turn.gathered_objects)))}" if own == leader else ""
            raise DeadlineExceeded(f"_all_gather: not all workers have come in {timeout:g} s{missing}")
        if own == leader:
            _hand_out(name, turn.gathered_objects, names - {leader}, timeout)
        return turn.gathered_objects
    finally:
        turns.end(name)


@_require_initialized
def _barrier(worker_names: Any) -> None:
    """Returns once all those workers have called this. An error is logged, as torch does."""
    try:
        _all_gather(None, set(worker_names))
    except RuntimeError:
        _logger.exception("_barrier failed")


@_require_initialized
def _wait_all_workers(timeout: float = 0) -> None:
    """Returns once all workers have called this. timeout: in seconds; 0: none."""
    _all_gather(None, timeout=timeout)


__all__ = [
    "RRef",
    "WorkerInfo",
    "get_rpc_timeout",
    "get_worker_info",
    "remote",
    "rpc_async",
    "rpc_sync",
    "shutdown",
]
