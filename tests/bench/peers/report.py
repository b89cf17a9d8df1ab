"""Tables of what peers.py measured. Results: {"machine", "settings", "rounds": [{row: {peer: figure}}],
"auc": {peer: [...]}}."""
import math
import statistics

PEERS = {
    "millrace": "Millrace",
    "python": "Millrace from Python",
    "torch": "PyTorch RPC",
    "torch2": "PyTorch 2 RPC",
    "torchrec": "TorchRec",
    "grpc": "gRPC C++",
    "redis": "Redis",
}
# row: (what, unit, whether more is better)
ROWS = {
    "empty_1": ("empty call, one at a time", "us", False),
    "empty_64": ("empty calls, 64 in flight", "calls/s", True),
    "pull": ("pull of 13312 x 16 floats", "us", False),
    "push": ("push of 13312 gradients", "us", False),
    "set": ("13312 rows replaced", "us", False),
    "lookup": ("512 bags of 26 keys, summed", "us", False),
    "lookup_fed": ("the same, keys sent ahead", "us", False),
    "fm": ("FM on flights, 2 trainers", "samples/s", True),
    "fm_f16": ("the same, f16 on the wire", "samples/s", True),
    "mnist": ("MNIST, 1 trainer", "images/s", True),
}
# Where a peer cannot do a row: which of its rows stands there.
INSTEAD = {
    ("redis", "push"): "set",
    ("torch", "lookup_fed"): "lookup",
    ("torch", "fm_f16"): "fm",
    ("torch2", "lookup_fed"): "lookup",
    ("torch2", "fm_f16"): "fm",
    ("grpc", "lookup_fed"): "lookup",
    ("redis", "lookup_fed"): "lookup",
}
NOTES = {
    "pull": "TorchRec has the table in the trainer's own memory, and one key in each bag; nothing leaves the "
    "process.",
    "push": "Millrace and gRPC run Adagrad, PyTorch and TorchRec run SGD. "
    "Redis cannot apply gradients; its figure (*) "
    "is an MSET of new rows.",
    "lookup": "The server sums the rows; Redis cannot, so its client pulls and sums them.",
    "lookup_fed": "Millrace's hub sends a batch's keys before its trainer asks for the sums; the peers' "
    "figures are those of the row above.",
    "fm_f16": "Rows and gradients of Millrace are f16 on the wire, and f32 in table and trainers; the other "
    "figures are those of the row above.",
    "set": "Millrace sets rows through its `assign` optimizer.",
}
FM_TARGET, LEAST_AUC = 5.0, 0.855
FM_MODES = {
    "ahead": "rpc_async, two batches ahead",
    "plain": "rpc_sync",
    "autograd": "distributed autograd and optimizer",
}


def figure(results, row, peer, index):
    """A round's, or None."""
    found = results["rounds"][index].get(row, {}).get(peer)
    if found is None and (peer, row) in INSTEAD:  # marked in tables and explained by NOTES
        found = results["rounds"][index].get(INSTEAD[peer, row], {}).get(peer)
    return found


def spread(values):
    """Median, least and most; None for nothing."""
    return (statistics.median(values), min(values), max(values)) if values else None


def of_row(results, row, peer):
    """Figures and ratios over the rounds; a ratio above 1 says how many times as fast Millrace is."""
    more_is_better = ROWS[row][2]
    values, ratios = [], []
    for index in range(len(results["rounds"])):
        value, ours = figure(results, row, peer, index), figure(results, row, "millrace", index)
        if value is None:
            continue
        values.append(value)
        if ours is not None:
            ratios.append(ours / value if more_is_better else value / ours)
    return spread(values), spread(ratios)


def number(value, unit):
    if unit == "us":
        return (
            f"{value / 1000:.2f} ms"
            if value >= 1000
            else f"{value:.1f} us"
            if value < 100
            else f"{value:.0f} us"
        )
    short = unit.replace("calls/s", "/s")
    if value >= 1e6:
        return f"{value / 1e6:.2f} M{short}" if short == "/s" else f"{value / 1e6:.2f} M {short}"
    if value >= 1e4:
        return f"{value / 1e3:.0f} k{short}" if short == "/s" else f"{value / 1e3:.0f} k {short}"
    return f"{value:.0f} {short}"


def times(ratio):
    return f"{ratio:.0f} x" if ratio >= 10 else f"{ratio:.1f} x" if ratio >= 1.95 else f"{ratio:.2f} x"


def cell(results, row, peer, spreads):
    values, ratios = of_row(results, row, peer)
    if values is None:
        return "-"
    unit = ROWS[row][1]
    text = number(values[0], unit) + ("*" if peer == "redis" and row == "push" else "")
    if spreads:
        text += f" ({number(values[1], unit)} to {number(values[2], unit)})"
    if peer != "millrace" and ratios is not None:
        text += f"; {times(ratios[0])}" + (f" ({times(ratios[1])} to {times(ratios[2])})" if spreads else "")
    return text


def rows_of(results):
    return [
        row
        for row in ROWS
        if of_row(results, row, "millrace")[0] is not None
        or row == "set"
        and of_row(results, row, "redis")[0]
    ]


def peers_of(results):
    return [peer for peer in PEERS if any(of_row(results, row, peer)[0] for row in ROWS)]


def table(results, spreads):
    """Markdown."""
    peers = peers_of(results)
    lines = ["| | " + " | ".join(PEERS[peer] for peer in peers) + " |", "|---" * (len(peers) + 1) + "|"]
    for row in rows_of(results):
        lines.append(
            f"| {ROWS[row][0]} | " + " | ".join(cell(results, row, peer, spreads) for peer in peers) + " |"
        )
    return "\n".join(lines)


def target_lines(results):
    """Whether the targets are met, in words."""
    lines, least_of = [], [min(aucs) for aucs in results["auc"].values() if aucs]
    for peer in ("torch", "torch2"):
        _, ratios = of_row(results, "fm", peer)
        if ratios is None:
            continue
        modes = {
            mode: spread(
                [r[f"fm_{mode}"][peer] for r in results["rounds"] if peer in r.get(f"fm_{mode}", {})]
            )
            for mode in FM_MODES
        }
        ways = [f"{FM_MODES[mode]} {number(v[0], 'samples/s')}" for mode, v in modes.items() if v]
        lines.append(f"FM in {PEERS[peer]}: " + ", ".join(ways))
        is_met = ratios[0] >= FM_TARGET and min(least_of) >= LEAST_AUC
        lines.append(
            f"Target: FM on flights reaches at least {FM_TARGET:.0f} x {PEERS[peer]}'s samples/s at AUC >= "
            f"{LEAST_AUC}: {'passed' if is_met else 'missed'}, {times(ratios[0])} ({times(ratios[1])} to "
            f"{times(ratios[2])})"
        )
    if least_of:
        aucs = (f"{PEERS[peer]} {statistics.median(values):.4f}" for peer, values in results["auc"].items())
        lines.append("AUC: " + ", ".join(aucs))
    return lines


def markdown(results):
    rounds = {row: sum(1 for r in results["rounds"] if r.get(row)) for row in rows_of(results)}
    count = (
        str(min(rounds.values()))
        if len(set(rounds.values())) == 1
        else f"{min(rounds.values())} to {max(rounds.values())}"
    )
    parts = [
        f"{results['machine']}; medians over {count} rounds (least to most), and by how many times Millrace "
        "is faster.",
        table(results, True),
        "\n".join(f"- {NOTES[row]}" for row in rows_of(results) if row in NOTES),
        "\n".join(f"- {PEERS[peer]}: {text}." for peer, text in results["settings"].items() if text),
        "\n".join(f"- {line}." for line in target_lines(results)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def faults(results, wanted):
    """What the last round lacks, in words. wanted: {peer: rows}; each has to have a figure, finite and above
    0."""
    found = []
    for peer, rows in wanted.items():
        for row in rows:
            value = results["rounds"][-1].get(row, {}).get(peer)
            if value is None:
                found.append(f"{peer} has no figure for {row}")
            elif not (math.isfinite(value) and value > 0):
                found.append(f"{peer}'s figure for {row} is {value}")
    return found
