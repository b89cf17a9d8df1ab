#!/usr/bin/env python3
"""PyTorch's RPC doing what peer_bench.c times, for peers.py.

usage: torch_calls.py python|script --rank 0|1 --master-addr HOST [--rows NAME,...] [--seconds S] [--workers N]

Rank 1 holds the rows in a tensor, rank 0 calls it and prints a line of JSON per figure. python: functions of Python, as the tutorials have
them. script: TorchScript functions on a reference to the tensor, which the callee runs without Python's lock.
"""
import argparse
import json
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import torch_rpc  # noqa: E402

OUTSTANDING, RUNS_MIN, WARM_SHARE = 64, 10, 0.1
OWNER = "worker1"


def measure(name, seconds, call):
    """Prints the median; returns what the last call did."""
    times, now = [], time.perf_counter()
    warm, end = now + WARM_SHARE * seconds, now + (1 + WARM_SHARE) * seconds
    while True:
        result, start = call(), now
        now = time.perf_counter()
        if start >= warm:
            times.append((now - start) * 1e6)
        if now >= end and len(times) >= RUNS_MIN:
            break
    torch_rpc.say(name, statistics.median(times), "us")
    return result


class Caller:
    """`api` is "python" or "script"."""

    def __init__(self, rpc, api):
        import torch
        import torch_table as there
        import workload
        self.rpc = rpc
        rows = torch.from_numpy(workload.row_values(range(workload.KEYS)))
        if api == "script":
            self.first = (rpc.remote(OWNER, torch.add, args=(rows, 0.0)),)  # an operator's result: TorchScript knows its type
            self.functions = {"empty": there.empty_script, "pull": there.pull_script, "lookup": there.lookup_script,
                              "push": there.push_script, "set": there.put_script}
        else:
            self.first = ()
            rpc.rpc_sync(OWNER, there.Server.keep, args=(rows,))
            self.functions = {"empty": torch_rpc.empty, "pull": there.Server.pull, "lookup": there.Server.lookup,
                              "push": there.Server.push, "set": there.Server.put}

    def call(self, name, *arguments):
        first = self.first if name != "empty" else ()
        return self.rpc.rpc_sync(OWNER, self.functions[name], args=first + arguments)

    def start(self, name):
        return self.rpc.rpc_async(OWNER, self.functions[name])


def empty_many(caller, seconds):
    futures = [caller.start("empty") for _ in range(OUTSTANDING)]
    calls, start, now = 0, time.perf_counter(), 0.0
    while now < start + seconds:
        for i, future in enumerate(futures):
            future.wait()
            futures[i] = caller.start("empty")
        calls += OUTSTANDING
        now = time.perf_counter()
    torch_rpc.say("empty_64", calls / (now - start), "calls/s")
    for future in futures:
        future.wait()


def expect(what, right):
    if not right:
        sys.exit(f"torch_calls: {what}: what came back is wrong")


def run(caller, rows, seconds):
    import numpy
    import torch
    import workload
    keys = workload.make_keys()
    keys_t, offsets = torch.from_numpy(keys), torch.arange(0, workload.ROWS, workload.ROWS // workload.BAGS)
    gradients, new = torch.from_numpy(workload.gradients()), torch.from_numpy(workload.new_rows(keys))
    checks = {"name": "checks"}

    def check(name, values, wanted):
        expect(name, numpy.array_equal(values, wanted))
        checks[name] = workload.checksum(values)

    if "empty_1" in rows:
        measure("empty_1", seconds, lambda: caller.call("empty"))
    if "empty_64" in rows:
        empty_many(caller, seconds)
    if "pull" in rows:
        check("pull", measure("pull", seconds, lambda: caller.call("pull", keys_t)).numpy(), workload.row_values(keys))
    if "lookup" in rows:
        check("lookup", measure("lookup", seconds, lambda: caller.call("lookup", keys_t, offsets)).numpy(), workload.sums(keys))
    if "push" in rows:
        caller.call("push", keys_t, gradients, workload.SGD_RATE)
        expect("push", numpy.array_equal(caller.call("pull", keys_t).numpy(), workload.after_sgd(keys)))
        measure("push", seconds, lambda: caller.call("push", keys_t, gradients, workload.SGD_RATE))
        expect("rows after all pushes", numpy.isfinite(caller.call("pull", keys_t).numpy()).all())
    if "set" in rows:
        measure("set", seconds, lambda: caller.call("set", keys_t, new))
        check("set", caller.call("pull", keys_t).numpy(), workload.new_rows(keys))
    print(json.dumps(checks), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("api", choices=["python", "script"])
    torch_rpc.add_arguments(parser, 2)
    parser.add_argument("--rows", default="empty_1,empty_64,pull,lookup,push,set")
    parser.add_argument("--seconds", type=float, default=1.0, help="that a row is measured for")
    parser.add_argument("--workers", type=int, default=16, help="threads that run calls")
    arguments = parser.parse_args()
    torch_rpc.use_interface(arguments.interface)
    import torch
    import torch.distributed.rpc as rpc
    import torch_table  # noqa: F401  the callee needs the functions, too
    torch.set_num_threads(arguments.threads)
    if arguments.rank == 1:
        print("ready", flush=True)
    options = torch_rpc.options_of(rpc, arguments, num_worker_threads=arguments.workers)
    rpc.init_rpc(f"worker{arguments.rank}", rank=arguments.rank, world_size=2, rpc_backend_options=options)
    if arguments.rank == 0:
        run(Caller(rpc, arguments.api), arguments.rows.split(","), arguments.seconds)
        print(json.dumps(torch_rpc.settings_of(torch, arguments, options)), flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    main()
