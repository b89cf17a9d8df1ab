#!/usr/bin/env python3
"""Keeps what meson's test logs say of one run of the suite, and sums it up.

usage: test_results.py add RESULTS STAGE BUILD
           adds BUILD/meson-logs/testlog*.json, and removes these; prints the names of failed tests that are
           to be run once more, a line each
       test_results.py summary RESULTS
           prints failures, flaky tests, the slowest, and "N passed, N failed, N skipped"; exit status 1
           unless the run is good

A test that failed and then passed alone is flaky: a fault of the test or of the product, printed with its
first failure, which does not fail the run. Unit tests (suites unit and fuzz) depend on nothing but
themselves: they are not run again, and more than FLAKY_MAX flaky tests fail the run, too. RESULTS has a JSON
object a line.
"""
import glob
import json
import os
import re
import signal
import sys

FLAKY_MAX = 3
SLOWEST = 20
FIRST_ERRORS = 10
LAST_LINES = 30
ERROR = re.compile(r"\[\s*(ERROR|LINE|FAILED)\s*\]|\berror:|^(FAIL|ERROR): |\bERROR: |Error: ")
PASSED = ("OK", "EXPECTEDFAIL")
SUITES_RUN_ONCE = {"unit", "fuzz"}


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


def suites_by_test(build):
    """The suites of each test of a build directory, without the project's name."""
    with open(os.path.join(build, "meson-info", "intro-tests.json"), encoding="utf-8") as tests:
        return {t["name"]: {suite.split(":")[-1] for suite in t["suite"]} for t in json.load(tests)}


def read_results(path):
    """The results so far; none when nothing was added."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def merge(results):
    """One result for each test of each stage: the last, with what the first failure printed when there was
    one."""
    merged = {}
    for result in results:
        key = (result["stage"], result["name"])
        first = merged.get(key)
        if first is None:
            merged[key] = dict(result, flaky=False)
        elif first["result"] not in PASSED and result["result"] in PASSED:
            first.update(result=result["result"], flaky=True)
    return list(merged.values())


def is_failure(result):
    """Whether a test failed, timed out or could not be run."""
    return result["result"] not in PASSED + ("SKIP",)


def add(path, stage, build):
    """Adds a build directory's logs; prints which tests are to be run again."""
    suites = suites_by_test(build)
    added = []
    for log in sorted(glob.glob(os.path.join(build, "meson-logs", "testlog*.json"))):
        with open(log, encoding="utf-8") as lines:
            for test in map(json.loads, lines):
                name = test["name"].split(" / ")[-1]  # "millrace:unit / ps/table" in the log
                result = {
                    "stage": stage,
                    "name": name,
                    "result": test["result"],
                    "seconds": test["duration"],
                    "once": bool(suites[name] & SUITES_RUN_ONCE),
                }
                if is_failure(result):
                    result.update(ending=ending(test), excerpt=excerpt(test))
                added.append(result)
        os.remove(log)
    with open(path, "a", encoding="utf-8") as results:
        results.writelines(json.dumps(result) + "\n" for result in added)
    everything = merge(read_results(path))
    failures = [r for r in everything if is_failure(r)]
    flaky = [r for r in everything if r["flaky"]]
    # The run has failed already: nothing to be gained.
    if any(r["once"] for r in failures) or len(failures) + len(flaky) > FLAKY_MAX:
        return
    for result in failures:
        if result["stage"] == stage:
            print(result["name"])


def summary(path):
    """Prints how the run went; returns the exit status."""
    results = merge(read_results(path))
    failures = [r for r in results if is_failure(r)]
    flaky = [r for r in results if r["flaky"]]
    skipped = sum(r["result"] == "SKIP" for r in results)
    passed = len(results) - len(failures) - skipped
    print(f"the {min(SLOWEST, len(results))} slowest:")
    for result in sorted(results, key=lambda r: -r["seconds"])[:SLOWEST]:
        print(f"    {result['seconds']:6.1f} s  {result['name']} ({result['stage']})")
    for result in failures:
        print(
            f"failed: {result['name']} ({result['stage']}; {result['ending']})\n{result['excerpt']}", end=""
        )
    for result in flaky:
        print(f"flaky: {result['name']} ({result['stage']}; first {result['ending']}, then passed alone)")
        print(result["excerpt"], end="")
    if len(flaky) > FLAKY_MAX:
        print(f"{len(flaky)} tests are flaky, more than {FLAKY_MAX}: the run has failed")
    if not results:
        print("no test ran")
    print(f"{passed} passed, {len(failures)} failed, {skipped} skipped")
    return 1 if failures or len(flaky) > FLAKY_MAX or passed == 0 else 0


def main(arguments):
    """Does what the command line says; returns the exit status."""
    if len(arguments) == 4 and arguments[0] == "add":
        add(*arguments[1:])
        return 0
    if len(arguments) == 2 and arguments[0] == "summary":
        return summary(arguments[1])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
