#!/usr/bin/env python3
"""TorchRec's EmbeddingBagCollection on the CPU doing what peer_bench.c times, for peers.py: a table of
FBGEMM's in the memory of the one process that trains.

usage: torchrec_calls.py --rows pull,push,lookup [--seconds S]

Rows are pulled as bags of one key, for which FBGEMM is several times as fast on the CPU as for rows. A
push is the backward pass of such a pull, in which FBGEMM steps SGD.
"""
import argparse
import json
import logging
import os
import tempfile
import warnings

logging.disable(logging.WARNING)  # FBGEMM and TorchRec have much to say of what is not installed
warnings.simplefilter("ignore")

import python_bench  # noqa: E402
import torch  # noqa: E402
import torchrec  # noqa: E402
import workload  # noqa: E402
from torch.distributed.optim import _apply_optimizer_in_backward  # noqa: E402
from torchrec.distributed import DistributedModelParallel  # noqa: E402
from torchrec.distributed.sharding_plan import construct_module_sharding_plan, table_wise  # noqa: E402
from torchrec.distributed.types import ShardingPlan  # noqa: E402

CPU = torch.device("cpu")


class Caller:
    """What python_bench.run() calls."""

    expected = staticmethod(workload.after_sgd)

    def __init__(self):
        table = torchrec.EmbeddingBagConfig(
            name="rows", num_embeddings=workload.KEYS, embedding_dim=workload.DIM, feature_names=["keys"]
        )
        bags = torchrec.EmbeddingBagCollection(tables=[table])
        _apply_optimizer_in_backward(torch.optim.SGD, bags.parameters(), {"lr": workload.SGD_RATE})
        plan = construct_module_sharding_plan(
            bags, {"rows": table_wise(rank=0)}, local_size=1, world_size=1, device_type="cpu"
        )
        self.bags = DistributedModelParallel(bags, device=CPU, plan=ShardingPlan({"": plan}))
        weight = self.bags.state_dict()["embedding_bags.rows.weight"].local_shards()[0].tensor
        weight.copy_(self.array(workload.row_values(range(workload.KEYS))))
        self.pulled = None

    @staticmethod
    def array(values):
        return torch.from_numpy(values)

    def pool(self, keys, lengths):
        """f32 [bags, 16], from which a backward pass starts."""
        return self.bags(torchrec.KeyedJaggedTensor(keys=["keys"], values=keys, lengths=lengths)).values()

    def pull(self, keys):
        return self.pool(keys, torch.ones_like(keys)).detach()

    pushed = pull

    def lookup(self, keys, offsets):
        return self.pool(keys, torch.diff(offsets, append=torch.tensor([len(keys)]))).detach()

    def push(self, keys, gradients):
        if self.pulled is None:
            self.pulled = self.pool(keys, torch.ones_like(keys))
        self.pulled.backward(gradients, retain_graph=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    python_bench.add_arguments(parser)
    parser.add_argument("--threads", type=int, default=1, help="for tensors (default 1)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    os.environ.update(LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
    with tempfile.TemporaryDirectory() as directory:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{directory}/ranks", rank=0, world_size=1
        )
        python_bench.run(Caller(), arguments.rows.split(","), arguments.seconds)
        versions = {
            "torch": torch.__version__,
            "torchrec": torchrec.__version__,
            "threads": arguments.threads,
        }
        print(json.dumps({"name": "torchrec_settings", **versions}), flush=True)
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
