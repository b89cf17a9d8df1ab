"""Writes a checkpoint of torch.distributed.checkpoint, in which each kind of sharding occurs; needs torch 2.

    python3 tests/python/write_distributed.py DIRECTORY

made data/distributed. tensors() has what is in it.
"""
import sys

import numpy as np

RANKS = 2
ROWS, DIM = 7, 4


def tensors():
    """By name, whole."""
    table = np.arange(ROWS * DIM, dtype=np.float32).reshape(ROWS, DIM)
    return {
        "model.rows.weight": table,
        "model.columns.weight": table + 100,
        "model.grid.weight": table + 200,
        "model.table.weight": table[:5] + 300,
        "model.all.weight": table[:2].T + 400,
        "optimizer.state.rows.exp_avg": table / 2,
        "optimizer.state.rows.exp_avg_sq": table / 4,
        "optimizer.state.rows.step": np.float32(3),
    }


def _write(rank, directory, meeting):
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed._shard.metadata import ShardMetadata
    from torch.distributed._shard.sharded_tensor import init_from_local_shards
    from torch.distributed._shard.sharded_tensor.shard import Shard as OwnShard
    from torch.distributed.tensor import DeviceMesh, DTensor, Replicate, Shard

    torch.distributed.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=RANKS)
    mesh = DeviceMesh("cpu", list(range(RANKS)))
    whole = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in tensors().items()}

    def spread(name, how, kind=torch.float32):
        """Each has the whole, and sends nothing: the gloo that Debian builds torch with knows no bfloat16."""
        tensor = whole[name].to(kind)
        own = tensor.chunk(RANKS, how.dim)[rank].contiguous() if isinstance(how, Shard) else tensor
        return DTensor.from_local(
            own, mesh, [how], run_check=False, shape=tensor.shape, stride=tensor.stride()
        )

    def boxes(name, places):
        """A ShardedTensor, as TorchRec has it: (first row, first column, rows, columns, rank) of each."""
        tensor, own = whole[name], []
        for row, column, rows, columns, owner in places:
            if owner == rank:
                box = tensor[row : row + rows, column : column + columns].clone()
                place = ShardMetadata([row, column], [rows, columns], f"rank:{rank}/cpu")
                own.append(OwnShard(box, place))
        return init_from_local_shards(own, *tensor.shape)

    grid = [(0, 0, 3, 1, 0), (3, 0, 4, 1, 1), (0, 1, 3, 3, 1), (3, 1, 4, 3, 0)]
    dcp.save(
        {
            "model": {
                "rows.weight": spread("model.rows.weight", Shard(0)),
                "columns.weight": spread("model.columns.weight", Shard(1), torch.bfloat16),
                "grid.weight": boxes("model.grid.weight", grid),
                "table.weight": boxes("model.table.weight", [(0, 0, 5, DIM, 1)]),
                "all.weight": spread("model.all.weight", Replicate()).T.contiguous().T,
            },
            "optimizer": {
                "state": {
                    "rows": {
                        "exp_avg": spread("optimizer.state.rows.exp_avg", Shard(0)),
                        "exp_avg_sq": spread("optimizer.state.rows.exp_avg_sq", Shard(0)),
                        "step": whole["optimizer.state.rows.step"],
                    }
                },
                "param_groups": [{"lr": 0.5, "name": "all of them"}],
            },
            "epoch": 3,
        },
        checkpoint_id=directory,
    )
    torch.distributed.destroy_process_group()


def write(directory):
    """Two processes write it, over gloo."""
    import tempfile

    import torch.multiprocessing

    with tempfile.TemporaryDirectory() as meeting:
        torch.multiprocessing.spawn(_write, (str(directory), f"{meeting}/store"), RANKS)


if __name__ == "__main__":
    write(sys.argv[1])
