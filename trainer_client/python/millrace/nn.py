"""Modules for torch whose parameters live at a Millrace server.

They have no entry in state_dict(), for the server's checkpoints keep them (load_state_dict() of one of
torch's with their weight sets the rows), and in parameters() one without
elements: to freeze them (requires_grad_(False)), and to tell an optimizer of torch's of them. The server runs
their own optimizer. Where one of torch's has the model's parameters, gradients are accumulated until its
step(), which pushes them; zero_grad(), clip_grad_norm_() and GradScaler see them as .grad. Else they leave at
the end of the backward pass that makes them, and so do those of a loader's batches. All that goes for a table
goes in one call, without waiting, so that the optimizer runs once. Under DistributedDataParallel a gradient
counts 1 / processes, as torch's do. A forward waits until at most `staleness` earlier pushes to its table are
not applied; a push that failed raises its error there, in flush(), or when the client is closed. In
evaluation (module.eval(), or under torch.no_grad()) nothing is pushed, and lookups are read only: they make
no rows and keep none from being evicted.
"""
from __future__ import annotations

import copy
import math
import zlib
from typing import Any, Callable, Optional, Sequence, Union

import numpy as np
import torch

from . import init
from ._base import steps as _steps
from ._nn import bags as _bags
from ._nn.anchor import Anchor
from ._nn.arguments import TorchArguments
from ._nn.backward import running, tensors
from ._nn.lookups import Needs, tensors_of, values_of
from ._nn.pushes import pushes_of
from ._nn.uncompiled import uncompiled
from ._nn.weights import Weights, values_in
from .client import Client
from .table import Table
from .variable import Variable as ServerVariable
from .data import is_batch, values_of as _values_of_batch

__all__ = ["EmbeddingBag", "Embedding", "Variable", "Linear", "forward_all", "set_call_options", "flush"]


class AtServer(torch.nn.Module):
    """What the modules have in common.

    options: keyword arguments of the module's calls (wire_dtype, priority, step, ...); may be changed at any
    time.
    """

    def __init__(self, feature: Any, staleness: int, options: dict[str, Any]) -> None:
        super().__init__()
        if staleness < 0:
            raise ValueError(
                f"staleness is {staleness}; it is the number of pushes that may be in flight, 0 or more"
            )
        self.feature, self.staleness = feature, staleness
        self.options = {name: value for name, value in options.items() if value is not None}
        self._place = torch.empty(0)  # says by its device and type where results go
        self.anchor = Anchor(feature)
        self._pushes = pushes_of(feature.client)

    @property
    def learns(self) -> bool:
        """Whether a forward now would be followed by gradients."""
        anchor: Any = self._parameters["anchor"]  # as self.anchor, and at once
        return self.training and torch.is_grad_enabled() and anchor.requires_grad

    def flush(self) -> None:
        """Waits until all earlier pushes of gradients to this table or variable are applied."""
        self._pushes.wait(self.feature.id)

    def _begin_steps(self) -> None:
        if self.learns:
            _steps.begin(self.feature, self.options)

    def _tensor(self, values: np.ndarray, take: Callable[[np.ndarray], None]) -> torch.Tensor:
        return tensors([values], [self._place], [take if self.learns else None], [self.anchor])[0]

    def _tensor_of_batch(self, batch: Any, values: np.ndarray) -> torch.Tensor:
        feature, options = self.feature, dict(self.options)
        if getattr(batch, "read_only", False):
            return tensors([values], [self._place], [None], [None])[0]
        return self._tensor(
            values, lambda gradient: running().add_batch(batch, feature, gradient, options, self.anchor)
        )

    def _apply(self, fn: Callable, *args: Any, **kwargs: Any) -> "AtServer":
        anchor = self.anchor  # whose type is its gradients', f32
        del self._parameters["anchor"]
        try:
            super()._apply(fn, *args, **kwargs)
        finally:
            self._parameters["anchor"] = anchor
        self._place = fn(self._place)
        if anchor.device != self._place.device:
            self._parameters["anchor"] = anchor.moved(self._place.device)
        return self

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        """As torch's, without the anchor when asked for this module's own: DistributedDataParallel would
        reduce it."""
        recurse = args[1] if len(args) > 1 else kwargs.get("recurse", True)
        return (
            item
            for item in super().named_parameters(*args, **kwargs)
            if recurse or item[1] is not self.anchor
        )

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        del destination[prefix + "anchor"]

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list,
        unexpected_keys: list,
        error_msgs: list,
    ) -> None:
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        if prefix + "anchor" in missing_keys:
            missing_keys.remove(prefix + "anchor")

    def __deepcopy__(self, memo: dict) -> "AtServer":
        """A module with the same rows at the server: those are not copied."""
        twin = self.__class__.__new__(self.__class__)
        twin.__dict__.update(
            {
                name: value.copy() if isinstance(value, dict) else value
                for name, value in self.__dict__.items()
            }
        )
        memo[id(self)] = twin
        twin._parameters["anchor"] = copy.deepcopy(self.anchor, memo)
        return twin

    def __getstate__(self) -> dict:
        raise TypeError(
            f"{self} cannot be pickled, for it lives at the server: save model.state_dict() beside a "
            "checkpoint of "
            "the server's (client.save())"
        )

    def extra_repr(self) -> str:
        """What repr() says inside the brackets."""
        return f"{self.feature.name!r} at {self.feature.client.server}"


def _table(client: Any, table: Any, features: dict[str, Any]) -> Table:
    if isinstance(client, Table):
        client, table = client.client, client
    if isinstance(table, Table):
        if features:
            raise TypeError(
                f"table {table.name!r} is there already: {', '.join(features)} can be given with a name only"
            )
        return table
    if not isinstance(client, Client) or not isinstance(table, str):
        raise TypeError(
            "a table, or a client and the name of a table, come first: (client.table('user')), or "
            "(client, 'user', dim=16, optimizer=...)"
        )
    if "dim" not in features:
        if features:
            raise TypeError(
                f"a new table needs a dim; without, {table!r} is looked up, and {', '.join(features)} mean "
                "nothing"
            )
        return client.table(table)
    features.setdefault("initializer", init.normal(0.0, 1.0))
    return client.table(table, **features)


class EmbeddingBag(Weights, TorchArguments, AtServer):
    """torch.nn.EmbeddingBag over a table at a server: the same arguments and results, for any int32 or int64
    keys.

        bag = millrace.EmbeddingBag(client, "user", dim=16, mode="sum",
                                    optimizer=millrace.optim.Adagrad(lr=0.05))
        bag = millrace.EmbeddingBag(client.table("user"))

    table: a Table, or the name of one: of one that is there, or with `dim` and what else client.table() takes
        of one that is made if it is not. A new one has torch's first values, N(0, 1), unless there is an
        `initializer`.
    num_slots: results have the shape [bags / num_slots, num_slots, dim]. Of batches: how many slots they must
    have.
    mode: "sum", "mean" or "sqrtn" (a sum over the root of the number of keys); "mean" for a new table, as in
        torch. Tables pool at the server, so it must be the table's own. With "max" the rows travel, and any
        table will do; a new one pools by "none".
    padding_idx: a key that is in no bag, wherever it stands. No row counts from the end here: a negative
    number is a key, too.
    staleness: how many pushes to the table a forward leaves in flight. 0: it returns rows that include all
    earlier pushes.
    deadline_s, priority, wire_dtype: of its calls, as of millrace.CallOptions.
    Other arguments of torch's: as TorchArguments says.

    ValueError: a mode that the table does not pool by, or a negative staleness. TypeError: no client or
    table, or arguments that make no table.
    """

    def __init__(
        self,
        client: Any,
        table: Any = None,
        num_slots: Optional[int] = None,
        mode: Optional[str] = None,
        include_last_offset: bool = False,
        padding_idx: Optional[int] = None,
        *,
        staleness: int = 0,
        deadline_s: Optional[float] = None,
        priority: Optional[int] = None,
        wire_dtype: Optional[str] = None,
        **features: Any,
    ) -> None:
        if mode not in (None, "sum", "mean", "sqrtn", "max"):
            raise ValueError(f"mode is {mode!r}; it is one of sum, mean, sqrtn, max")
        arguments = self._take(features)
        if "dim" in features:
            features["pooling"] = "none" if mode == "max" else mode or "mean"
        made = _table(client, table, features)
        pooled = "max" if mode == "max" else made.pooling
        if pooled == "none" or mode not in (None, pooled):
            raise ValueError(
                f"table {made.name!r} pools by {made.pooling}{'' if mode is None else ', not ' + mode}: make "
                "the "
                f"table with pooling={mode or 'sum'!r}"
            )
        super().__init__(
            made, staleness, {"deadline_s": deadline_s, "priority": priority, "wire_dtype": wire_dtype}
        )
        self.mode, self.num_slots = pooled, num_slots
        self.include_last_offset, self.padding_idx = include_last_offset, padding_idx
        self._apply_arguments(arguments)

    @uncompiled
    def forward(
        self,
        input: Any,
        offsets: Optional[torch.Tensor] = None,
        per_sample_weights: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """[bags, dim], or with num_slots [bags / num_slots, num_slots, dim].

        input: keys [n] with offsets [bags], or [bags, n of each]; or a batch of a DataLoader: [samples,
            slots, dim], whose gradients go by the batch's id, once.
        per_sample_weights: as input, floats. In torch with "sum" only; the mean is over their sum, sqrtn over
            the root of the sum of their squares. Where they need a gradient, rows travel instead of sums.

        TypeError: keys are not int32 or int64. ValueError: shapes, or offsets that do not fit the keys.
        """
        if not isinstance(input, torch.Tensor) and is_batch(input):
            if offsets is not None or per_sample_weights is not None:
                raise ValueError("a batch has its keys, offsets and weights at the server")
            return self._of_batch(input)
        needs = [self._needs(input, offsets, per_sample_weights)]
        return tensors_of(needs, values_of(needs))[0]

    def _needs(
        self,
        input: torch.Tensor,
        offsets: Optional[torch.Tensor] = None,
        per_sample_weights: Optional[torch.Tensor] = None,
    ) -> Needs:
        bags = _bags.make(
            "EmbeddingBag", input, offsets, per_sample_weights, self.include_last_offset, self.padding_idx
        )
        if self.mode == "max":
            if bags.weights is not None:
                raise ValueError("EmbeddingBag: per_sample_weights go with sum, mean and sqrtn, not with max")
            return Needs(self, bags.keys, None, None, lambda rows: self._by_slot(_bags.pool_max(rows, bags)))
        if bags.weights is None:  # bags of one key each are their keys' rows, whatever the pooling
            return Needs(self, bags.keys, bags.offsets, None, self._by_slot)
        if bags.weights.requires_grad and torch.is_grad_enabled():
            return Needs(
                self, bags.keys, None, None, lambda rows: self._by_slot(_bags.pool(rows, bags, self.mode))
            )
        weights = np.array(bags.weights.detach().to("cpu", torch.float32).numpy())
        return Needs(self, bags.keys, bags.begins.astype(np.uint32), weights, self._by_slot)

    def _by_slot(self, pooled: torch.Tensor) -> torch.Tensor:
        if self.num_slots is None:
            return pooled
        if pooled.shape[0] % self.num_slots != 0:
            raise ValueError(
                f"EmbeddingBag: {pooled.shape[0]} bags are no multiple of num_slots, {self.num_slots}"
            )
        return pooled.view(-1, self.num_slots, self.embedding_dim)

    def _check_batch(self) -> None:
        super()._check_batch()
        if self.mode == "max":
            raise ValueError(
                "EmbeddingBag: mode 'max' cannot be had for a loader's batch: its bags are pooled at "
                "the server, "
                "by sum, mean or sqrtn"
            )

    def _of_batch(self, batch: Any) -> torch.Tensor:
        self._check_batch()
        self._begin_steps()
        values = _values_of_batch(batch, self.feature, self.options)
        if self.num_slots not in (None, values.shape[1]):
            raise ValueError(
                f"EmbeddingBag: batch {batch.id} has {values.shape[1]} slots, not {self.num_slots}"
            )
        return self._tensor_of_batch(batch, values)

    def extra_repr(self) -> str:
        """What repr() says inside the brackets."""
        return f"{super().extra_repr()}, dim={self.embedding_dim}, mode={self.mode!r}"


class Embedding(Weights, TorchArguments, AtServer):
    """torch.nn.Embedding over a table at a server: a row for each key. Arguments as of EmbeddingBag.

    padding_idx: a key whose row is zeros and learns nothing.
    """

    def __init__(
        self,
        client: Any,
        table: Any = None,
        padding_idx: Optional[int] = None,
        *,
        staleness: int = 0,
        deadline_s: Optional[float] = None,
        priority: Optional[int] = None,
        wire_dtype: Optional[str] = None,
        **features: Any,
    ) -> None:
        arguments = self._take(features)
        made = _table(client, table, features)
        super().__init__(
            made, staleness, {"deadline_s": deadline_s, "priority": priority, "wire_dtype": wire_dtype}
        )
        self.padding_idx = padding_idx
        self._apply_arguments(arguments)

    @uncompiled
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Keys of any shape, int32 or int64: [*input, dim]. TypeError: they are of another type."""
        needs = [self._needs(input)]
        return tensors_of(needs, values_of(needs))[0]

    def _needs(self, input: torch.Tensor) -> Needs:
        keys = _bags.keys_of("Embedding", input)
        shape = (*input.shape, self.embedding_dim)
        if self.padding_idx is None or not (keys == self.padding_idx).any():
            return Needs(self, keys.view(np.uint64), None, None, lambda rows: rows.view(shape))
        stays = np.flatnonzero(keys != self.padding_idx)

        def spread(rows: torch.Tensor) -> torch.Tensor:
            places = torch.from_numpy(stays).to(rows.device)
            return rows.new_zeros(len(keys), self.embedding_dim).index_copy(0, places, rows).view(shape)

        return Needs(self, keys[stays].view(np.uint64), None, None, spread)


@uncompiled
def forward_all(
    modules: Sequence[Union[EmbeddingBag, Embedding]], inputs: Sequence[Any]
) -> list[torch.Tensor]:
    """What each module's forward returns for its input, with one lookup for all:
    [module(input), ...].

        user, item = millrace.nn.forward_all([users, items], [(keys, offsets), item_keys])

    modules: EmbeddingBag and Embedding of one client; one may be there several times.
    inputs: for each module a tuple of its forward's arguments, or the first of them alone.

    The results are those of the modules' own forwards, and so are the gradients, which one push takes to all
    tables. Batches of a DataLoader have been looked up by their hub; they are given to their modules. Hooks
    of the modules do not run, as those of torch.nn.Module.forward() do not.

    ValueError: not as many inputs as modules, or modules of several clients. TypeError: another module.
    """
    modules, inputs = list(modules), list(inputs)
    if len(modules) != len(inputs):
        raise ValueError(f"forward_all: {len(modules)} modules and {len(inputs)} inputs; each has one")
    results: list[Any] = [None] * len(modules)
    needs: dict[int, Needs] = {}
    for i, (module, input) in enumerate(zip(modules, inputs)):
        if not isinstance(module, (EmbeddingBag, Embedding)):
            raise TypeError(
                f"forward_all: modules[{i}] is a {type(module).__name__}; it looks up for "
                "millrace.nn.EmbeddingBag and Embedding"
            )
        if module.feature.client is not modules[0].feature.client:
            raise ValueError(
                f"forward_all: modules[{i}] is of another client than modules[0]: make a call for each client"
            )
        arguments = input if isinstance(input, tuple) else (input,)
        if arguments and is_batch(arguments[0]):
            results[i] = module.forward(*arguments)
        else:
            needs[i] = module._needs(*arguments)
    its = list(needs.values())
    for i, result in zip(needs, tensors_of(its, values_of(its))):
        results[i] = result
    return results


class Variable(AtServer):
    """A dense parameter at the server, as a tensor.

        weight = millrace.nn.Variable(client, "mlp.0.weight", (64, 117),
                                      optimizer=millrace.optim.Adam(lr=0.001))
        y = x @ weight(batch).T

    client, name: as of EmbeddingBag, with a `shape` for one that is made if it is not there, and what else
        client.variable() takes; or a variable alone.
    staleness, deadline_s, priority: as of EmbeddingBag.
    """

    def __init__(
        self,
        client: Any,
        name: Optional[str] = None,
        shape: Optional[tuple[int, ...]] = None,
        *,
        staleness: int = 0,
        deadline_s: Optional[float] = None,
        priority: Optional[int] = None,
        **features: Any,
    ) -> None:
        if isinstance(client, ServerVariable):
            made = client
        elif shape is None:
            made = client.variable(name)
        else:
            made = client.variable(name, shape, **features)
        super().__init__(made, staleness, {"deadline_s": deadline_s, "priority": priority})

    @property
    def variable(self) -> ServerVariable:
        """The variable at the server."""
        return self.feature

    @uncompiled
    def forward(self, batch: Any = None) -> torch.Tensor:
        """Its value now, in its shape. With a batch its gradient goes in the batch's push: applied if, and
        only if, that one is; and a DataLoader's batch has the value from when it was first asked for."""
        if batch is not None:
            return self._tensor_of_batch(batch, _values_of_batch(batch, self.feature, self.options))
        variable, options = self.feature, dict(self.options)
        self._pushes.wait(variable.id, self.staleness)
        self._begin_steps()
        return self._tensor(
            variable.pull(**options),
            lambda gradient: running().add_variable(variable, gradient, options, self.anchor),
        )


class Linear(torch.nn.Module):
    """torch.nn.Linear with weight [out_features, in_features] and bias [out_features] at the server, as
    variables NAME.weight and NAME.bias, with torch's first values. features: further arguments of both, as of
    Variable."""

    def __init__(
        self,
        client: Client,
        name: str,
        in_features: int,
        out_features: int,
        bias: bool = True,
        **features: Any,
    ) -> None:
        super().__init__()
        bound = 1 / math.sqrt(in_features)

        def make(part: str, *shape: int) -> Variable:
            seed = zlib.crc32(f"{name}.{part}".encode())
            first: dict[str, Any] = {"initializer": init.uniform(-bound, bound, seed=seed), **features}
            return Variable(client, f"{name}.{part}", shape, **first)

        self.weight = make("weight", out_features, in_features)
        self.bias = make("bias", out_features) if bias else None

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list,
        unexpected_keys: list,
        error_msgs: list,
    ) -> None:
        """torch's weight and bias in the state_dict set the variables; without them they stay. A bias is
        unexpected in a module that has none."""
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        for part, variable in (("weight", self.weight), ("bias", self.bias)):
            if variable is None:
                continue
            values = values_in(state_dict, prefix + part, unexpected_keys, error_msgs)
            if values is None:
                continue
            if tuple(values.shape) != variable.variable.shape:
                error_msgs.append(
                    f"size mismatch for {prefix}{part}: {list(values.shape)} does not fit variable "
                    f"{variable.variable.name!r}, which is {list(variable.variable.shape)}"
                )
                continue
            variable.flush()
            variable.variable.push(values)

    def forward(self, input: torch.Tensor, batch: Any = None) -> torch.Tensor:
        """input [..., in_features] -> [..., out_features]. batch: as of Variable."""
        bias = None if self.bias is None else self.bias(batch)
        return torch.nn.functional.linear(input, self.weight(batch), bias)


def set_call_options(model: torch.nn.Module, **options: Any) -> None:
    """Sets options of the calls of all the model's modules at servers: step=17, learning_rate=0.01, ... None:
    no more."""
    for module in model.modules():
        if isinstance(module, AtServer):
            module.options.update(options)
            for name in [name for name, value in module.options.items() if value is None]:
                del module.options[name]


def flush(model: torch.nn.Module) -> None:
    """Waits until all pushes of the model's modules at servers are applied; before a checkpoint that is to
    hold them. Raises the error of one that failed, once."""
    for module in model.modules():
        if isinstance(module, AtServer):
            module.flush()
