#!/usr/bin/env python3
"""Prints how many tests of a meson testlog.json passed, failed and were skipped.

usage: count_tests.py LOG [FAILURES]

FAILURES, where given, gets each failed test's name appended, with the first errors and the last lines of what
it printed.
"""
import json
import re
import signal
import sys

FIRST_ERRORS = 10
LAST_LINES = 30
ERROR = re.compile(r"\[\s*(ERROR|LINE|FAILED)\s*\]|\berror:|^(FAIL|ERROR): |\bERROR: |Error: ")


def excerpt(test):
    """What tells of the failure: the first errors, which leaks bury, and the end, each line indented."""
    lines = (test.get("stdout") or "").splitlines() + (test.get("stderr") or "").splitlines()
    first = [line for line in lines[:-LAST_LINES] if ERROR.search(line)][:FIRST_ERRORS]
    return "".join(f"    {line}\n" for line in first + lines[-LAST_LINES:])


def ending(test):
    """How it ended: a crash may have swallowed what the test had to say."""
    code = test.get("returncode", 0)
    if test["result"] != "FAIL":
        return test["result"]
    if -code in signal.valid_signals():
        return f"FAIL, killed by {signal.strsignal(-code)}"
    return f"FAIL, exit status {code}"


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
            failures.append(f"failed: {test['name']} ({ending(test)})\n{excerpt(test)}")
print(counts["passed"], counts["failed"], counts["skipped"])
if len(sys.argv) > 2:
    with open(sys.argv[2], "a", encoding="utf-8") as out:
        out.writelines(failures)
