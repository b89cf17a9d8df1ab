"""Sample files for a hub, in Criteo's format."""
from __future__ import annotations

SLOTS, DENSE = 26, 13


def write(path: str, count: int, first: int = 0) -> None:
    """Samples [first, first + count), behind those that are there if it is not the first. The first dense
    value is log(1 + the sample's number); every third label is 1."""
    with open(path, "a" if first else "w", encoding="ascii") as out:
        for i in range(first, first + count):
            dense = (str(i + d) for d in range(DENSE))
            categories = (f"{i * (slot + 1) % (7 + slot * slot):08x}" for slot in range(SLOTS))
            out.write("\t".join((str(int(i % 3 == 0)), *dense, *categories)) + "\n")
