"""Serves a real store until its standard input is closed, for scripts/demo.sh and make bench.

usage: serve.py s3|s3proxy|hdfs DIRECTORY NAMESPACE

In that network namespace, with its files in DIRECTORY. Prints the URL of an empty directory there; the keys
of S3 are test:tester and testing.
"""
from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from cable import enter  # noqa: E402
from stores import S3, Certificate, Hdfs, S3Proxy, Store, find_classes, why_no_swift  # noqa: E402


def start(kind: str, directory: str, namespace: str) -> Store:
    """Maven works outside of the namespace, all else in it."""
    name = {"hdfs": "hadoop", "s3proxy": "s3proxy"}.get(kind)
    classes, why = find_classes(name) if name else ("", why_no_swift(directory))
    if why:
        sys.exit(why)
    enter(f"/run/netns/{namespace}")
    if kind == "hdfs":
        return Hdfs(directory, classes, Certificate(directory))
    return S3Proxy(directory, classes, Certificate(directory)) if name else S3(directory)


def main() -> None:
    """As the usage says."""
    store = start(*sys.argv[1:])
    print(store.url("demo"), flush=True)
    sys.stdin.read()
    store.close()


if __name__ == "__main__":
    main()
