#!/usr/bin/env python3
"""Millrace beside PyTorch RPC (1.13 and 2), gRPC and Redis: the same work over the same kind of cable, one
CPU for the server and one for its clients.

Each round runs every peer once, in another order; figures are medians over the rounds, ratios are taken
within a round. Writes build/bench/peers.json, .md and .svg, and prints the tables. Needs root. What it
measures and how: docs/peers.md.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE))
SKIPPED = 77
try:
    import flights
except ImportError:
    print(
        "peers: no python3-numpy, or not Debian's /usr/bin/python3: scripts/setup.sh peers installs it",
        file=sys.stderr,
    )
    sys.exit(SKIPPED)
import plot  # noqa: E402
import report  # noqa: E402
import run  # noqa: E402
import servers  # noqa: E402

QUICK_SECONDS, QUICK_LINES, QUICK_AUC = 0.05, 40000, 0.6


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default="build", help="build directory (default build)")
    parser.add_argument(
        "--driver", default="socket", help="of Millrace's port: socket, af_xdp or af_packet (default socket)"
    )
    parser.add_argument("--mtu", type=int, default=3498, help="of the veth pair (default 3498)")
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="that each call is measured for in a round (default 1)"
    )
    parser.add_argument(
        "--rows", default=",".join(report.ROWS), help="some of " + ", ".join(report.ROWS) + " (default all)"
    )
    parser.add_argument(
        "--peers",
        default=",".join(report.PEERS),
        help="some of " + ", ".join(report.PEERS) + " (default all)",
    )
    parser.add_argument(
        "--merge",
        action="store_true",
        help="add the rounds to those saved before, of this machine and these settings",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one short round: whether all of it works, in figures worth nothing",
    )
    parser.add_argument("--machine", help="what the tables call this machine (default: from /proc/cpuinfo)")
    parser.add_argument("--out", help="directory for the results (default BUILD/bench)")
    arguments = parser.parse_args()
    for option, known in (("rows", report.ROWS), ("peers", report.PEERS)):
        chosen = getattr(arguments, option).split(",")
        unknown = [word for word in chosen if word not in known]
        if unknown:
            parser.error(f"--{option}: '{unknown[0]}' is none of {', '.join(known)}")
        setattr(arguments, option, chosen)
    if arguments.quick:
        arguments.rounds, arguments.seconds = 1, QUICK_SECONDS
    return arguments


def machine(name, mtu, driver):
    kernel = os.uname().release.split("-")[0]
    return (
        f"{name or run.cpu_name()}, {os.cpu_count()} CPUs, Linux {kernel}, {driver} on a veth pair, MTU {mtu}"
    )


class Rounds:
    def __init__(self, arguments, directory):
        self.arguments, self.directory = arguments, directory
        arguments.runs = arguments.garbage = 0
        arguments.checkpoint_gb = 0.0
        bench = run.Bench(arguments)
        made = [
            peer(bench, arguments.quick, directory) for peer in servers.ALL if peer.name in arguments.peers
        ]
        self.missing = {peer.name: peer.why_not() for peer in made}
        self.peers = [peer for peer in made if self.missing[peer.name] is None]
        self.results = {
            "machine": machine(arguments.machine, arguments.mtu, arguments.driver),
            "settings": {},
            "rounds": [],
            "auc": {},
        }

    def load(self, path):
        """What was saved before."""
        with open(path, encoding="utf-8") as saved:
            results = json.load(saved)
        if results["machine"] != self.results["machine"]:
            raise RuntimeError(
                f"{path} is of another machine or cable ({results['machine']}): run without --merge to "
                "replace it"
            )
        self.results = results

    def flights(self):
        """The data as a file, for the hub."""
        path = os.path.join(self.directory, "flights.csv")
        if not os.path.exists(path):
            with open(path, "w", encoding="ascii") as out:
                out.write(flights.text_of(QUICK_LINES if self.arguments.quick else None))
        return path

    def measure(self, peer):
        """{row: figure} of a peer in this round."""
        rows, found = self.arguments.rows, {}
        calls = [row for row in servers.CALL_ROWS if row in rows]
        if "lookup_fed" in calls and "lookup" not in calls:
            calls.append("lookup")
        if calls:
            found.update(peer.calls(calls, self.arguments.seconds))
        if {"fm", "fm_f16"} & set(rows) and getattr(peer, "fm", None):
            least = QUICK_AUC if self.arguments.quick else report.LEAST_AUC
            data = (
                self.flights() if peer.name == "millrace" else QUICK_LINES if self.arguments.quick else None
            )
            result = peer.fm(data, least)
            self.results["auc"].setdefault(peer.name, []).append(result.pop("auc"))
            found.update(result)
        if "mnist" in rows and getattr(peer, "mnist", None):
            rate = peer.mnist()
            if rate is not None:
                found["mnist"] = rate
        self.results["settings"][peer.name] = peer.settings or self.results["settings"].get(peer.name, "")
        return found

    def round(self, index):
        """Every peer once; what came back from all of them must be the same."""
        figures, checks = {}, {}
        turn = index % len(self.peers)
        for peer in self.peers[turn:] + self.peers[:turn]:
            print(f"peers: round {index + 1}: {peer.title}", file=sys.stderr, flush=True)
            found = self.measure(peer)
            for row, checksum in found.pop("checks", {}).items():
                checks.setdefault(row, {})[peer.name] = checksum
            for row, value in found.items():
                figures.setdefault(row, {})[peer.name] = value
        for row, sums in checks.items():
            if len(set(sums.values())) > 1:
                raise RuntimeError(f"{row}: peers answered differently: {sums}")
        self.results["rounds"].append(figures)


def save(results, directory):
    os.makedirs(directory, exist_ok=True)
    for name, text in (
        ("peers.json", json.dumps(results, indent=1) + "\n"),
        ("peers.md", report.markdown(results)),
        ("peers.svg", plot.svg(results)),
    ):
        with open(os.path.join(directory, name), "w", encoding="utf-8") as out:
            out.write(text)


def main():
    arguments = read_arguments()
    if os.geteuid() != 0:
        sys.exit("peers: needs root for network namespaces and DPDK ports; run it through sudo")
    if os.cpu_count() < 2:
        sys.exit("peers: needs two CPUs, one for the server and one for the clients")
    if arguments.quick:
        run.FIRST.clear()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # namespaces and programs go on the way out
    out = arguments.out or os.path.join(arguments.build, "bench")
    directory = tempfile.mkdtemp(prefix="millrace-peers-")
    try:
        rounds = Rounds(arguments, directory)
        for name, why in rounds.missing.items():
            if why is not None:
                print(f"peers: {report.PEERS[name]} left out: {why}", file=sys.stderr)
        if not any(peer.name not in ("millrace", "python") for peer in rounds.peers):
            print(
                "peers: nothing to stand beside Millrace: scripts/setup.sh peers installs them",
                file=sys.stderr,
            )
            sys.exit(SKIPPED)
        saved = os.path.join(out, "peers.json")
        if arguments.merge and os.path.exists(saved):
            rounds.load(saved)
        with run.session_first():
            for _ in range(arguments.rounds):
                rounds.round(len(rounds.results["rounds"]))
        lacking = report.faults(
            rounds.results,
            {peer.name: [row for row in peer.rows() if row in arguments.rows] for peer in rounds.peers},
        )
        if lacking:
            raise RuntimeError("; ".join(lacking))
    except (RuntimeError, subprocess.SubprocessError, OSError) as failure:
        sys.exit(f"peers: {failure}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    save(rounds.results, out)
    print(report.markdown(rounds.results))
    print("For the README:\n\n" + report.table(rounds.results, False))


if __name__ == "__main__":
    main()
