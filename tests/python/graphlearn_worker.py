"""A worker of GraphLearn-torch, as its wheel is, over millrace.rpc: its loaders sample a graph that two
workers share, and fetch features of each other's nodes.

usage: graphlearn_worker.py RANK PORT

What is changed in its modules: the import of remote calls, and the default `torch.device(0)`, which torch
refuses without a GPU. torch_sparse, of which PyPI has the source only, has a stand-in.
"""
from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
import types
from typing import Any, Iterator

import torch

CHANGES = {
    "from torch.distributed import rpc": "from millrace import rpc",
    "torch.device(0)": "torch.device('cpu')",
}
NODES, EDGES = 40, 3  # there is an edge from each node to each of the next EDGES, in a ring
WORLD = 2  # a worker has each second node, and the edges from it


class SparseTensor:
    """What GraphLearn's conversion from pairs to rows asks of torch_sparse."""

    def __init__(self, row: Any, col: Any, value: Any = None, sparse_sizes: Any = None) -> None:
        order = torch.argsort(row * sparse_sizes[1] + col)
        ends = torch.cumsum(torch.bincount(row, minlength=sparse_sizes[0]), 0)
        self.storage = types.SimpleNamespace(
            rowptr=lambda: torch.cat([torch.zeros(1, dtype=torch.long), ends]),
            col=lambda: col[order],
            value=lambda: None if value is None else value[order],
        )


class Changed(importlib.machinery.SourceFileLoader):
    """A module of GraphLearn's."""

    def get_code(self, fullname: str) -> types.CodeType:
        """Not from a file of bytecode."""
        path = self.get_filename(fullname)
        text = self.get_data(path).decode()
        for old, new in CHANGES.items():
            text = text.replace(old, new)
        return compile(text, path, "exec", dont_inherit=True)


class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that are to be changed."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """None: another's."""
        if fullname.split(".")[0] != "graphlearn_torch":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
            spec.loader = Changed(fullname, spec.origin)
        return spec


def own_part(glt: Any, rank: int) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """The dataset, its nodes, and its edges as two rows."""
    owners = torch.arange(NODES) % WORLD
    own = torch.arange(NODES)[owners == rank]
    row = own.repeat_interleave(EDGES)
    edges = torch.stack([row, (row + torch.arange(1, EDGES + 1).repeat(len(own))) % NODES])
    part = glt.distributed.DistDataset(
        WORLD, rank, node_pb=owners, edge_pb=owners.repeat_interleave(EDGES), edge_dir="out"
    )
    numbers = row * EDGES + torch.arange(EDGES).repeat(len(own))
    part.init_graph(edge_index=edges, edge_ids=numbers, layout="COO", graph_mode="CPU")
    places = torch.zeros(NODES, dtype=torch.long)
    places[own] = torch.arange(len(own))
    features = own.float().unsqueeze(1).repeat(1, 4)
    part.init_node_features(node_feature_data=features, id2idx=places, with_gpu=False)
    part.init_node_labels(node_label_data=torch.arange(NODES) * 10)
    return part, own, edges


def checked(loader: Any) -> Iterator[Any]:
    """Its batches, each of which has to be a part of the ring with the features and labels of its nodes."""
    for batch in loader:
        assert torch.equal(batch.x, batch.node.float().unsqueeze(1).repeat(1, 4)), batch
        assert batch.y is None or torch.equal(batch.y, batch.node * 10), batch
        target, source = batch.node[batch.edge_index]  # as sampled: towards the seeds
        steps = (target - source) % NODES
        assert bool(((steps >= 1) & (steps <= EDGES)).all()), steps
        yield batch


def main() -> None:
    """As above."""
    rank, port = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    sparse = types.ModuleType("torch_sparse")
    setattr(sparse, "SparseTensor", SparseTensor)
    sys.modules["torch_sparse"] = sparse
    sys.meta_path.insert(0, Finder())
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    import graphlearn_torch as glt

    part, own, edges = own_part(glt, rank)
    glt.distributed.init_worker_group(world_size=WORLD, rank=rank, group_name="worker")
    glt.distributed.init_rpc("127.0.0.1", port, num_rpc_threads=4, rpc_timeout=180)
    settings = dict(
        batch_size=5,
        shuffle=True,
        collect_features=True,
        to_device=torch.device("cpu"),
        worker_options=glt.distributed.CollocatedDistSamplingWorkerOptions(),
    )
    links = dict(edge_label_index=edges, edge_label=torch.ones(edges.shape[1], dtype=torch.long))
    loaders = {
        "neighbors": glt.distributed.DistNeighborLoader(part, [2, 2], own, **settings),
        "links": glt.distributed.DistLinkNeighborLoader(part, [2, 2], **links, **settings),
        "subgraphs": glt.distributed.DistSubGraphLoader(part, own, [2, 2], **settings),
    }
    for name, loader in loaders.items():
        for _ in range(2):
            batches = list(checked(loader))
            if name == "neighbors":
                assert torch.equal(torch.cat([batch.batch for batch in batches]).sort().values, own)
                assert all(batch.y is not None for batch in batches)
            glt.distributed.barrier()
            print(name, len(batches), flush=True)
    glt.distributed.shutdown_rpc()


if __name__ == "__main__":
    main()
