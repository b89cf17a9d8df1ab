#!/usr/bin/env python3
"""PyTorch's RPC doing what peer_bench.c times, for peers.py.

usage: torch_calls.py python|script --rank 0|1 --master-addr HOST [--rows NAME,...] [--seconds S] [--workers
N]

Rank 1 holds the rows in a tensor, rank 0 calls it and prints a line of JSON per figure. python: functions of
Python, as the tutorials have
them. script: TorchScript functions on a reference to the tensor, which the callee runs without Python's lock.
"""
import argparse
import importlib
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import python_bench  # noqa: E402
import torch_rpc  # noqa: E402

OWNER = "worker1"


class Caller:
    """What python_bench.run() calls. `api` is "python" or "script"."""

    def __init__(self, rpc, api):
        import torch
        import torch_table as there
        import workload

        self.rpc, self.torch, self.rate = rpc, torch, workload.SGD_RATE
        self.expected = workload.after_sgd
        rows = torch.from_numpy(workload.row_values(range(workload.KEYS)))
        if api == "script":
            self.first = (
                rpc.remote(OWNER, torch.add, args=(rows, 0.0)),
            )  # an operator's result: TorchScript knows its type
            self.functions = {
                "empty": there.empty_script,
                "pull": there.pull_script,
                "lookup": there.lookup_script,
                "push": there.push_script,
                "set": there.put_script,
            }
        else:
            self.first = ()
            rpc.rpc_sync(OWNER, there.Server.keep, args=(rows,))
            self.functions = {
                "empty": torch_rpc.empty,
                "pull": there.Server.pull,
                "lookup": there.Server.lookup,
                "push": there.Server.push,
                "set": there.Server.put,
            }

    def array(self, values):
        return self.torch.from_numpy(values)

    def call(self, name, *arguments):
        return self.rpc.rpc_sync(OWNER, self.functions[name], args=self.first + arguments)

    def empty(self):
        self.rpc.rpc_sync(OWNER, self.functions["empty"])

    def start(self):
        return self.rpc.rpc_async(OWNER, self.functions["empty"])

    def pull(self, keys):
        return self.call("pull", keys)

    pushed = pull

    def lookup(self, keys, offsets):
        return self.call("lookup", keys, offsets)

    def push(self, keys, gradients):
        self.call("push", keys, gradients, self.rate)

    def set(self, keys, rows):
        self.call("set", keys, rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("api", choices=["python", "script"])
    torch_rpc.add_arguments(parser, 2)
    python_bench.add_arguments(parser)
    parser.add_argument("--workers", type=int, default=16, help="threads that run calls")
    arguments = parser.parse_args()
    torch_rpc.use_interface(arguments.interface)
    import torch
    import torch.distributed.rpc as rpc

    importlib.import_module("torch_table")  # the callee needs the functions, too
    torch.set_num_threads(arguments.threads)
    if arguments.rank == 1:
        print("ready", flush=True)
    options = torch_rpc.options_of(rpc, arguments, num_worker_threads=arguments.workers)
    rpc.init_rpc(f"worker{arguments.rank}", rank=arguments.rank, world_size=2, rpc_backend_options=options)
    if arguments.rank == 0:
        python_bench.run(Caller(rpc, arguments.api), arguments.rows.split(","), arguments.seconds)
        print(json.dumps(torch_rpc.settings_of(torch, arguments, options)), flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    main()
