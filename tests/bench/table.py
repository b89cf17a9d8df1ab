"""Tables of what run.py measured. Results: {"machine", "rows": [...], "limits": {name: {driver: value}},
"notes": {what: text}}, as Bench.results() and Bench.limit_medians() make them."""
import json
import re

NOISE_TARGET = 1.5  # times as bad as without the noise, at most, may a ratio to the limit be beside it
MTU_ROW = r"mtu_\d+_"
ROW_HEAD = ("row", "value", "limit", "ratio", "target", "met", "limit's spread", "stolen", "others")
SPREAD_MAX = 0.2  # (largest - smallest) / median: a row whose limit spread more over the rounds says little
# limit: (what, unit, bytes that it moves, where it is a time)
LIMITS = {
    "empty_call_1": ("one empty call", "us", None),
    "empty_call_64": ("the same, 64 in flight", "/s", None),
    "pull_13312x16": ("852 kB of rows pulled", "MB/s", 13312 * 16 * 4),
    "push_13312x16": ("as many gradients pushed", "MB/s", 13312 * 16 * 4),
    "set_13312x16": ("as many rows replaced", "MB/s", 13312 * 16 * 4),
    "bags_512x26": ("512 bags of 26 rows", "us", None),
    "pull_8mb": ("8 MiB pulled", "MB/s", None),
    "push_8mb": ("8 MiB pushed", "MB/s", None),
}


def load(path):
    """Results of before; None: there are none."""
    try:
        with open(path, encoding="utf-8") as saved:
            return json.load(saved)
    except FileNotFoundError:
        return None


def merge(before, results):
    """The results of before with these in their place."""
    measured = {row["name"] for row in results["rows"]}
    rows = [row for row in before["rows"] if row["name"] not in measured] + results["rows"]
    return {
        "machine": results["machine"] if results["machine"][-2:] != "; " else before["machine"],
        "rows": rows,
        "limits": {
            name: {**before["limits"].get(name, {}), **results["limits"].get(name, {})}
            for name in {**before["limits"], **results["limits"]}
        },
        "notes": {**before["notes"], **results["notes"]},
    }


def number(value):
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"


def target(row):
    if row["target"] is None:
        return "-"
    bound = "<=" if row["better"] == "lower" else ">="
    kind = "x limit" if row["target_of"] == "ratio" else row["unit"]
    return f"{bound} {number(row['target'])} {kind}"


def met(row):
    return {True: "yes", False: "no", None: ""}[row["met"]]


def percent(share):
    return "-" if share is None else f"{100 * share:.0f} %"


def spread(row):
    """Over the rounds, with a mark where it is too large."""
    share = row.get("limit_spread")
    return percent(share) + (" !" if share is not None and share > SPREAD_MAX else "")


def cells(row):
    return (
        row["name"],
        f"{number(row['value'])} {row['unit']}",
        number(row["limit"]),
        number(row["ratio"]),
        target(row),
        met(row),
        spread(row),
        percent(row.get("steal")),
        percent(row.get("others")),
    )


def noise_cells(row):
    factor = row["noise_factor"]
    is_met = "yes" if factor <= NOISE_TARGET else "no"
    return (
        row["name"],
        number(row["ratio"]),
        number(row["noisy_ratio"]),
        number(factor),
        f"<= {NOISE_TARGET} x quiet",
        is_met,
    )


def limit_cells(name, drivers, found):
    what, unit, size = LIMITS[name]
    values = [found.get(driver) for driver in drivers]
    shown = [size / value if value and size else value for value in values]
    return (what, *(f"{number(value)} {unit}" if value else "-" for value in shown))


def mtu_tables(rows):
    """A line for each MTU and port, a column for each call."""
    lines = {}
    for row in rows:
        _, mtu, port, what = row["name"].split("_", 3)
        missed = " (missed)" if row["met"] is False else ""
        cell = f"{number(row['value'])} {row['unit']}, {number(row['ratio'])}{missed}"
        lines.setdefault(what.endswith("_loss"), {}).setdefault((mtu, port), {})[what] = cell
    for is_lossy, found in sorted(lines.items()):
        calls = list(next(iter(found.values())))
        names = [call.removesuffix("_1pct_loss") for call in calls]
        title = "1 % loss: value, share of that without" if is_lossy else "MTU: value, times the limit"
        yield (title, *names), [
            (f"{mtu}, {port}", *(cells.get(call, "-") for call in calls))
            for (mtu, port), cells in found.items()
        ]


def tables(results):
    """(head, rows) of each table that there is something for."""
    limits = results["limits"]
    drivers = sorted({driver for found in limits.values() for driver in found})
    heads = ["sockets, super-packets" if driver == "socket" else driver for driver in drivers]
    rows = [limit_cells(name, drivers, limits[name]) for name in LIMITS if name in limits]
    if rows:
        yield ("what the port alone can do", *heads), rows
    others = [row for row in results["rows"] if not re.match(MTU_ROW, row["name"])]
    if others:
        yield ROW_HEAD, [cells(row) for row in others]
    yield from mtu_tables([row for row in results["rows"] if re.match(MTU_ROW, row["name"])])
    noisy = [row for row in results["rows"] if row["noise_factor"] is not None]
    if noisy:
        head = ("beside a busy process", "ratio, quiet", "ratio", "times worse", "target", "met")
        yield head, [noise_cells(row) for row in noisy]


def notes(results):
    return [f"{what}: {text}" for what, text in sorted(results["notes"].items()) if what != "port"]


def markdown(results):
    lines = [results["machine"], ""]
    for head, rows in tables(results):
        lines += ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
        lines += ["| " + " | ".join((f"`{first}`", *rest)) + " |" for first, *rest in rows] + [""]
    return "\n".join(lines + [f"- {note}" for note in notes(results)]) + "\n"


def text(results):
    lines = [results["machine"]]
    for head, rows in tables(results):
        widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
        lines += [""] + [
            "  ".join(
                cell.ljust(width) if i == 0 or i >= 4 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths))
            ).rstrip()
            for line in (head, *rows)
        ]
    return "\n".join(lines + [""] + notes(results))
