"""A small TorchRec: what millrace.torchrec uses of its interface, over torch.nn. For tests where it is not
installed."""
from __future__ import annotations

import abc
import enum
import functools
import math
import sys
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

import torch


class PoolingType(enum.Enum):
    SUM = "SUM"
    MEAN = "MEAN"


class DataType(enum.Enum):
    FP32 = "FP32"
    FP16 = "FP16"
    INT8 = "INT8"


@dataclass
class EmbeddingConfig:
    num_embeddings: int
    embedding_dim: int
    name: str = ""
    data_type: DataType = DataType.FP32
    feature_names: list[str] = field(default_factory=list)
    weight_init_max: Optional[float] = None
    weight_init_min: Optional[float] = None
    init_fn: Optional[Callable] = None

    def __post_init__(self) -> None:
        bound = math.sqrt(1 / self.num_embeddings)
        self.init_fn = self.init_fn or functools.partial(
            torch.nn.init.uniform_, a=self.weight_init_min or -bound, b=self.weight_init_max or bound
        )


@dataclass
class EmbeddingBagConfig(EmbeddingConfig):
    pooling: PoolingType = PoolingType.SUM


class JaggedTensor:
    def __init__(self, values: Any, weights: Any = None, lengths: Any = None) -> None:
        self._values, self._weights, self._lengths = values, weights, lengths

    def values(self) -> torch.Tensor:
        return self._values

    def lengths(self) -> torch.Tensor:
        return self._lengths

    def weights(self) -> torch.Tensor:
        return self._weights


class KeyedJaggedTensor:
    def __init__(self, keys: list[str], values: Any, weights: Any = None, lengths: Any = None) -> None:
        self._keys, self._values, self._weights, self._lengths = keys, values, weights, lengths

    @staticmethod
    def from_lengths_sync(
        keys: list[str], values: Any, lengths: Any, weights: Any = None
    ) -> "KeyedJaggedTensor":
        return KeyedJaggedTensor(keys, values, weights, lengths)

    def keys(self) -> list[str]:
        return self._keys

    def values(self) -> torch.Tensor:
        return self._values

    def lengths(self) -> torch.Tensor:
        return self._lengths

    def offsets(self) -> torch.Tensor:
        return torch.cat([torch.zeros(1, dtype=torch.int64), self._lengths.cumsum(0)])

    def weights_or_none(self) -> Optional[torch.Tensor]:
        return self._weights

    def stride(self) -> int:
        return len(self._lengths) // len(self._keys)


class KeyedTensor:
    def __init__(self, keys: list[str], length_per_key: list[int], values: torch.Tensor) -> None:
        self._keys, self._length_per_key, self._values = keys, length_per_key, values

    def keys(self) -> list[str]:
        return self._keys

    def length_per_key(self) -> list[int]:
        return self._length_per_key

    def values(self) -> torch.Tensor:
        return self._values


class EmbeddingBagCollection(torch.nn.Module):
    """Of features that one table has each; the values of a batch are in the order of the tables."""

    def __init__(self, tables: list, is_weighted: bool = False, device: Any = None) -> None:
        super().__init__()
        self._configs, self._is_weighted, self.device = tables, is_weighted, torch.device(device or "cpu")
        self.embedding_bags = torch.nn.ModuleDict()
        for config in tables:
            bag = torch.nn.EmbeddingBag(
                config.num_embeddings,
                config.embedding_dim,
                mode=config.pooling.value.lower(),
                include_last_offset=True,
            )
            config.init_fn(bag.weight)
            self.embedding_bags[config.name] = bag

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        parts, offsets, samples = [], features.offsets(), features.stride()
        weights = features.weights_or_none()
        names = [(config, name) for config in self._configs for name in config.feature_names]
        for config, name in names:
            at = features.keys().index(name) * samples
            its = offsets[at : at + samples + 1]
            begin, end = int(its[0]), int(its[-1])
            parts.append(
                self.embedding_bags[config.name](
                    features.values()[begin:end],
                    its - begin,
                    weights[begin:end] if self._is_weighted else None,
                )
            )
        return KeyedTensor(
            [name for _, name in names], [part.shape[1] for part in parts], torch.cat(parts, 1)
        )

    def embedding_bag_configs(self) -> list:
        return self._configs

    def is_weighted(self) -> bool:
        return self._is_weighted


class EmbeddingCollection(torch.nn.Module):
    def __init__(self, tables: list, device: Any = None, need_indices: bool = False) -> None:
        super().__init__()
        self._configs, self._need_indices, self.device = tables, need_indices, torch.device(device or "cpu")
        self.embeddings = torch.nn.ModuleDict(
            {c.name: torch.nn.Embedding(c.num_embeddings, c.embedding_dim) for c in tables}
        )

    def forward(self, features: KeyedJaggedTensor) -> dict[str, JaggedTensor]:
        results, offsets, samples = {}, features.offsets(), features.stride()
        for config in self._configs:
            for name in config.feature_names:
                at = features.keys().index(name) * samples
                keys = features.values()[int(offsets[at]) : int(offsets[at + samples])]
                results[name] = JaggedTensor(
                    self.embeddings[config.name](keys),
                    keys if self._need_indices else None,
                    features.lengths()[at : at + samples],
                )
        return results

    def embedding_configs(self) -> list:
        return self._configs

    def need_indices(self) -> bool:
        return self._need_indices


class RowWiseAdagrad(torch.optim.Optimizer):
    """One accumulator for each row, the mean of its squared gradients."""

    def __init__(self, params: Any, lr: float = 0.01, eps: float = 1e-10) -> None:
        super().__init__(params, {"lr": lr, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is None:
                    continue
                state = self.state[param]
                sums = state["sum"] = state.get("sum", 0) + param.grad.pow(2).mean(1, keepdim=True)
                param.addcdiv_(param.grad, sums.sqrt() + group["eps"], value=-group["lr"])


# ---- of torchrec.distributed and torchrec.optim ----


class NoWait:
    def __init__(self, value: Any) -> None:
        self._value, self.callbacks = value, []

    def wait(self) -> Any:
        value = self._value
        for callback in self.callbacks:
            value = callback(value)
        return value


LazyNoWait = NoWait


class KJTListSplitsAwaitable:
    def __init__(self, awaitables: list, ctx: Any) -> None:
        self.awaitables, self.ctx = awaitables, ctx

    def wait(self) -> NoWait:
        return NoWait([awaitable.wait().wait() for awaitable in self.awaitables])


class ShardedModule(abc.ABC):
    pass


class FusedOptimizerModule(abc.ABC):
    pass


class KeyedOptimizerWrapper:
    def __init__(self, params: dict, factory: Callable) -> None:
        self.params, self._optimizer = params, factory(list(params.values()))
        self.param_groups, self.step = self._optimizer.param_groups, self._optimizer.step


def install(monkeypatch: Any) -> None:
    """Stands for the modules that have these, in a program that has imported TorchRec."""
    for name in (
        "distributed.types",
        "distributed.embedding_sharding",
        "modules.embedding_modules",
        "optim.fused",
        "optim.keyed",
    ):
        monkeypatch.setitem(sys.modules, "torchrec." + name, sys.modules[__name__])
