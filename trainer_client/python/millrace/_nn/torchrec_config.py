"""TorchRec's descriptions of tables and optimizers as Millrace's.

They are taken by what they have, not by their classes, so nothing here imports torchrec. What a table at a
server cannot be is refused by name.
"""
from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import zlib
from typing import Any, Mapping, Optional

import torch

from .. import init, optim
from ..feature import TableSpec

_DTYPES = {"FP32": "f32", "FP16": "f16", "BF16": "bf16"}
OPTIMIZERS: dict[str, type[optim.Optimizer]] = {  # by the names of classes, and by the values of EmbOptimType
    "SGD": optim.SGD,
    "Adagrad": optim.Adagrad,
    "RowWiseAdagrad": optim.RowWiseAdagrad,
    "Adam": optim.Adam,
    "AdamW": optim.AdamW,
    "SparseAdam": optim.Adam,
    "sgd": optim.SGD,
    "exact_sgd": optim.SGD,
    "exact_adagrad": optim.Adagrad,
    "row_wise_adagrad": optim.RowWiseAdagrad,
    "exact_row_wise_adagrad": optim.RowWiseAdagrad,
    "adam": optim.Adam,
}
_HINTS = {"foreach", "fused", "capturable", "differentiable"}  # how torch computes, not what
# Where FBGEMM keeps rows and how it gets them: the server does that its own way.
_PLACEMENT = {
    "bounds_check_mode",
    "cache_algorithm",
    "cache_load_factor",
    "cache_precision",
    "cache_reserved_memory",
    "cache_sets",
    "enforce_hbm",
    "gather_uvm_cache_stats",
    "multipass_prefetch_config",
    "prefetch_pipeline",
    "record_cache_metrics",
    "stats_reporter_config",
    "use_experimental_tbe",
    "uvm_host_mapped",
    "uvm_non_rowwise_momentum",
}
_OFF = {"maximize": False, "gradient_clipping": False, "stochastic_rounding": False, "max_norm": 0.0}
_NO_DECAY, _L2 = 0, 1  # FBGEMM's WeightDecayMode
_FBGEMM = {"lr": 0.01, "eps": 1e-8}  # its defaults


# ---- first values ----


def _arguments(function: Any, partial: functools.partial) -> dict[str, Any]:
    bound = inspect.signature(function).bind(None, *partial.args, **partial.keywords)
    bound.apply_defaults()
    return dict(list(bound.arguments.items())[1:])


def _of_init_fn(init_fn: Any, seed: int) -> Optional[init.Initializer]:
    """None: the server has no such values."""
    partial = init_fn if isinstance(init_fn, functools.partial) else functools.partial(init_fn)
    function, named = partial.func, torch.nn.init
    known = (named.uniform_, named.normal_, named.constant_, named.zeros_, named.ones_, named.trunc_normal_)
    if function not in known:
        return None
    values = _arguments(function, partial)
    if values.get("generator") is not None:
        return None
    if function is named.uniform_:
        return init.uniform(values["a"], values["b"], seed)
    if function is named.normal_:
        return init.normal(values["mean"], values["std"], seed)
    if function is named.trunc_normal_:
        mean, std = values["mean"], values["std"]
        is_ours = math.isclose(values["a"], mean - 2 * std) and math.isclose(values["b"], mean + 2 * std)
        return init.truncated_normal(mean, std, seed) if is_ours else None
    return init.constant(values.get("val", float(function is named.ones_)), seed)


def initializer_of(config: Any, name: str) -> init.Initializer:
    """First values as config.init_fn makes them; without one, TorchRec's own: uniform within 1 /
    sqrt(num_embeddings). The seed is the table's `name`, so that all trainers describe the same table."""
    seed = zlib.crc32(name.encode())
    if config.init_fn is None:
        bound = math.sqrt(1 / config.num_embeddings)
        low = -bound if config.weight_init_min is None else config.weight_init_min
        return init.uniform(low, bound if config.weight_init_max is None else config.weight_init_max, seed)
    made = _of_init_fn(config.init_fn, seed)
    if made is None:
        raise ValueError(
            f"table {config.name!r}: init_fn is {config.init_fn!r}; the server makes first values as "
            "torch.nn.init's uniform_, normal_, constant_, zeros_, ones_ and trunc_normal_ (cut at two "
            "standard deviations): use one of them, or give initializer=millrace.init..."
        )
    return made


# ---- optimizers ----


def _refuse(what: str, name: str, value: Any, instead: str) -> None:
    raise ValueError(f"{what}: {name}={value!r} cannot be had at a Millrace server; {instead}")


def _decayed(what: str, kind: type[optim.Optimizer], weight_decay: float, mode: Any) -> type[optim.Optimizer]:
    """The kind that does what FBGEMM does with a weight decay."""
    mode = getattr(mode, "value", mode)
    if kind is optim.Adam and mode == _NO_DECAY:
        return optim.AdamW  # FBGEMM's Adam decays apart from the gradient
    if kind is not optim.RowWiseAdagrad or mode != _L2:
        _refuse(
            what,
            "weight_decay",
            weight_decay,
            "FBGEMM has it for Adam, and for row-wise Adagrad with weight_decay_mode=L2: say what is meant "
            "by optimizer=millrace.optim...",
        )
    return kind


def _made(what: str, kind: type[optim.Optimizer], arguments: Mapping[str, Any]) -> optim.Optimizer:
    given = {name: value for name, value in arguments.items() if name not in _HINTS | _PLACEMENT}
    if "learning_rate" in given:
        given["lr"] = given.pop("learning_rate")
    if "beta1" in given or "beta2" in given:
        given["betas"] = given.pop("beta1", 0.9), given.pop("beta2", 0.999)
    if issubclass(kind, optim.Adam):
        given["bias_correction"] = "step"  # as torch's and FBGEMM's
    known = {field.name for field in dataclasses.fields(kind)} - {"dense"}  # FBGEMM's never move other rows
    for name in [name for name in given if name not in known]:
        value = given.pop(name)
        if name not in _OFF or value != _OFF[name]:
            _refuse(what, name, value, f"{kind.__name__} has {', '.join(sorted(known))}")
    if "lr" in given:
        given["lr"] = float(given["lr"])  # a number or, in torch 2, a tensor
    return kind(**given)


def _kind(what: str, name: str) -> type[optim.Optimizer]:
    if name not in OPTIMIZERS:
        raise ValueError(
            f"{what}: the server has no {name}; it has SGD, Adagrad, RowWiseAdagrad, Adam and AdamW"
        )
    return OPTIMIZERS[name]


def _of_fbgemm(what: str, name: str, arguments: Mapping[str, Any]) -> optim.Optimizer:
    kind, given = _kind(what, name), dict(arguments)
    mode, weight_decay = given.pop("weight_decay_mode", _NO_DECAY), given.pop("weight_decay", 0.0)
    if weight_decay:
        kind = _decayed(what, kind, weight_decay, mode)
    given.setdefault("lr", given.pop("learning_rate", _FBGEMM["lr"]))
    known = {field.name for field in dataclasses.fields(kind)}
    if "eps" in known:
        given.setdefault("eps", _FBGEMM["eps"])
    else:
        given.pop("eps", None)  # FBGEMM's SGD takes it, and has no use for it
    return _made(what, kind, {**given, "weight_decay": weight_decay})


def optimizer_of_class(what: str, kind: type, arguments: Mapping[str, Any]) -> optim.Optimizer:
    """What apply_optimizer_in_backward(kind, parameters, arguments) asks for. Defaults are the class's own;
    classes of TorchRec's that only stand for FBGEMM's optimizers have FBGEMM's."""
    if "optimizer" in arguments:  # TorchRec's sharder lets it go before the class
        return optimizer_of_fused_params(what, arguments)
    if kind.__module__.startswith("torchrec.optim.optimizers"):
        return _of_fbgemm(what, kind.__name__, arguments)
    return _made(what, _kind(what, kind.__name__), arguments)


def optimizer_of_fused_params(what: str, fused_params: Mapping[str, Any]) -> optim.Optimizer:
    """What TorchRec's fused_params ask for: {"optimizer": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
    "learning_rate": 0.01, "eps": 1e-8, ...}, with FBGEMM's defaults."""
    given = dict(fused_params)
    kind = given.pop("optimizer", "exact_sgd")
    return _of_fbgemm(what, getattr(kind, "value", kind), given)


def in_backward(what: str, parameter: Any) -> optim.Optimizer:
    """What apply_optimizer_in_backward() has said of a parameter."""
    kinds, arguments = parameter._optimizer_classes, parameter._optimizer_kwargs
    if len(kinds) != 1:
        raise ValueError(
            f"{what} has {len(kinds)} optimizers by apply_optimizer_in_backward(); it can have one"
        )
    return optimizer_of_class(what, kinds[0], arguments[0])


# ---- tables ----


def spec_of(config: Any, name: str, pooling: str, features: Mapping[str, Any]) -> TableSpec:
    """The table `name` for an EmbeddingBagConfig or EmbeddingConfig; features: other fields of TableSpec. An
    initializer among them goes before the config's init_fn."""
    dtype = _DTYPES.get(getattr(config.data_type, "value", config.data_type))
    if dtype is None:
        raise ValueError(
            f"table {config.name!r}: data_type is {config.data_type}; rows are {', '.join(sorted(_DTYPES))}"
        )
    policy = getattr(config, "virtual_table_eviction_policy", None)
    if policy is not None and type(policy).__name__ != "NoEvictionPolicy":
        raise ValueError(
            f"table {config.name!r}: virtual_table_eviction_policy is {type(policy).__name__}; give "
            "eviction=millrace.eviction..."
        )
    if "initializer" not in features:
        features = {**features, "initializer": initializer_of(config, name)}
    return TableSpec(name, config.embedding_dim, dtype=dtype, pooling=pooling, **features)
