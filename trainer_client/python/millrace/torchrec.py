"""TorchRec's embedding collections with their rows at a Millrace server.

    ebc = millrace.torchrec.EmbeddingBagCollection(tables, client=client,
                                                   optimizer=millrace.optim.RowWiseAdagrad(lr=0.01))
    model = millrace.torchrec.replace(model, client)   # all collections of a model that is there already

They take TorchRec's configs and KeyedJaggedTensor and return its KeyedTensor and JaggedTensor: the classes
beside the one of the input, so this module does not import torchrec. Gradients, freezing, evaluation,
state_dict(), flush() and errors of pushes are as in millrace.nn, whose modules the collections hold.

Each table of a collection is a table of the server with the same name (`prefix` stands before it). Rows come
as their keys come: num_embeddings limits nothing, and keys are any 64 bits. A table's optimizer is
`optimizer`, `fused_params`, or what apply_optimizer_in_backward() has said before the first forward. Without
any, the server's table of this name is used as it is. The tables of a collection are made when they are first
used.
"""
from __future__ import annotations

import collections
import dataclasses
import sys
from typing import Any, Iterator, Mapping, Optional, Sequence, Union

import numpy as np
import torch

from . import optim
from ._nn import torchrec_config
from ._nn.lookups import Needs, tensors_of, values_of
from ._nn.sharded import Sharded
from ._nn.uncompiled import uncompiled
from .client import Client
from .errors import UnknownTable
from .feature import TableSpec, check_options
from .nn import AtServer, Embedding, EmbeddingBag, flush
from .table import Table

__all__ = ["EmbeddingBagCollection", "EmbeddingCollection", "replace"]

Optimizers = Union[optim.Optimizer, Mapping[str, optim.Optimizer], None]  #: of all tables, or by their names


# ---- tables ----


class _Tables(list):
    """The tables of one collection, which are made in one call."""

    def make(self) -> None:
        """UnknownTable, FeatureMismatch, InvalidArgument, ValueError: what is wrong with a table."""
        optimizers = [table.choose_optimizer() for table in self]
        specs = [
            dataclasses.replace(table.spec, optimizer=optimizer)
            for table, optimizer in zip(self, optimizers)
            if optimizer is not None
        ]
        made = iter(self[0].client.create(specs) if specs else [])
        for table, optimizer in zip(self, optimizers):
            its = table.found() if optimizer is None else next(made)
            table.id, table.spec = its.id, its.spec


class _CollectionTable(Table):
    """A table of a collection: made, with the others, when its `id` is first asked for."""

    id: int

    def __init__(
        self, tables: _Tables, client: Client, spec: TableSpec, optimizer: Optional[optim.Optimizer]
    ) -> None:
        self.client, self.spec, self.optimizer, self.tables = client, spec, optimizer, tables
        self.anchor: Any = None  #: its module's
        self.in_backward: Optional[list] = None  #: what the anchor said of optimizers when it was made
        tables.append(self)

    def __getattr__(self, name: str) -> Any:
        if name != "id":
            raise AttributeError(f"a table has no {name!r}")
        self.tables.make()
        return self.id

    def choose_optimizer(self) -> Optional[optim.Optimizer]:
        """None: nothing says it."""
        self.in_backward = getattr(self.anchor, "_optimizer_classes", None)
        if self.in_backward is None:
            return self.optimizer
        if self.optimizer is not None:
            raise ValueError(
                f"table {self.name!r} has two optimizers, {self.optimizer} and that of "
                "apply_optimizer_in_backward(): leave one of them out"
            )
        return torchrec_config.in_backward(f"table {self.name!r}", self.anchor)

    def found(self) -> Table:
        """The server's table of this name."""
        try:
            table = self.client.table(self.name)
        except UnknownTable:
            raise UnknownTable(
                f"{self.client.server}: there is no table {self.name!r}, and nothing says the optimizer of a "
                "new one; give optimizer=millrace.optim..., or call apply_optimizer_in_backward() before the "
                "first forward"
            ) from None
        if (table.dim, table.pooling) != (self.dim, self.pooling):
            raise ValueError(
                f"table {self.name!r} of {self.client.server} has dim {table.dim} and pooling "
                f"{table.pooling!r}; the config has {self.dim} and {self.pooling!r}"
            )
        return table

    def check(self) -> None:
        """ValueError: apply_optimizer_in_backward() came too late."""
        classes = getattr(self.anchor, "_optimizer_classes", None)
        if "id" in vars(self) and classes is not self.in_backward:
            raise ValueError(
                f"table {self.name!r} was made with {self.spec.optimizer} before "
                "apply_optimizer_in_backward(): call it before the first forward"
            )


# ---- what a collection reads of its input ----


class _Jagged:
    """A KeyedJaggedTensor: values [n], and offsets of the bags of all features, one after the other."""

    def __init__(self, features: Any) -> None:
        if type(features).__name__ == "TensorDict":
            from torchrec.sparse.tensor_dict import maybe_td_to_kjt

            features = maybe_td_to_kjt(features, None)
        modules = [sys.modules[kind.__module__] for kind in type(features).__mro__]
        self.types: Any = next((module for module in modules if hasattr(module, "KeyedTensor")), None)
        if self.types is None:
            raise TypeError(f"the input is a KeyedJaggedTensor, not {type(features).__name__}")
        self.features, self.values = features, features.values()
        per_key = getattr(features, "stride_per_key", None)
        keys = features.keys()
        strides = [features.stride()] * len(keys) if per_key is None else per_key()
        begins = np.concatenate(([0], np.cumsum(strides))).astype(np.int64)
        self._bags = {key: slice(begins[i], begins[i + 1]) for i, key in enumerate(keys)}
        self._offsets = features.offsets().detach().cpu().numpy().astype(np.int64)
        inverse = getattr(features, "inverse_indices_or_none", lambda: None)()
        self._inverse = None if inverse is None else dict(zip(inverse[0], inverse[1]))

    def _begins(self, name: str) -> np.ndarray:
        """Where in the values the bags of a feature begin; the last one is where they end."""
        if name not in self._bags:
            raise KeyError(f"feature {name!r} is not among the input's keys: {', '.join(self._bags)}")
        bags = self._bags[name]
        return self._offsets[bags.start : bags.stop + 1]

    def samples(self, name: str) -> int:
        """How many bags a feature has."""
        return self._bags[name].stop - self._bags[name].start

    def counts(self, names: Sequence[str]) -> list[int]:
        """How many values each of these features has."""
        return [int(begins[-1] - begins[0]) for begins in map(self._begins, names)]

    def lengths(self, name: str) -> torch.Tensor:
        """Of the bags of a feature [samples]."""
        return self.features.lengths()[self._bags[name]]

    def of(self, tensor: torch.Tensor, names: Sequence[str]) -> torch.Tensor:
        """The part of values or weights that belongs to these features, in their order."""
        parts = [tensor[begins[0] : begins[-1]] for begins in map(self._begins, names)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def bags(self, names: Sequence[str], is_weighted: bool, is_mean: bool) -> tuple:
        """Arguments of an EmbeddingBag: values, offsets with the last one, weights or None. Weights of a mean
        are over the number of the bag's values, as in FBGEMM."""
        sizes = np.concatenate([np.diff(self._begins(name)) for name in names])
        offsets = torch.from_numpy(np.concatenate(([0], np.cumsum(sizes))))
        values = self.of(self.values, names)
        if not is_weighted:
            return values, offsets, None
        weights = self.features.weights_or_none()
        if weights is None:
            raise ValueError("the collection has is_weighted=True, and its input has no weights")
        weights = self.of(weights, names)
        if is_mean:
            weights = weights / torch.from_numpy(np.repeat(sizes, sizes)).to(weights.device)
        return values, offsets, weights

    def expanded(self, pooled: torch.Tensor, name: str) -> torch.Tensor:
        """A feature's bags [its samples, dim] for all samples of the batch: an input with a stride for each
        key says by inverse_indices which bag is each sample's."""
        return (
            pooled if self._inverse is None else pooled.index_select(0, self._inverse[name].to(pooled.device))
        )


# ---- collections ----


class _Collection(Sharded):
    """What both have in common."""

    _module: type[AtServer]
    _holder: str  # of the modules, by the names of their configs
    _arguments: dict[str, Any] = {}

    def _make(
        self,
        configs: Sequence[Any],
        poolings: Sequence[str],
        device: Union[torch.device, str, None],
        client: Client,
        optimizer: Optimizers,
        fused_params: Optional[Mapping[str, Any]],
        prefix: str,
        options: dict[str, Any],
    ) -> torch.nn.ModuleDict:
        """A module for each config, by its name."""
        if not isinstance(client, Client):
            raise TypeError(f"client is {client!r}; it is a millrace.Client")
        self.prefetch_stale = bool(options.pop("prefetch_stale", False))
        features = {name: value for name, value in options.items() if name not in _OF_CALLS}
        calls = {name: value for name, value in options.items() if name in _OF_CALLS}
        for name in {"dtype", "pooling"} & set(features):
            raise TypeError(f"{name}: a table has that of its config")
        check_options(type(self).__name__, TableSpec, features)
        if optimizer is not None and fused_params is not None:
            raise TypeError("optimizer and fused_params say the same: leave one of them out")
        if fused_params is not None:
            optimizer = torchrec_config.optimizer_of_fused_params("fused_params", fused_params)
        self._device, self._configs = torch.device("cpu" if device is None else device), configs
        tables, modules = _Tables(), torch.nn.ModuleDict()
        for config, pooling in zip(configs, poolings):
            if config.name in modules:
                raise ValueError(f"Duplicate table name {config.name}")
            config.feature_names = config.feature_names or [config.name]
            its = optimizer.get(config.name) if isinstance(optimizer, Mapping) else optimizer
            spec = torchrec_config.spec_of(config, prefix + config.name, pooling, features)
            spec.to_feature()  # raises what is wrong with it
            table = _CollectionTable(tables, client, spec, its)
            modules[config.name] = self._module(table, **self._arguments, **calls)
            table.anchor = modules[config.name].anchor
            table.anchor.data = torch.empty(
                0, table.dim
            )  # a matrix: torchrec's RowWiseAdagrad takes no other
        self._feature_names: list[list[str]] = [config.feature_names for config in configs]
        return modules if self._device.type == "meta" else modules.to(self._device)

    def _names(self) -> list[list[str]]:
        """Of results, by table: a feature that several tables have is FEATURE@TABLE, as in TorchRec."""
        count = collections.Counter(name for names in self._feature_names for name in names)
        return [
            [f"{name}@{config.name}" if count[name] > 1 else name for name in names]
            for config, names in zip(self._configs, self._feature_names)
        ]

    def _inputs(self, jagged: _Jagged) -> list[tuple]:
        """Arguments of each module's forward."""
        raise NotImplementedError

    def _read(self, features: Any) -> _Jagged:
        return _Jagged(features)

    def _needs_of(self, input: _Jagged) -> list[Needs]:
        modules = list(getattr(self, self._holder).values())
        for module in modules:
            module.feature.check()
        return [module._needs(*its) for module, its in zip(modules, self._inputs(input))]

    def _needs(self, features: Any) -> list[Needs]:
        """What forward() will look up, for prefetch()."""
        return self._needs_of(self._read(features))

    def _modules_by_result(self) -> Iterator[tuple[str, AtServer]]:
        modules = getattr(self, self._holder).values()
        return ((name, module) for module, names in zip(modules, self._names()) for name in names)

    @uncompiled
    def forward(self, features: Any) -> Any:
        """What TorchRec's collection returns for a KeyedJaggedTensor, of float32. KeyError: the input lacks a
        feature."""
        jagged = self._read(features)
        needs = self._needs_of(jagged)
        return self._packed(jagged, tensors_of(needs, values_of(needs)))

    def reset_parameters(self) -> None:
        """Gives the tables their first values: drops them with what they have learnt, for good, and makes
        them again. For a run's beginning, in one trainer: whoever has used the tables before, other trainers
        and other collections, finds them gone."""
        tables = [module.feature for module in getattr(self, self._holder).values()]
        if not tables:
            return
        for table in tables:
            table.id  # noqa: B018  # made or found
        flush(self)
        client = tables[0].client
        # Those are gone already which could not be made when this was tried before.
        there = [table.name for table in tables if client._find(table.name, None) is not None]
        if there:
            client.drop(*there)
        for table, made in zip(tables, client.create([table.spec for table in tables])):
            table.id = made.id

    @property
    def device(self) -> torch.device:
        """That of the constructor. Rows are at the server, and results of a collection for "meta" on the
        CPU."""
        return self._device


class EmbeddingBagCollection(_Collection):
    """torchrec.EmbeddingBagCollection over tables at a server.

    tables: EmbeddingBagConfig, or what has its fields. Of these are used: name, embedding_dim, feature_names,
        pooling (SUM, MEAN), data_type (FP32, FP16, BF16), init_fn or weight_init_min and _max. ValueError:
        one cannot be had at a server.
    is_weighted: the input's weights count. With MEAN, they are over the number of the bag's values.
    device: of the results.
    client: of the server.
    optimizer: one of millrace.optim, or a mapping of tables' names to them.
    fused_params: instead, TorchRec's: {"optimizer": EmbOptimType.EXACT_SGD, "learning_rate": 0.01, ...}.
    prefix: of the tables' names at the server.
    prefetch_stale: under TorchRec's pipelines rows stay as they were when they were looked up, while the
        batch before trained; else those that this client has pushed to since are looked up again.
    options: staleness, deadline_s, priority, wire_dtype, as of millrace.nn.EmbeddingBag, and fields of
        TableSpec that all tables get: initializer (before init_fn), admission, eviction, capacity_rows, ...
    """

    _module = EmbeddingBag
    _holder = "embedding_bags"
    _type = "EmbeddingBagCollection"
    _arguments = {"include_last_offset": True}

    def __init__(
        self,
        tables: Sequence[Any],
        is_weighted: bool = False,
        device: Union[torch.device, str, None] = None,
        *,
        client: Client,
        optimizer: Optimizers = None,
        fused_params: Optional[Mapping[str, Any]] = None,
        prefix: str = "",
        **options: Any,
    ) -> None:
        super().__init__()
        poolings = [_pooling_of(config) for config in tables]
        self._is_weighted, self._is_mean = is_weighted, [pooling == "mean" for pooling in poolings]
        if is_weighted:
            poolings = ["sum"] * len(poolings)
        self.embedding_bags = self._make(
            tables, poolings, device, client, optimizer, fused_params, prefix, options
        )

    def _packed(self, input: _Jagged, results: Sequence[torch.Tensor]) -> Any:
        """A KeyedTensor [samples, sum of the dims]: a key for each feature of each table, in their order."""
        parts: list[torch.Tensor] = []
        for names, pooled in zip(self._feature_names, results):
            parts += pooled.float().split([input.samples(name) for name in names])
        flat = [name for names in self._feature_names for name in names]
        return input.types.KeyedTensor(
            keys=[name for names in self._names() for name in names],
            length_per_key=[part.shape[1] for part in parts],
            values=torch.cat([input.expanded(part, name) for part, name in zip(parts, flat)], dim=1),
        )

    def _inputs(self, jagged: _Jagged) -> list[tuple]:
        return [
            jagged.bags(names, self._is_weighted, is_mean)
            for names, is_mean in zip(self._feature_names, self._is_mean)
        ]

    def is_weighted(self) -> bool:
        """Whether the input's weights count."""
        return self._is_weighted

    def embedding_bag_configs(self) -> Sequence[Any]:
        """The configs that it was made of."""
        return self._configs


class EmbeddingCollection(_Collection):
    """torchrec.EmbeddingCollection over tables at a server. Arguments as of EmbeddingBagCollection.

    need_indices: results have the keys of their rows as weights.
    use_gather_select, use_gather_select_per_sharding: how TorchRec gathers rows; they mean nothing here.
    """

    _module = Embedding
    _holder = "embeddings"
    _type = "EmbeddingCollection"

    def __init__(
        self,
        tables: Sequence[Any],
        device: Union[torch.device, str, None] = None,
        need_indices: bool = False,
        use_gather_select: bool = False,
        use_gather_select_per_sharding: Optional[Mapping[str, bool]] = None,
        *,
        client: Client,
        optimizer: Optimizers = None,
        fused_params: Optional[Mapping[str, Any]] = None,
        prefix: str = "",
        **options: Any,
    ) -> None:
        super().__init__()
        for config in tables:
            if config.embedding_dim != tables[0].embedding_dim:
                raise ValueError(
                    "all tables of an EmbeddingCollection have the same embedding_dim: that of "
                    f"{config.name!r} is {config.embedding_dim}, that of {tables[0].name!r} "
                    f"{tables[0].embedding_dim}"
                )
        self._need_indices = need_indices
        self.embeddings = self._make(
            tables, ["sum"] * len(tables), device, client, optimizer, fused_params, prefix, options
        )

    def _packed(self, input: _Jagged, results: Sequence[torch.Tensor]) -> dict[str, Any]:
        """A JaggedTensor of rows [values, dim] for each feature of each table."""
        packed = {}
        for names, keys, rows in zip(self._feature_names, self._names(), results):
            for name, key, its in zip(names, keys, rows.float().split(input.counts(names))):
                packed[key] = input.types.JaggedTensor(
                    values=its,
                    lengths=input.lengths(name),
                    weights=input.of(input.values, [name]) if self._need_indices else None,
                )
        return packed

    def _inputs(self, jagged: _Jagged) -> list[tuple]:
        return [(jagged.of(jagged.values, names),) for names in self._feature_names]

    def need_indices(self) -> bool:
        """Whether results have the keys of their rows."""
        return self._need_indices

    def embedding_dim(self) -> int:
        """Of all tables; -1 without any."""
        return self._configs[0].embedding_dim if len(self._configs) else -1

    def embedding_configs(self) -> Sequence[Any]:
        """The configs that it was made of."""
        return self._configs

    def embedding_names_by_table(self) -> list[list[str]]:
        """The keys of results, by table."""
        return self._names()


def _pooling_of(config: Any) -> str:
    pooling = str(getattr(config.pooling, "value", config.pooling)).lower()
    if pooling not in ("sum", "mean"):
        raise ValueError(
            f"table {config.name!r}: pooling is {config.pooling}; bags are pooled by SUM or MEAN"
        )
    return pooling


# ---- models that are there already ----


def replace(
    model: torch.nn.Module, client: Client, *, optimizer: Optimizers = None, prefix: str = "", **options: Any
) -> torch.nn.Module:
    """Puts the model's EmbeddingBagCollections and EmbeddingCollections of TorchRec at the server. It stands
    where DistributedModelParallel(model) does, after apply_optimizer_in_backward().

    Returns the model, which is changed; or the new collection, if the model is one. Rows are new, as
    the configs say; load_state_dict() of the state_dict() that the model had before sets them. Tables whose
    weights have an optimizer by apply_optimizer_in_backward() have that one at the server, push their
    gradients at the end of each backward(), and are passed over by in_backward_optimizer_filter(), as
    TorchRec's sharded ones. optimizer: of the others. prefix, options: as of EmbeddingBagCollection. Several
    trainers: DistributedDataParallel of what is returned averages the gradients of what stays with them.

    ValueError: two collections have a table of the same name, or something cannot be had at a server.
    """
    made: dict[int, torch.nn.Module] = {}
    seen: dict[str, str] = {}
    for path, module in model.named_modules():
        kind = type(module).__name__
        if kind in ("ShardedEmbeddingBagCollection", "ShardedEmbeddingCollection"):
            raise ValueError(f"{path} is sharded already: replace() goes before DistributedModelParallel")
        if isinstance(module, _Collection) or kind not in _REPLACED:
            continue
        for config in getattr(module, _REPLACED[kind][0])():
            if seen.setdefault(config.name, path) != path:
                raise ValueError(
                    f"{seen[config.name]} and {path} both have a table {config.name!r}, which would be one "
                    "at the server: rename one, or replace() each with a prefix of its own"
                )
        made[id(module)] = _replaced(module, client, optimizer, prefix, options)
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if id(child) in made:
                parent._modules[name] = made[id(child)]
    model = made.get(id(model), model)
    ignored = [name for name, its in model.named_parameters() if hasattr(its, "_in_backward_optimizers")]
    ignored += getattr(model, "_ddp_params_and_buffers_to_ignore", [])
    ddp: Any = torch.nn.parallel.DistributedDataParallel
    ddp._set_params_and_buffers_to_ignore_for_model(model, ignored)
    return model


def _replaced(
    module: Any, client: Client, optimizer: Optimizers, prefix: str, options: dict[str, Any]
) -> torch.nn.Module:
    configs, attribute = _REPLACED[type(module).__name__]
    weights = {name: its.weight for name, its in getattr(module, attribute).items()}
    in_backward = {
        name: torchrec_config.in_backward(f"table {name!r}", weight)
        for name, weight in weights.items()
        if hasattr(weight, "_optimizer_classes")
    }
    others = {name: optimizer.get(name) if isinstance(optimizer, Mapping) else optimizer for name in weights}
    arguments = {
        "device": module.device,
        "client": client,
        "optimizer": {name: its for name, its in {**others, **in_backward}.items() if its is not None},
        "prefix": prefix,
        **options,
    }
    ours: Any
    if attribute == "embedding_bags":
        ours = EmbeddingBagCollection(getattr(module, configs)(), module.is_weighted(), **arguments)
    else:
        ours = EmbeddingCollection(
            getattr(module, configs)(), need_indices=module.need_indices(), **arguments
        )
    for name, its in getattr(ours, attribute).items():
        its.requires_grad_(weights[name].requires_grad)
        if name in in_backward:
            its.anchor._in_backward_optimizers = []
    return ours.train(module.training)


_OF_CALLS = ("staleness", "deadline_s", "priority", "wire_dtype")
_REPLACED = {  # the methods that give their configs, and where their modules are
    "EmbeddingBagCollection": ("embedding_bag_configs", "embedding_bags"),
    "EmbeddingCollection": ("embedding_configs", "embeddings"),
}
