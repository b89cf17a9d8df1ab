#!/usr/bin/env python3
"""The table in docs/optimizers.md: what each optimizer makes of the flights of the demo.

usage: tests/bench/optimizers.py [--search] [--optimizer NAME]... [--build DIR]     needs root; build first

One server in a namespace of its own, a hub and one trainer in another, as in the demo: a factorization
machine of 8 factors, two passes over a random 80 % of the flights, scored on the other 20 %. Prints a line of
JSON per optimizer, then the table.

--search finds each optimizer's settings first: it trains on 80 % of the training part and scores on the rest
of that part. The flights that the table is scored on have no say in it. What it found last is in CHOSEN
below.
"""
import argparse
import itertools
import json
import lzma
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "trainer_client/examples/data/flights-3m.csv.xz"
SERVER_IP, CLIENT_IP, HUB = "10.77.0.1", "10.77.0.2", "10.77.0.2:7800"
PLAN_SEED, HELD_OUT_SHARE, SPLIT_SALT, MASK = 1, 0.2, 0x73706C6974, (1 << 64) - 1

# optimizer: (learning rate, weight decay, arguments beyond the example's defaults), as --search found them
CHOSEN = {
    "sgd": (0.02, 0.0, []),
    "momentum": (0.0014, 0.0, []),  # 0.002 is a little better on most runs, and diverges on others
    "adagrad": (0.05, 0.02, []),
    "rowwise_adagrad": (0.1, 0.05, []),
    "adam": (0.005, 0.0, []),
    "adamw": (0.005, 0.1, []),
    "ftrl": (0.1, 0.02, []),
    "group_ftrl": (0.1, 0.05, []),
}

# what --search tries
RATES = {
    "sgd": [0.005, 0.01, 0.02, 0.05],
    "momentum": [0.0005, 0.001, 0.0014, 0.002, 0.003],
    "adagrad": [0.02, 0.05, 0.1, 0.2],
    "rowwise_adagrad": [0.02, 0.05, 0.1, 0.2],
    "adam": [0.001, 0.002, 0.005, 0.01, 0.02],
    "adamw": [0.001, 0.002, 0.005, 0.01, 0.02],
    "ftrl": [0.05, 0.1, 0.2, 0.4],
    "group_ftrl": [0.05, 0.1, 0.2, 0.4],
}
DECAYS = {"adamw": [0.0, 0.1, 1.0, 5.0]}
DECAYS_ELSE = [0.0, 0.02, 0.05, 0.1]


def mix(a, b):
    """hub_mix() of trainer_client/hub/samples/permutation.c."""
    h = (a * 0x9E3779B97F4A7C15 + b + 0x632BE59BD9B4E019) & MASK
    for _ in range(2):
        h ^= h >> 33
        h = h * 0xFF51AFD7ED558CCD & MASK
        h ^= h >> 33
        h = h * 0xC4CEB9FE1A85EC53 & MASK
        h ^= h >> 33
        h = (h + b) & MASK
    return h


def is_held_out(line_number):
    """hub_is_held_out(); lines count from 1."""
    return (mix(PLAN_SEED ^ SPLIT_SALT, line_number) >> 11) * 2.0**-53 < HELD_OUT_SHARE


class Node:
    """Two namespaces with a cable, a server at one end, a hub at the other; gone at the end, whatever
    happens."""

    def __init__(self, build, directory):
        self.build, self.directory = build, directory
        self.spaces = [f"millrace-opt-{side}{os.getpid()}" for side in "sc"]
        self.processes = []

    def __enter__(self):
        server, client = self.spaces
        for space in self.spaces:
            self.ip("netns", "add", space)
            self.ip("-n", space, "link", "set", "lo", "up")
        self.ip(
            "-n", server, "link", "add", "server0", "type", "veth", "peer", "name", "client0", "netns", client
        )
        self.ip("-n", server, "link", "set", "server0", "up")
        self.ip("-n", client, "link", "set", "client0", "up")
        self.ip("-n", client, "addr", "add", CLIENT_IP + "/24", "dev", "client0")
        subprocess.run(
            ["ip", "netns", "exec", client, "ethtool", "-K", "client0", "tx", "off", "gso", "off"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return self

    def __exit__(self, *_):
        self.stop()
        for space in self.spaces:
            subprocess.run(["ip", "netns", "del", space], check=False)

    @staticmethod
    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True)

    def spawn(self, space, *command, **options):
        process = subprocess.Popen(["ip", "netns", "exec", space, *map(str, command)], **options)
        self.processes.append(process)
        return process

    def start(self):
        """A server without any table, and a hub without any plan."""
        key = self.directory / "key"
        if not key.exists():
            key.touch(mode=0o600)
            key.write_text(os.urandom(32).hex())
        log = open(self.directory / "log", "a", encoding="utf-8")
        server = self.spawn(
            self.spaces[0],
            self.build / "ps/millraced",
            "--config",
            ROOT / "configs/demo.conf",
            *itertools.chain.from_iterable(
                ("--set", setting)
                for setting in (
                    "port.device=server0",
                    f"port.ipv4={SERVER_IP}/24",
                    f"node.key_file={key}",
                    f"node.name=opt-{os.getpid()}",
                    f"checkpoint.directory={self.directory}/checkpoints",
                )
            ),
            "--restore",
            "none",
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        if not any(line.startswith("millraced: ready") for line in server.stdout):
            sys.exit(
                "optimizers: the server did not start: " + pathlib.Path(log.name).read_text(encoding="utf-8")
            )
        self.spawn(
            self.spaces[1],
            self.build / "trainer_client/hub/millrace-hub",
            "--listen",
            HUB,
            "--server",
            SERVER_IP,
            "--key-file",
            key,
            "--allow",
            "/",
            stderr=log,
        )
        log.close()

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
            process.wait()
        self.processes = []

    def fm(self, subcommand, data, options):
        command = [
            "ip",
            "netns",
            "exec",
            self.spaces[1],
            self.build / "trainer_client/examples/fm",
            subcommand,
            "--hub",
            HUB,
            "--server",
            SERVER_IP,
            "--key-file",
            self.directory / "key",
            "--data",
            data,
            "--format",
            "flights",
            "--seed",
            str(PLAN_SEED),
            "--held-out",
            str(HELD_OUT_SHARE),
            "--quiet",
            *options,
        ]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        if "diverged" in done.stderr:
            return {"auc": 0.5, "logloss": math.inf, "samples": 0}
        if done.returncode != 0:
            sys.exit(f"optimizers: fm {subcommand} {' '.join(options)}: {done.stderr}")
        return json.loads(re.sub(r"-?\bnan\b", "NaN", done.stdout))  # training that diverged


def train(node, data, optimizer, rate, decay, extra):
    options = ["--optimizer", optimizer, "--learning-rate", str(rate), "--weight-decay", str(decay), *extra]
    node.start()
    node.fm("train", data, options)
    score = node.fm("evaluate", data, options)
    node.stop()
    result = {
        "optimizer": optimizer,
        "learning_rate": rate,
        "weight_decay": decay,
        "options": extra,
        "auc": score["auc"],
        "logloss": score["logloss"],
        "samples": score["samples"],
    }
    print(json.dumps(result), flush=True)
    return result


def search(node, data, optimizer):
    """The settings with the least log loss: first the learning rate, then, at that rate, the weight decay."""
    decays = DECAYS.get(optimizer, DECAYS_ELSE)
    tried = [train(node, data, optimizer, rate, decays[1], []) for rate in RATES[optimizer]]
    best = min(tried, key=lambda r: r["logloss"])
    tried += [
        train(node, data, optimizer, best["learning_rate"], decay, [])
        for decay in decays
        if decay != decays[1]
    ]
    best = min(tried, key=lambda r: r["logloss"])
    return best["learning_rate"], best["weight_decay"], []


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--search", action="store_true", help="find the settings first")
    parser.add_argument(
        "--optimizer", action="append", choices=RATES, help="this one (may be repeated; default: all)"
    )
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        data, training = directory / "flights.csv", directory / "training.csv"
        lines = lzma.open(DATA).read().splitlines(keepends=True)
        data.write_bytes(b"".join(lines))
        training.write_bytes(
            b"".join(line for number, line in enumerate(lines, 1) if not is_held_out(number))
        )
        with Node(arguments.build.resolve(), directory) as node:
            for optimizer in arguments.optimizer or RATES:
                settings = search(node, training, optimizer) if arguments.search else CHOSEN[optimizer]
                if arguments.search:
                    print(f"# {optimizer}: {settings}", flush=True)
                results.append(train(node, data, optimizer, *settings))
    print("\n| optimizer | learning rate | weight decay | AUC | log loss |\n|---|---|---|---|---|")
    for r in results:
        print(
            f"| {r['optimizer']} | {r['learning_rate']} | {r['weight_decay']} | {r['auc']:.4f} | "
            f"{r['logloss']:.4f} |"
        )


if __name__ == "__main__":
    main()
