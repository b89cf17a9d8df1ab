#!/usr/bin/env python3
"""Joins the timelines of a server, a hub and trainers, and shows where the time goes.

usage: timeline.py TRACE.json... [--out ALL.json] [--skip SHARE]

The programs write timelines when they are asked to: `millraced --set node.trace=FILE`,
`millrace-hub --trace FILE`, `fm train --trace FILE`. Prints, for each track, the share of the time that each
kind of span takes and its median length, in Markdown, and then the course of the median batch: when each of
its spans begins and ends, from the beginning of its build in the hub. --out writes one file of all of them,
which https://ui.perfetto.dev shows.
"""
import argparse
import collections
import json
import statistics
import sys


def read(paths):
    """Events of all files; the names of processes and of their tracks."""
    spans, names = [], {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for event in json.load(file):
                if event["ph"] == "X":
                    spans.append(event)
                else:
                    names[event["pid"], event.get("tid")] = event["args"]["name"]
    return spans, names


def title(event, names, order):
    """ "hub, feeding"; programs of one name are numbered."""
    process = names[event["pid"], None]
    alike = [pid for pid in order if names[pid, None] == process]
    number = f" {alike.index(event['pid']) + 1}" if len(alike) > 1 else ""
    track = names.get((event["pid"], event["tid"]))
    return f"{process}{number}" + (f", {track}" if track else "")


def shared_part(spans, skip):
    """From when on all tracks have spans, and until when; without `skip` of it at both ends."""
    tracks = collections.defaultdict(list)
    for event in spans:
        tracks[event["pid"], event["tid"]].append(event)
    begin = max(min(e["ts"] for e in events) for events in tracks.values())
    end = min(max(e["ts"] + e["dur"] for e in events) for events in tracks.values())
    return begin + skip * (end - begin), end - skip * (end - begin)


def shares(spans, names, order, begin, end):
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for event in spans:
        if begin <= event["ts"] < end:
            found[title(event, names, order)][event["name"]].append(event["dur"])
    print("| who | what | times | median | share of the time |\n|---|---|---|---|---|")
    for who in sorted(found):
        for what, lengths in sorted(found[who].items(), key=lambda item: -sum(item[1])):
            share = sum(lengths) / (end - begin)
            print(f"| {who} | {what} | {len(lengths)} | {statistics.median(lengths):.0f} us | {share:.1%} |")
        rest = 1 - sum(sum(lengths) for lengths in found[who].values()) / (end - begin)
        print(f"| {who} | none of these | | | {rest:.1%} |")


def course(spans, names, order, begin, end):
    """Medians over the batches that have all their spans in the shared part."""
    batches = collections.defaultdict(list)
    for event in spans:
        if "args" in event:
            batches[event["args"]["batch"]].append(event)
    places = collections.defaultdict(list)
    for events in batches.values():
        start = next((e["ts"] for e in events if e["name"] == "build"), None)
        if start is None or start < begin or max(e["ts"] for e in events) > end:
            continue
        for event in events:
            who = names[event["pid"], None]
            places[who, event["name"]].append((event["ts"] - start, event["ts"] + event["dur"] - start))
    print("\n| a batch's | begins at | ends at |\n|---|---|---|")
    middle = {key: [statistics.median(column) for column in zip(*value)] for key, value in places.items()}
    for (who, what), (starts, ends) in sorted(middle.items(), key=lambda item: item[1]):
        print(f"| {who}: {what} | {starts:.0f} us | {ends:.0f} us |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("traces", nargs="+", metavar="TRACE.json")
    parser.add_argument("--out", metavar="ALL.json", help="one file of all of them")
    parser.add_argument(
        "--skip", type=float, default=0.1, help="share of the time left out at both ends (default 0.1)"
    )
    arguments = parser.parse_args()
    spans, names = read(arguments.traces)
    if not spans:
        sys.exit("timeline: no spans in " + ", ".join(arguments.traces))
    order = sorted({event["pid"] for event in spans})
    begin, end = shared_part(spans, arguments.skip)
    if end <= begin:
        sys.exit("timeline: the traces have no time in common")
    shares(spans, names, order, begin, end)
    course(spans, names, order, begin, end)
    if arguments.out:
        events = []
        for path in arguments.traces:
            with open(path, encoding="utf-8") as file:
                events += json.load(file)
        with open(arguments.out, "w", encoding="utf-8") as out:
            json.dump(events, out)


if __name__ == "__main__":
    main()
