"""The steps of tables whose optimizer goes by them (optim.SparseAdam, dense=True), for programs that name
none.

A push of a module is a step of its table, as it is one of torch's optimizer: the first is step 1. A program
that goes on with rows that are there already continues after the step that the server has reached, which
checkpoints keep. Steps that a program names itself (set_call_options) are taken as they are.

Rows of a dense table move in every step. So what reads them names a step, too, and has them as that step
finds them: the next one, after what this client has reached. A step that the program names is taken as it is,
unless it has been pushed: then it is over, and rows are as the step after it finds them.
"""
from __future__ import annotations

import threading
import weakref
from typing import Any, Mapping

import numpy as np

_lock = threading.Lock()
_reached: "weakref.WeakKeyDictionary[Any, dict[int, int]]" = weakref.WeakKeyDictionary()


def is_dense(feature: Any) -> bool:
    """Whether all rows of this table move in every step."""
    feature.id  # noqa: B018  # a collection's table has its optimizer when it is made
    return getattr(feature.spec.optimizer, "dense", False)


def _counts(feature: Any) -> bool:
    feature.id  # noqa: B018
    return feature.spec.optimizer.counts_steps


def _known(client: Any) -> dict[int, int]:
    return _reached.setdefault(client, {})


def _move_on(table: Any, step: int) -> None:
    with _lock:
        known = _known(table.client)
        known[table.id] = max(step, known.get(table.id, 0))


def _reached_by(table: Any) -> int:
    """By this client, or by the server where this client trains nothing in the table."""
    client = table.client
    known = _known(client).get(table.id)
    if known is not None:
        return known
    is_new = all(info.rows == 0 for info in client.features() if info.id == table.id)
    return 0 if is_new else client.checkpoint_info().step


def forget(client: Any) -> None:
    """The server has gone back to a checkpoint, and steps go on from that one's."""
    with _lock:
        _reached.pop(client, None)


def begin(table: Any, options: Mapping[str, Any]) -> None:
    """Before a table's first rows are looked up to be trained with these options: finds out where its steps
    go on."""
    if _counts(table) and table.id not in _known(table.client):
        step = options.get("step")
        _move_on(table, step - 1 if step else _reached_by(table))


def named(client: Any, features: list, options: dict) -> dict:
    """The options of a push to these features, with the step that it is."""
    counted = [feature for feature in features if _counts(feature)]
    if not counted:
        return options
    with _lock:
        known = _known(client)
        step = options.get("step") or 1 + max(known.get(feature.id, 0) for feature in counted)
        for feature in counted:
            known[feature.id] = max(step, known.get(feature.id, 0))
    return {**options, "step": step}


def of_lookup(table: Any, options: Mapping[str, Any], learns: bool) -> dict[str, Any]:
    """The options of a module's lookup, of a dense table with the step before which it wants the rows.
    learns: they are looked up to be trained."""
    if learns:
        begin(table, options)
    if not is_dense(table):
        return dict(options)
    known, step = _known(table.client).get(table.id), options.get("step")
    if step is None:
        return {**options, "step": 1 + _reached_by(table)}
    return {**options, "step": step if known is None else max(step, 1 + known)}


def stored(table: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a call that reads or sets rows as they are stored, of a dense table as the next step
    finds them, unless the call names another."""
    if not is_dense(table) or options.get("step") is not None:
        return dict(options)
    reached = _reached_by(table)
    return {**options, "step": reached + 1 if reached > 0 else 0}


def to_set(
    table: Any, state: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> tuple[dict[str, Any], Mapping[str, Any] | None]:
    """The options of a call that sets rows, and their state: of a dense table with the last step that they
    went through, which others' momentum does not tell, and which the call names then."""
    options = stored(table, options)
    if state is None or not is_dense(table):
        return options, state
    reached = max(0, options["step"] - 1)
    state = {"last_step": reached, **state}
    return {**options, "step": int(np.max(np.asarray(state["last_step"]), initial=reached))}, state


def restored(table: Any, options: Mapping[str, Any]) -> None:
    """Rows were set with their state, by calls with to_set()'s options: a dense table's steps go on from
    there."""
    if is_dense(table):
        _move_on(table, options["step"])
