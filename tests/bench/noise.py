#!/usr/bin/env python3
"""Takes half of a CPU, as a neighbour might, until its standard input closes, at most for an hour.

It spins for 5 ms, and sleeps for 5 ms. The kernel chooses the CPU.
"""
import select
import sys
import time

SPAN_SECONDS, SECONDS_MAX = 0.005, 3600


def main():
    end = time.monotonic() + SECONDS_MAX
    while time.monotonic() < end:
        spin_until = time.monotonic() + SPAN_SECONDS
        while time.monotonic() < spin_until:
            pass
        if select.select([sys.stdin], [], [], SPAN_SECONDS)[0]:
            return


if __name__ == "__main__":
    main()
