"""What a collection has of TorchRec's sharded modules, so that its train pipelines drive it.

    context = collection.create_context()
    keys = collection.input_dist(context, features).wait().wait()     # the lookups are in flight
    result = collection.compute_and_output_dist(context, keys)        # takes their answers; a LazyAwaitable

A pipeline calls input_dist() for the next batch while this one trains. Where a sharded module's input
travels to other ranks meanwhile, the keys travel to the servers here, and the rows back. Rows that this
client changes until compute() are brought up to date, so results are those of forward(); or, with
prefetch_stale, they stay.

The awaitables are TorchRec's own. It is imported when they are made, by programs that have it.
"""
from __future__ import annotations

import functools
import importlib
import sys
import weakref
from typing import Any, Iterator, Mapping, Optional, Sequence

import torch

from . import lookups
from .ahead import Ahead, PrefetchCounts
from .fused_optimizer import FusedOptimizer
from .lookups import Needs, tensors_of, values_of
from .uncompiled import uncompiled

_DEPTH = 1  #: batches that a pipeline looks up ahead of the one that trains
_fused: "weakref.WeakKeyDictionary[Any, Any]" = weakref.WeakKeyDictionary()  #: optimizers of collections


class Context:
    """One batch on its way through a collection."""

    def __init__(self) -> None:
        self.input: Any = None  #: as the collection reads its features
        self.needs: list[Needs] = []
        self.ahead: Optional[Ahead] = None  #: lookups whose answers nobody has taken

    def record_stream(self, stream: Any) -> None:
        """Its features are the batch's, which the pipeline records."""


class Sharded(torch.nn.Module):
    """What EmbeddingBagCollection and EmbeddingCollection have in common here."""

    _FORCE_STATE_DICT_LOAD = True  # DistributedModelParallel loads it as a whole
    _type: str  # TorchRec's collection
    is_pipelined = False  #: set by TorchRec's pipelines
    prefetch_stale = False  #: whether rows stay as they were when input_dist() looked them up

    def __init__(self) -> None:
        super().__init__()
        self.prefetch_counts = PrefetchCounts()  #: what became of lookups that input_dist() has made
        types = sys.modules.get("torchrec.distributed.types")
        if types is not None:  # pipelines ask for these with isinstance()
            types.ShardedModule.register(Sharded)
            importlib.import_module("torchrec.optim.fused").FusedOptimizerModule.register(Sharded)

    def _read(self, features: Any) -> Any:
        """The input as the collection reads it; its `features` are a KeyedJaggedTensor."""
        raise NotImplementedError

    def _needs_of(self, input: Any) -> list[Needs]:
        """What forward() looks up."""
        raise NotImplementedError

    def _packed(self, input: Any, results: Sequence[torch.Tensor]) -> Any:
        """What forward() returns, of its modules' results."""
        raise NotImplementedError

    def _modules_by_result(self) -> Iterator[tuple[str, Any]]:
        """The keys of results, and the modules whose rows they are."""
        raise NotImplementedError

    # ---- a batch ----

    def create_context(self) -> Context:
        """For one batch."""
        return Context()

    def preprocess_input(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments as they are."""
        return args, kwargs

    @uncompiled
    def input_dist(self, ctx: Context, features: Any) -> Any:
        """Starts the lookups for a KeyedJaggedTensor: Awaitable[Awaitable[KJTList]], of the features
        themselves; neither waits. Without compute() the answers are dropped with the context. KeyError: the
        input lacks a feature."""
        types = importlib.import_module("torchrec.distributed.types")
        sharding = importlib.import_module("torchrec.distributed.embedding_sharding")
        ctx.input = self._read(features)
        ctx.needs = self._needs_of(ctx.input)
        ctx.ahead = Ahead(ctx.needs, self.prefetch_counts, _DEPTH if self.prefetch_stale else None)
        ctx.ahead.start()
        return sharding.KJTListSplitsAwaitable([types.NoWait(types.NoWait(ctx.input.features))], ctx)

    def prefetch(self, dist_input: Any, forward_stream: Any = None, ctx: Optional[Context] = None) -> None:
        """Nothing is left to do: rows are on their way since input_dist()."""

    @uncompiled
    def compute(self, ctx: Context, dist_input: Sequence[Any]) -> list[Any]:
        """Waits for the answers: the rows of each table, up to date, for output_dist(). Raises the error of a
        lookup."""
        ahead, ctx.ahead = ctx.ahead, None
        if dist_input[0] is not ctx.input.features:  # others than input_dist() has sent
            ctx.input = self._read(dist_input[0])
            ctx.needs = self._needs_of(ctx.input)
        if ahead is None:
            return values_of(ctx.needs)
        ahead.arrive()
        self.prefetch_counts.batches += 1
        lookups.enter(ahead)
        try:
            return values_of(ctx.needs)
        finally:
            lookups.leave(ahead)

    def output_dist(self, ctx: Context, output: list[Any]) -> Any:
        """A LazyAwaitable of what forward() returns. It becomes part of the model's graph when it is first
        used: there DistributedDataParallel's forward is known to run."""

        @uncompiled
        @functools.lru_cache(None)
        def pack(_: Any) -> Any:
            return self._packed(ctx.input, tensors_of(ctx.needs, output))

        result = importlib.import_module("torchrec.distributed.types").LazyNoWait(None)
        result.callbacks.append(pack)
        return result

    def compute_and_output_dist(self, ctx: Context, input: Sequence[Any]) -> Any:
        """Both."""
        return self.output_dist(ctx, self.compute(ctx, input))

    # ---- rows that a program sets ----

    def write_dist(self, ctx: Context, embeddings: Any) -> Any:
        """Awaitable[Awaitable[KJTList]], of the embeddings themselves."""
        types = importlib.import_module("torchrec.distributed.types")
        sharding = importlib.import_module("torchrec.distributed.embedding_sharding")
        return sharding.KJTListSplitsAwaitable([types.NoWait(types.NoWait(embeddings))], ctx)

    def update(self, ctx: Context, dist_input: Sequence[Any]) -> None:
        """Sets rows: of KeyedJaggedTensors the keys are those of results, the values keys of rows, and the
        weights rows [values, dim]. Earlier pushes are waited for; the rows' optimizer states start anew.
        ValueError: a key that no result has, or no weights."""
        modules = dict(self._modules_by_result())
        for embeddings in dist_input:
            unknown = [key for key in embeddings.keys() if key not in modules]
            if unknown:
                raise ValueError(f"{unknown[0]!r} is not among the collection's: {', '.join(modules)}")
            rows = embeddings.weights_or_none()
            if rows is None:
                raise ValueError("the rows to be set are the input's weights [values, dim], and it has none")
            input = self._read(embeddings)
            for key in embeddings.keys():
                modules[key].load_rows(input.of(rows, [key]), input.of(input.values, [key]))

    def write(self, embeddings: Any) -> None:
        """Sets rows, as update()."""
        ctx = self.create_context()
        self.update(ctx, self.write_dist(ctx, embeddings).wait().wait())

    # ---- what it is ----

    @property
    def fused_optimizer(self) -> Any:
        """The tables' optimizers as a KeyedOptimizer of TorchRec's: for its CombinedOptimizer, for schedulers
        and warm-up, which set the learning rate of each table's group. Makes the tables."""
        made = _fused.get(self)
        if made is None:
            modules = list(dict(self._modules_by_result()).values())
            modules = list(dict.fromkeys(modules))  # those of several features once
            keyed = importlib.import_module("torchrec.optim.keyed")
            made = _fused[self] = keyed.KeyedOptimizerWrapper(
                dict(self.named_parameters()), lambda _: FusedOptimizer(modules)
            )
        return made

    def sharded_parameter_names(self, prefix: str = "") -> Iterator[str]:
        """Of its parameters, none of which DistributedDataParallel is to reduce."""
        return (name for name, _ in self.named_parameters(prefix))

    @property
    def unsharded_module_type(self) -> Any:
        """TorchRec's collection."""
        return getattr(importlib.import_module("torchrec.modules.embedding_modules"), self._type)

    @property
    def qcomm_codecs_registry(self) -> Mapping[str, Any]:
        """None: `wire_dtype` says how rows and gradients travel."""
        return {}
