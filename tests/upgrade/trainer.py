"""A trainer for rolling.py, which every version of the package since 0.3 can run: trainer.py SERVERS TABLE

Pushes to a table of its own and to a variable until its standard input ends, and prints the step after each
push. Then it checks the rows, bit for bit: gradients are fractions, so their order shows.
"""

import select
import sys
import time

import millrace
import numpy as np
from millrace import optim

KEYS, DIM, VALUES = 600, 4, 3000


def main() -> None:
    servers, name = sys.argv[1:3]
    longest_s = 0.0
    with millrace.Client(servers, deadline_s=120, connect_s=60, replay=True) as client:
        table = client.table(name, DIM, optimizer=optim.SGD(lr=1.0))
        variable = client.variable(f"{name}/v", (VALUES,), optimizer=optim.SGD(lr=1.0), range_values=500)
        keys = np.arange(KEYS, dtype=np.uint64) * 2654435761 + len(name)
        rows = np.array(table.lookup(keys), dtype=np.float32)
        values = np.array(variable.pull(), dtype=np.float32)
        at = np.arange(KEYS, dtype=np.float32)[:, None] + np.arange(DIM, dtype=np.float32)
        step = 0
        while not select.select([sys.stdin], [], [], 0)[0]:
            step += 1
            gradients = (np.float32(1) / (np.float32(step) + at)).astype(np.float32)
            of_variable = (np.float32(1) / np.arange(3 * step, 3 * step + VALUES)).astype(np.float32)
            begun = time.monotonic()
            table.push_gradients(keys, gradients, step=step)
            variable.push_gradient(of_variable)
            longest_s = max(longest_s, time.monotonic() - begun)
            rows -= gradients
            values -= of_variable
            print(step, flush=True)
            time.sleep(0.01)
        is_same = np.array_equal(np.asarray(table.lookup(keys)), rows)
        is_same &= np.array_equal(np.asarray(variable.pull()), values)
        lost = client.replay_info().dropped
        found = "the same bits" if is_same else "OTHER BITS"
        print(f"{step} steps, the longest took {longest_s:.1f} s, {found}")
        sys.exit(0 if is_same and lost == 0 else 1)


if __name__ == "__main__":
    main()
