"""The one way in which a Python test waits for something that another thread or program does: a condition is
asked again and again until it holds. A test never sleeps in the hope that something has happened by then."""
from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

LIMIT_S = 120.0  # it only ends a test that would hang: a starved machine does not reach it
_PAUSE_S, _PAUSE_MAX_S = 0.002, 0.1  # between two looks; longer when it has been a while

T = TypeVar("T")


def wait_until(
    is_so: Callable[[], T], what: str, limit_s: float = LIMIT_S, but: type[Exception] | tuple[()] = ()
) -> T:
    """Waits until is_so() returns something true, and returns it. It is asked once more when the time is
    over. but: what it may raise to say that it is not so yet, such as OSError when nobody listens."""
    began_s = time.monotonic()
    while True:
        passed_s, why = time.monotonic() - began_s, ""
        try:
            if holds := is_so():
                return holds
        except but as error:
            why = f": {error}"
        assert passed_s <= limit_s, f"not within {limit_s:.0f} s: {what}{why}"
        time.sleep(min(max(passed_s / 16, _PAUSE_S), _PAUSE_MAX_S))


def is_in_package(thread: threading.Thread) -> bool:
    """Whether a function of millrace is among those that the thread is in."""
    package = os.path.dirname(sys.modules["millrace"].__file__ or "")
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None and not frame.f_code.co_filename.startswith(package):
        frame = frame.f_back
    return frame is not None


def process_runs(pid: int | str) -> bool:
    """Whether there is such a process, which is no zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
