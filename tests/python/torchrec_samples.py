"""What the tests of millrace.torchrec have in common: small collections of TorchRec's, or of the stand-in for
it, and their inputs."""
from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import millrace

torch = pytest.importorskip("torch")

import jagged  # noqa: E402

HAS_TORCHREC = importlib.util.find_spec("torchrec") is not None
if HAS_TORCHREC:
    import torchrec as rec
    from torchrec.modules.embedding_configs import DataType, PoolingType
    from torchrec.optim import RowWiseAdagrad
else:
    rec = jagged
    from jagged import DataType, PoolingType, RowWiseAdagrad

__all__ = ["DataType", "PoolingType", "RowWiseAdagrad"]

KEYS, SAMPLES, STEPS, LR = 50, 6, 20, 0.125
FEATURES = ["user", "item", "seen"]
LIMIT_S = 600

with_torchrec = pytest.mark.skipif(not HAS_TORCHREC, reason="needs torchrec: see with_torch.py")


def configs(kind=None, **more):
    """Two tables of three features."""
    kind = kind or rec.EmbeddingBagConfig
    dims = (4, 4) if kind is rec.EmbeddingConfig else (4, 8)
    return [
        kind(num_embeddings=KEYS, embedding_dim=dims[0], name="users", feature_names=["user"]),
        kind(
            num_embeddings=KEYS, embedding_dim=dims[1], name="goods", feature_names=["item", "seen"], **more
        ),
    ]


def batch(seed, weights=False, keys=FEATURES):
    """Bags of 0 to 3 keys, of each feature."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(4, (len(keys) * SAMPLES,), generator=generator)
    count = int(lengths.sum())
    return rec.KeyedJaggedTensor.from_lengths_sync(
        keys=keys,
        values=torch.randint(KEYS, (count,), generator=generator),
        lengths=lengths,
        weights=torch.rand(count, generator=generator) if weights else None,
    )


def bags_of(collection):
    return getattr(collection, "embedding_bags", None) or collection.embeddings


def copy_rows(ours, theirs):
    """Gives TorchRec's collection the rows of ours."""
    for name, bag in bags_of(ours).items():
        rows = bag.table.lookup(np.arange(KEYS))
        bags_of(theirs)[name].weight.data = torch.from_numpy(np.array(rows))


def check_same_rows(ours, theirs):
    millrace.nn.flush(ours)
    for name, bag in bags_of(ours).items():
        close(torch.from_numpy(bag.table.lookup(np.arange(KEYS))), bags_of(theirs)[name].weight.data)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def apply_in_backward(kind, parameters, arguments):
    """torch 2's; with others, what TorchRec reads of it."""
    try:
        from torch.distributed.optim import _apply_optimizer_in_backward
    except ImportError:
        for parameter in parameters:
            parameter._in_backward_optimizers = [None]
            parameter._optimizer_classes, parameter._optimizer_kwargs = [kind], [arguments]
    else:
        _apply_optimizer_in_backward(kind, parameters, arguments)


@pytest.fixture
def prefix(name):
    return name[-40:] + "."


@pytest.fixture
def bags(client, prefix):
    """Makes our EmbeddingBagCollection."""

    def make(tables=None, **arguments):
        arguments.setdefault("optimizer", millrace.optim.SGD(lr=LR))
        return millrace.torchrec.EmbeddingBagCollection(
            configs() if tables is None else tables, client=client, prefix=prefix, **arguments
        )

    return make
