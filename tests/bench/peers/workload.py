"""The work of workload.h for peers in Python; the same bits."""
import numpy

KEYS, ROWS, DIM, BAGS = 163840, 13312, 16, 512
SGD_RATE = 0.125
RATE, EPSILON = 0.1, 1e-8  # Adagrad's; its accumulators start at 0


def row_values(keys):
    """Rows of the table: f32 [len(keys), 16]."""
    keys = numpy.asarray(keys, dtype=numpy.int64)
    elements = numpy.arange(DIM, dtype=numpy.int64)
    return (((keys[:, None] * 31 + elements * 7) % 2048) / 1024.0 - 1.0).astype(numpy.float32)


def key_range(first, end):
    return numpy.arange(first, end, dtype=numpy.int64)


def make_keys():
    """i64 [13312], with some repeated."""
    keys, state = [], 1
    for _ in range(ROWS):
        state = (state * 6364136223846793005 + 1442695040888963407) & (1 << 64) - 1
        keys.append((state >> 33) % KEYS)
    return numpy.array(keys, dtype=numpy.int64)


def gradients():
    """f32 [13312, 16]."""
    i, d = numpy.arange(ROWS)[:, None], numpy.arange(DIM)
    return (((i * 5 + d) % 7 - 3) / 256.0).astype(numpy.float32)


def new_rows(keys):
    """What `set` writes: f32 [13312, 16]."""
    return -row_values(keys + 1)


def sums(keys):
    """Of bags of 26 keys: f32 [512, 16]."""
    return row_values(keys).reshape(BAGS, -1, DIM).sum(1)


def after_sgd(keys):
    """The keys' rows after one push of the gradients onto the table's."""
    total = numpy.zeros((KEYS, DIM), dtype=numpy.float32)
    numpy.add.at(total, keys, gradients())
    return row_values(keys) - SGD_RATE * total[keys]


def after_adagrad(keys):
    """The keys' rows after one push of the gradients, repeated keys summed, onto rows of zeros."""
    total = numpy.zeros((KEYS, DIM), dtype=numpy.float32)
    numpy.add.at(total, keys, gradients())
    return -RATE * total[keys] / (numpy.abs(total[keys]) + EPSILON)


def checksum(values):
    """FNV-1a over the floats' bits, as work_checksum() has it."""
    value = 0xCBF29CE484222325
    for byte in numpy.ascontiguousarray(values, dtype=numpy.float32).tobytes():
        value = (value ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return f"{value:016x}"
