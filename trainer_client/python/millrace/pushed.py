"""What became of a push of gradients."""
from __future__ import annotations

from ._base.library import ffi

_COUNTS = ("sent", "applied", "refused", "without_row", "not_finite")


class Pushed:
    """What became of a push, for whoever asks: table.push_gradients(keys, gradients, pushed=pushed).

    The call fills it in when it ends well, a Future when its outcome is taken; one push at a time. Keys count
    once each, and variables; of a key that comes several times, each gradient that holds NaN or Inf counts by
    itself. `sent` is the sum of the other four, and all of the push if `is_known`.
    """

    __slots__ = ("_struct",)

    def __init__(self) -> None:
        self._struct = ffi.new("struct mr_pushed *")

    @property
    def is_known(self) -> bool:
        """False before a push has ended, and when some of it was applied earlier than the answer was made, as
        when it was sent again after a restart, or its batch had been applied: that is not in the numbers."""
        return self._struct.is_known

    @property
    def sent(self) -> int:
        """Keys and variables that the push had."""
        return self._struct.sent

    @property
    def applied(self) -> int:
        """Rows and variables that the optimizer changed."""
        return self._struct.applied

    @property
    def refused(self) -> int:
        """Rows that were to be made when memory or the table's capacity was used up."""
        return self._struct.refused

    @property
    def without_row(self) -> int:
        """Keys that have no row: never looked up, not admitted, refused when they were, evicted, or the node
        is frozen."""
        return self._struct.without_row

    @property
    def not_finite(self) -> int:
        """Gradients that hold NaN or Inf, and rows that would have come to hold them: they are as they
        were."""
        return self._struct.not_finite

    def _clear(self) -> None:
        """To what _add() adds to: a push of nothing."""
        self._struct.is_known = True
        for name in _COUNTS:
            setattr(self._struct, name, 0)

    def _add(self, other: Pushed) -> None:
        self._struct.is_known = self.is_known and other.is_known
        for name in _COUNTS:
            setattr(self._struct, name, getattr(self, name) + getattr(other, name))

    def __repr__(self) -> str:
        if not self.is_known:
            return "<millrace.Pushed: not known>"
        names = ("refused", "without_row", "not_finite")
        left_out = "".join(f", {name} {getattr(self, name)}" for name in names if getattr(self, name))
        return f"<millrace.Pushed: {self.applied} of {self.sent} applied{left_out}>"
