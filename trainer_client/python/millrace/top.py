"""What each core and table of a node does, as a table."""
from __future__ import annotations

import html
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Mapping, Sequence

if TYPE_CHECKING:
    from .feature import FeatureInfo
    from .node import CoreState

_RATES = {  # of a core: counters that add up to it, as in `millrace top`
    "calls/s": ("wire.calls_served",),
    "keys/s": ("table.keys_looked_up", "table.keys_pushed"),
    "rx B/s": ("wire.rx_bytes",),
    "tx B/s": ("wire.tx_bytes",),
}
_CORE_HEADING = ("core", "state", "busy", *_RATES, "rows", "MiB", "step")
_FEATURE_HEADING = ("name", "kind", "shape", "rows", "MiB", "optimizer", "refused")
_MIB = 1 << 20


@dataclass(frozen=True)
class TopSample:
    """Counters of all cores at a time."""

    time_s: float
    start_id: int  #: of the server
    counters: list[Mapping[str, int]]


@dataclass(frozen=True)
class Top:
    """What Client.top() returns: print it, or leave it at the end of a notebook's cell."""

    server: str
    interval_s: float  #: that the rates are over; 0: there was no call before, and no rates
    cores: list[CoreState]
    rates: list[dict[str, float]]  #: of each core, as "calls/s"; empty without an interval
    features: list[FeatureInfo]

    def _tables(self) -> list[tuple[Sequence[str], list[list[str]]]]:
        cores = [
            [
                f"{state.node}/{state.core}" if state.node else str(state.core),
                state.state,
                f"{state.busy_share:.0%}",
                *(short(rates[name]) if rates else "-" for name in _RATES),
                short(state.rows),
                f"{state.memory_bytes / _MIB:.1f}",
                str(state.last_step),
            ]
            for state, rates in zip(self.cores, self.rates)
        ]
        features = [
            [
                info.name,
                "table" if hasattr(info.spec, "dim") else "variable",
                str(info.spec.dim if hasattr(info.spec, "dim") else tuple(info.spec.shape)),
                short(info.rows),
                f"{info.bytes / _MIB:.1f}",
                type(info.spec.optimizer).__name__,
                short(info.rows_refused),
            ]
            for info in self.features
        ]
        return [(_CORE_HEADING, cores), (_FEATURE_HEADING, features)]

    def _title(self) -> str:
        since = f"rates over {self.interval_s:.1f} s" if self.interval_s else "the next call has rates"
        return f"{self.server}: {since}"

    def _failures(self) -> list[str]:
        """A line for each node that serves nothing."""
        why = {state.node: state.why for state in self.cores if state.why}
        return [f"{node}{': ' if node else ''}serves nothing: {reason}" for node, reason in why.items()]

    def __repr__(self) -> str:
        lines = [self._title(), *self._failures()]
        return "\n".join([*lines, *("\n" + _text(*table) for table in self._tables() if table[1])])

    def _repr_html_(self) -> str:
        lines = [self._title(), *self._failures()]
        return "".join(f"<p>{html.escape(line)}</p>" for line in lines) + "".join(
            _html(*table) for table in self._tables() if table[1]
        )


def sample_rates(before: TopSample | None, now: TopSample) -> tuple[float, list[dict[str, float]]]:
    """The seconds between two samples, and the rates of each core; 0 and none if there is none before, or
    the server was started again or has another number of cores since."""
    if (
        before is None
        or before.start_id != now.start_id
        or len(before.counters) != len(now.counters)
        or now.time_s <= before.time_s
    ):
        return 0.0, [{} for _ in now.counters]
    interval_s = now.time_s - before.time_s
    return interval_s, [
        {
            name: max(0, _sum(core, counted) - _sum(was, counted)) / interval_s
            for name, counted in _RATES.items()
        }
        for was, core in zip(before.counters, now.counters)
    ]


def _sum(counters: Mapping[str, int], names: Sequence[str]) -> int:
    return sum(counters.get(name, 0) for name in names)


def take_sample(start_id: int, counters: list[Mapping[str, int]]) -> TopSample:
    """Now."""
    return TopSample(time.monotonic(), start_id, counters)


def short(value: float) -> str:
    """1234567 -> "1.23M"."""
    for unit in ("", "k", "M", "G", "T"):
        if value < 1000 or unit == "T":
            break
        value /= 1000
    if not unit:
        return f"{value:.0f}"
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}{unit}"


def _text(heading: Sequence[str], rows: list[list[str]]) -> str:
    widths = [max(len(line[i]) for line in [heading, *rows]) for i in range(len(heading))]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths)) for line in [heading, *rows]]
    return "\n".join(line.rstrip() for line in lines)


def _html(heading: Sequence[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in heading)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
