"""The steps of tables whose optimizer goes by them (optim.SparseAdam), for programs that name none.

A push of a module is a step of its table, as it is one of torch's optimizer: the first is step 1. A program
that goes on with rows that are there already continues after the step that the server has reached, which
checkpoints keep. Steps that a program names itself (set_call_options) are taken as they are.
"""
from __future__ import annotations

import threading
import weakref
from typing import Any

_lock = threading.Lock()
_reached: "weakref.WeakKeyDictionary[Any, dict[int, int]]" = weakref.WeakKeyDictionary()


def _counts(feature: Any) -> bool:
    return getattr(feature.spec.optimizer, "bias_correction", "row") == "step"


def _known(client: Any) -> dict[int, int]:
    return _reached.setdefault(client, {})


def begin(table: Any) -> None:
    """Before a table's first rows are looked up to be trained: finds out where its steps go on."""
    if not _counts(table) or table.id in _known(table.client):
        return
    client = table.client
    is_new = all(info.rows == 0 for info in client.features() if info.id == table.id)
    reached = 0 if is_new else client.checkpoint_info().step
    with _lock:
        _known(client).setdefault(table.id, reached)


def named(client: Any, features: list, options: dict) -> dict:
    """The options of a push to these features, with the step that it is."""
    counted = [feature.id for feature in features if _counts(feature)]
    if not counted:
        return options
    with _lock:
        known = _known(client)
        step = options.get("step") or 1 + max(known.get(id, 0) for id in counted)
        for id in counted:
            known[id] = max(step, known.get(id, 0))
    return {**options, "step": step}
