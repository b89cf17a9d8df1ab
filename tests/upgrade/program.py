"""A trainer that every version of the package can run: upgrade.py runs it with the library of one version
against a node of another.

usage: program.py ADDRESS train SEED | dump FILE | make KIND
"""

import sys

import millrace
import numpy as np
from millrace import optim

TABLES = [
    ("sgd", 8, {"optimizer": optim.SGD(lr=0.1)}),
    ("momentum", 8, {"optimizer": optim.SGD(lr=0.1, momentum=0.9), "dtype": "f16"}),
    ("adagrad", 16, {"optimizer": optim.Adagrad(lr=0.1)}),
    ("rowwise", 16, {"optimizer": optim.RowWiseAdagrad(lr=0.1), "dtype": "f16"}),
    ("adam", 8, {"optimizer": optim.Adam(lr=0.01)}),
    ("adamw", 8, {"optimizer": optim.AdamW(lr=0.01), "dtype": "bf16"}),
    ("ftrl", 4, {"optimizer": optim.Ftrl(lr=0.1)}),
    ("lru", 4, {"optimizer": optim.SGD(lr=0.1), "eviction": millrace.eviction.lru(), "capacity_rows": 3000}),
]
KEYS = 2000


def dense(name):
    """An optimizer that versions before 0.3 do not know; theirs do not have the argument."""
    return {
        "dense": lambda: optim.SGD(lr=0.1, weight_decay=0.1, dense=True),
        "adam_step": lambda: optim.Adam(lr=0.1, bias_correction="step"),
    }[name]()


def main():
    address, command = sys.argv[1:3]
    with millrace.Client(address) as client:
        if command == "make":
            client.table(sys.argv[3], 4, optimizer=dense(sys.argv[3]))
            return
        tables = [client.table(name, dim, **options) for name, dim, options in TABLES]
        bias = client.variable("bias", (16,), optimizer=optim.Adam(lr=0.01))
        if command == "train":
            random = np.random.default_rng(int(sys.argv[3]))
            for step in range(3):
                for table, (_, dim, _) in zip(tables, TABLES):
                    keys = np.unique(random.integers(0, KEYS, 500).astype(np.uint64))
                    table.lookup(keys)
                    table.push_gradients(
                        keys, random.standard_normal((len(keys), dim)).astype(np.float32), step=step + 1
                    )
                bias.push_gradient(random.standard_normal(16).astype(np.float32))
            return
        keys = np.arange(KEYS, dtype=np.uint64)
        rows = {table.name: np.asarray(table.lookup(keys, read_only=True)) for table in tables}
        np.savez(sys.argv[3], bias=np.asarray(bias.pull()), **rows)


if __name__ == "__main__":
    main()
