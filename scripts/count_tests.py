#!/usr/bin/env python3
"""Prints how many tests of a meson testlog.json passed, failed and were skipped.

usage: count_tests.py LOG [FAILURES]

FAILURES, where given, gets each failed test's name with the last lines of what it printed appended.
"""
import json
import sys

LAST_LINES = 30


def last_lines(test):
    """The end of what a test printed, each line indented."""
    lines = (test.get("stdout") or "").splitlines() + (test.get("stderr") or "").splitlines()
    return "".join(f"    {line}\n" for line in lines[-LAST_LINES:])


counts = {"passed": 0, "failed": 0, "skipped": 0}
failures = []
with open(sys.argv[1], encoding="utf-8") as log:
    for line in log:
        test = json.loads(line)
        result = test["result"]
        if result in ("OK", "EXPECTEDFAIL"):
            counts["passed"] += 1
        elif result == "SKIP":
            counts["skipped"] += 1
        else:
            counts["failed"] += 1
            failures.append(f"failed: {test['name']} ({result})\n{last_lines(test)}")
print(counts["passed"], counts["failed"], counts["skipped"])
if len(sys.argv) > 2:
    with open(sys.argv[2], "a", encoding="utf-8") as out:
        out.writelines(failures)
