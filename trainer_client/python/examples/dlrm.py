#!/usr/bin/env python3
"""TorchRec's DLRM on synthetic clicks in Criteo's shape, with its embeddings at a Millrace server.

    dlrm.py --server 10.77.0.1

Needs torch 2 and torchrec. Only the lines that name millrace or the server are not TorchRec's;
docs/torchrec.md shows them beside those that they replace.
"""
from __future__ import annotations

import argparse
import json
from typing import Iterator

import torch
from torch.distributed.optim import _apply_optimizer_in_backward as apply_optimizer_in_backward
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.datasets.criteo import DEFAULT_CAT_NAMES, DEFAULT_INT_NAMES
from torchrec.datasets.utils import Batch
from torchrec.distributed.train_pipeline import TrainPipelineSparseDist
from torchrec.models.dlrm import DLRM, DLRMTrain
from torchrec.optim import KeyedOptimizerWrapper, RowWiseAdagrad
from torchrec.optim.optimizers import in_backward_optimizer_filter

import millrace

HELD_OUT = 20  # batches


def clicks(batches: int, samples: int, keys: int, seed: int) -> Iterator[Batch]:
    """Each categorical feature has one of `keys` values, some often, or none in one sample of ten. Values and
    dense features have weights, of which a click's probability is made."""
    slots, dense = len(DEFAULT_CAT_NAMES), len(DEFAULT_INT_NAMES)
    hidden = torch.Generator().manual_seed(0)
    of_values, of_dense = torch.randn(slots, keys, generator=hidden), torch.randn(dense, generator=hidden)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(batches):
        values = (keys * torch.rand(slots, samples, generator=generator) ** 4).long()
        is_there = torch.rand(slots, samples, generator=generator) < 0.9
        numbers = torch.randn(samples, dense, generator=generator)
        logits = (of_values.gather(1, values) * is_there).sum(0) / 2 + numbers @ of_dense / 4 - 1
        yield Batch(
            dense_features=numbers,
            sparse_features=KeyedJaggedTensor.from_lengths_sync(
                keys=DEFAULT_CAT_NAMES, values=values[is_there], lengths=is_there.flatten().int()
            ),
            labels=(torch.rand(samples, generator=generator) < logits.sigmoid()).int(),
        )


def area_under_curve(scores: torch.Tensor, labels: torch.Tensor) -> float:
    """How often a click has a higher score than a sample without one."""
    ranks = torch.empty(len(scores), dtype=torch.float64)
    ranks[scores.argsort()] = torch.arange(1, len(scores) + 1, dtype=torch.float64)
    clicked = int(labels.sum())
    return float(
        (ranks[labels == 1].sum() - clicked * (clicked + 1) / 2) / (clicked * (len(labels) - clicked))
    )


def model_of(keys: int, dim: int, lr: float) -> torch.nn.Module:
    """DLRM with tables of `keys` rows, whose optimizer runs in backward()."""
    tables = [
        EmbeddingBagConfig(
            name=f"t_{name}",
            embedding_dim=dim,
            num_embeddings=keys,
            feature_names=[name],
            init_fn=torch.nn.init.zeros_,  # so that runs can be compared
        )
        for name in DEFAULT_CAT_NAMES
    ]
    model = DLRMTrain(
        DLRM(
            embedding_bag_collection=EmbeddingBagCollection(tables=tables, device=torch.device("meta")),
            dense_in_features=len(DEFAULT_INT_NAMES),
            dense_arch_layer_sizes=[64, dim],
            over_arch_layer_sizes=[64, 1],
        )
    )
    apply_optimizer_in_backward(RowWiseAdagrad, model.model.sparse_arch.parameters(), {"lr": lr, "eps": 1e-8})
    return model


def optimizer_of(model: torch.nn.Module, lr: float) -> KeyedOptimizerWrapper:
    """Of the parameters that have none in backward()."""
    return KeyedOptimizerWrapper(
        dict(in_backward_optimizer_filter(model.named_parameters())),
        lambda parameters: torch.optim.Adagrad(parameters, lr=lr),
    )


def main() -> None:
    """Trains, prints the loss every ten steps, and in the end the area under the curve of other samples."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", required=True, help="HOST[:PORT]")
    parser.add_argument("--steps", type=int, default=500, help="default 500")
    parser.add_argument("--batch", type=int, default=512, help="samples in a batch (default 512)")
    parser.add_argument("--keys", type=int, default=10000, help="of each feature (default 10000)")
    parser.add_argument("--dim", type=int, default=16, help="of an embedding (default 16)")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate (default 0.05)")
    arguments = parser.parse_args()
    torch.manual_seed(1)

    model = model_of(arguments.keys, arguments.dim, arguments.lr)
    client = millrace.Client(arguments.server)
    model = millrace.torchrec.replace(model, client)
    pipeline = TrainPipelineSparseDist(model, optimizer_of(model, arguments.lr), torch.device("cpu"))

    batches = clicks(arguments.steps, arguments.batch, arguments.keys, seed=1)
    for step in range(arguments.steps):
        loss, _, _ = pipeline.progress(batches)  # while the next batch's rows are on their way
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.6f}", flush=True)

    model = pipeline.detach().eval()
    with torch.no_grad():
        results = [model(batch)[1] for batch in clicks(HELD_OUT, arguments.batch, arguments.keys, seed=2)]
    scores, labels = (torch.cat([result[i] for result in results]) for i in (1, 2))
    print(json.dumps({"auc": area_under_curve(scores, labels), "samples": len(labels)}))


if __name__ == "__main__":
    main()
