"""The flights as trainer_client/hub/reader_flights.c makes them: a label, 13 slots of one key each, and the
same held-out part."""
import lzma
import pathlib

import numpy

DATA = pathlib.Path(__file__).resolve().parents[3] / "trainer_client/examples/data/flights-3m.csv.xz"
LATE_MINUTES, HELD_OUT_SHARE, SEED = 15, 0.2, 1
SPLIT_SALT = 0x73706C6974
ORIGIN, DESTINATION, HOUR, DAY = range(4)
SLOTS = (
    (ORIGIN,),
    (DESTINATION,),
    (ORIGIN, DESTINATION),
    (HOUR,),
    (DAY,),
    (ORIGIN, HOUR),
    (DESTINATION, HOUR),
    (ORIGIN, DESTINATION, HOUR),
    (ORIGIN, DAY),
    (DESTINATION, DAY),
    (HOUR, DAY),
    (ORIGIN, HOUR, DAY),
    (DESTINATION, HOUR, DAY),
)


def text_of(lines_max=None):
    """The file, or its first lines."""
    with lzma.open(DATA, "rt") as file:
        text = file.read()
    return text if lines_max is None else "".join(line + "\n" for line in text.splitlines()[:lines_max])


def mix(a, b):
    """hub_mix() of trainer_client/hub/samples/permutation.c; b: u64 [n]."""
    with numpy.errstate(over="ignore"):
        h = numpy.uint64(a * 0x9E3779B97F4A7C15 & (1 << 64) - 1) + b + numpy.uint64(0x632BE59BD9B4E019)
        for _ in range(2):
            h ^= h >> numpy.uint64(33)
            h *= numpy.uint64(0xFF51AFD7ED558CCD)
            h ^= h >> numpy.uint64(33)
            h *= numpy.uint64(0xC4CEB9FE1A85EC53)
            h ^= h >> numpy.uint64(33)
            h += b
    return h


def held_out(line_numbers):
    """hub_is_held_out(): bool [n]; lines count from 1, the header's included."""
    return (
        mix(SEED ^ SPLIT_SALT, line_numbers.astype(numpy.uint64)) >> numpy.uint64(11)
    ) * 2.0**-53 < HELD_OUT_SHARE


def read(lines_max=None):
    """Keys i64 [samples, 13], numbered from 0 on; labels f32 [samples]; held out bool [samples]; how many
    keys there are."""
    rows = [line.split(",") for line in text_of(lines_max).splitlines()[1:]]
    date, delay, _, origin, destination = (numpy.array(column) for column in zip(*rows))
    parts = [origin, destination, [d[4:6] for d in date], [d[:4] for d in date]]
    codes = [numpy.unique(part, return_inverse=True)[1].astype(numpy.int64) for part in parts]
    keys, count = numpy.empty((len(rows), len(SLOTS)), dtype=numpy.int64), 0
    for slot, members in enumerate(SLOTS):
        value = numpy.zeros(len(rows), dtype=numpy.int64)
        for member in members:
            value = value * 4096 + codes[member]
        names, keys[:, slot] = numpy.unique(value, return_inverse=True)
        keys[:, slot] += count
        count += len(names)
    labels = (delay.astype(numpy.int64) > LATE_MINUTES).astype(numpy.float32)
    return keys, labels, held_out(numpy.arange(2, len(rows) + 2)), count


def auc(scores, labels):
    """Area under the ROC curve; ties count half."""
    order = numpy.argsort(scores, kind="stable")
    _, first, tied = numpy.unique(scores[order], return_index=True, return_counts=True)
    ranks = numpy.repeat(first + (tied + 1) / 2, tied)
    positive = labels[order] > 0.5
    positives = int(positive.sum())
    return (ranks[positive].sum() - positives * (positives + 1) / 2) / (positives * (len(labels) - positives))
