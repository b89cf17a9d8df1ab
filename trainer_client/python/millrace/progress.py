"""Progress of long work: a bar on a terminal or in a notebook, nothing in a pipe."""
from __future__ import annotations

import os
import sys
from typing import Any, Union

_WIDTH = 24
_MIB = 1 << 20
Progress = Union[bool, None]


class Bar:
    """A bar that is redrawn in place, in MiB; tqdm's where that is installed. A context manager.

    progress: True: always; False: never; None: where somebody looks: a terminal or a notebook, unless
    $MILLRACE_PROGRESS is 0.
    """

    def __init__(self, what: str, progress: Progress = None) -> None:
        self._what, self._last = what, ""
        self._bar: Any = None
        self.is_shown = is_watched() if progress is None else progress

    def show(self, done: int, total: int) -> None:
        """Bytes; a total of 0 is not known yet."""
        if not self.is_shown or total <= 0:
            return
        make = _tqdm()
        if make is None:
            self._draw(done, total)
            return
        if self._bar is None:
            self._bar = make(
                total=total, desc=self._what, unit="B", unit_scale=True, unit_divisor=1024, leave=True
            )
        self._bar.total = total
        self._bar.n = min(done, total)
        self._bar.refresh()

    def _draw(self, done: int, total: int) -> None:
        share = min(1.0, done / total)
        filled = round(share * _WIDTH)
        line = (
            f"{self._what}: {share:4.0%} [{'#' * filled}{'.' * (_WIDTH - filled)}] "
            f"{done / _MIB:.1f} of {total / _MIB:.1f} MiB"
        )
        if line != self._last:
            sys.stderr.write("\r" + line.ljust(len(self._last)))
            sys.stderr.flush()
            self._last = line

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._last:
            sys.stderr.write("\n")
            sys.stderr.flush()


def is_watched() -> bool:
    """Whether standard error is a terminal, or this is a notebook."""
    if os.environ.get("MILLRACE_PROGRESS") == "0":
        return False
    return "ipykernel" in sys.modules or bool(getattr(sys.stderr, "isatty", bool)())


def _tqdm() -> Any:
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return None
    return tqdm
