"""The distributed optimizer: each owner of parameters updates them, with the gradients that a context has for
them."""
from __future__ import annotations

import threading
from typing import Any, Callable, Sequence

import torch

from .._base.library import NULL, ffi, lib
from ..errors import InvalidArgument, check_rpc
from . import RRef
from ._calls import begin
from ._contexts import find, pointer_of, waiting
from ._future import end_all
from ._gate import gate
from ._serve import Ungated
from ._world import current

# Arguments in torch's order, with torch's defaults; None: there is none.
_ARGUMENTS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": None, "momentum": 0, "dampening": 0, "weight_decay": 0, "nesterov": False},
    "Adagrad": {"lr": 1e-2, "lr_decay": 0, "weight_decay": 0, "initial_accumulator_value": 0, "eps": 1e-10},
    "Adam": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0, "amsgrad": False},
}
_KINDS = {"SGD": lib.MR_DIST_SGD, "Adagrad": lib.MR_DIST_ADAGRAD, "Adam": lib.MR_DIST_ADAM}
_FIELDS = {
    "lr": "learning_rate",
    "momentum": "momentum",
    "weight_decay": "weight_decay",
    "nesterov": "nesterov",
    "eps": "epsilon",
    "initial_accumulator_value": "initial_accumulator",
}
_HARMLESS = ("foreach", "maximize", "differentiable", "capturable", "fused")  # torch's, when off


def _torch_class(optimizer_class: Callable) -> Callable:
    """millrace.optim's SGD and others stand for torch's of that name."""
    if optimizer_class.__module__.split(".")[0] == "millrace":
        return getattr(torch.optim, optimizer_class.__name__, optimizer_class)
    return optimizer_class


# ---- parameters that C workers own ----


def _bind(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    known = _ARGUMENTS[name]
    if len(args) > len(known):
        raise TypeError(f"{name}: {len(args)} positional arguments; there are {len(known)}")
    bound = {**dict(zip(known, args)), **kwargs}
    for argument, value in bound.items():
        if argument not in known and not (argument in _HARMLESS and not value):
            raise InvalidArgument(f"{name}({argument}={value!r}): owners in C do not have that")
    return {**known, **{argument: value for argument, value in bound.items() if argument in known}}


def native_options(optimizer_class: Callable, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """struct mr_dist_optimizer_options of a torch optimizer's arguments; ValueError names what C owners do
    not have."""
    name = optimizer_class.__name__
    if name not in _ARGUMENTS or optimizer_class.__module__.split(".")[0] not in ("torch", "millrace"):
        raise InvalidArgument(
            f"{optimizer_class.__module__}.{name}: owners of parameters in C have torch's "
            f"{', '.join(_ARGUMENTS)}"
        )
    bound = _bind(name, args, kwargs)
    options = ffi.new("struct mr_dist_optimizer_options *")
    options.kind = _KINDS[name]
    for argument, value in bound.items():
        if value is None:
            raise InvalidArgument(f"{name}: {argument} is missing")
        if argument in ("dampening", "lr_decay", "amsgrad"):
            if value:
                raise InvalidArgument(
                    f"{name}({argument}={value!r}): owners in C do not have that; it must be "
                    f"{_ARGUMENTS[name][argument]!r}"
                )
        elif argument == "betas":
            if not all(value):
                raise InvalidArgument(
                    f"{name}(betas={value!r}): owners in C take 0 for the default; betas are above 0"
                )
            options.beta1, options.beta2 = value
        else:
            if argument == "eps" and not value:
                raise InvalidArgument(
                    f"{name}({argument}={value!r}): owners in C take 0 for the default; it is above 0"
                )
            setattr(options, _FIELDS[argument], value)
    options.has_learning_rate = True  # or 0 would be the default
    return options


class _Native:
    """Over parameters that C workers own."""

    def __init__(
        self, optimizer_class: Callable, parameters: list[RRef], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        kwargs = dict(kwargs)
        name = kwargs.pop("name", None)
        options = native_options(optimizer_class, args, kwargs)
        text = NULL if name is None else ffi.new("char[]", name.encode())
        options.name = text
        pointers = ffi.new("struct mr_rref *[]", [parameter._pointer() for parameter in parameters])
        out = ffi.new("struct mr_dist_optimizer **")
        self._world = current()
        with waiting():
            status = lib.mr_dist_optimizer_create(self._world.rpc, options, pointers, len(parameters), out)
        check_rpc(status)
        self._native = ffi.gc(out[0], lib.mr_dist_optimizer_destroy)
        self._world.held.add(self)

    def steps(self) -> int:
        """Of all optimizers of its name."""
        if self._native is None:
            raise InvalidArgument("this optimizer is of a world that the worker has left")
        out = ffi.new("uint64_t *")
        with waiting():
            status = lib.mr_dist_optimizer_steps(self._native, out)
        check_rpc(status)
        return int(out[0])

    def step(self, context_id: int) -> None:
        """At all owners."""
        if self._native is None:
            raise InvalidArgument("this optimizer is of a world that the worker has left")
        pointer = pointer_of(find(self._world, context_id))
        with waiting():
            status = lib.mr_dist_optimizer_step(self._native, pointer, 0)
        check_rpc(status)

    def _release(self) -> None:
        native, self._native = self._native, None
        if native is not None:
            ffi.release(native)

    def _abandon(self) -> None:
        if self._native is not None:
            ffi.gc(self._native, None)
            self._native = None


# ---- parameters that Python workers own: what runs at the owner ----

_stepping = threading.Lock()


class _Owned:
    """An optimizer over parameters of this worker.

    It works on copies, and a parameter is given a copy's memory when that is finished: whoever is between
    forward and backward keeps the values
    that the forward saw.
    """

    def __init__(
        self, optimizer_class: Callable, parameters: list[RRef], args: tuple, kwargs: dict[str, Any]
    ) -> None:
        self.parameters = [rref.local_value() for rref in parameters]
        for parameter in self.parameters:
            if not isinstance(parameter, torch.Tensor):
                raise TypeError(
                    f"DistributedOptimizer: a parameter is a {type(parameter).__name__}, not a tensor"
                )
        self.copies = [torch.nn.Parameter(parameter.detach().clone()) for parameter in self.parameters]
        self.optimizer = optimizer_class(self.copies, *args, **kwargs)

    def step(self, context_id: int) -> None:
        """With the context's gradients; parameters that have none stay as they are."""
        context = current().contexts.get(context_id)
        if context is None:  # no call in it came here
            return
        with context.lock:
            gradients = dict(context.gradients)
        with _stepping:
            pairs = [(p, c) for p, c in zip(self.parameters, self.copies) if p in gradients]
            for parameter, copy in pairs:
                copy.data = parameter.detach().clone()
                copy.grad = gradients[parameter]
            try:
                if pairs:
                    self.optimizer.step()
                    with gate.change([parameter.data for parameter, _ in pairs]):
                        for parameter, copy in pairs:
                            parameter.data = copy.data
            finally:
                for _, copy in pairs:
                    copy.grad = None


class _Step(Ungated):
    """Called at the owner."""

    def __call__(self, owned: RRef, context_id: int) -> None:
        owned.local_value().step(context_id)


class DistributedOptimizer:
    """An optimizer over parameters of any workers: DistributedOptimizer(torch.optim.SGD, [RRef, ...],
    lr=0.1).

    Owners in Python run `optimizer_class` of torch, or one like those; owners in C have SGD, Adagrad and
    Adam. With `name`, nodes keep the state beside parameters that have names, and save it. Further arguments
    are the optimizer's. ValueError: no parameter, or what owners in C do not have.
    """

    def __init__(
        self, optimizer_class: Callable, params_rref: Sequence[RRef], *args: Any, **kwargs: Any
    ) -> None:
        parameters = list(params_rref)
        if not parameters:
            raise InvalidArgument("DistributedOptimizer: there is no parameter")
        native = [p for p in parameters if not p._is_python]
        owners: dict[int, list[RRef]] = {}
        for parameter in parameters:
            if parameter._is_python:
                owners.setdefault(parameter._rank, []).append(parameter)
        if "name" in kwargs and owners:
            raise InvalidArgument(
                "DistributedOptimizer: name is for owners in C; save the state of others yourself"
            )
        self._native = _Native(optimizer_class, native, args, kwargs) if native else None
        made = [
            begin(rank, _make, (_torch_class(optimizer_class), own, args, kwargs), None, -1.0, None, NULL)
            for rank, own in owners.items()
        ]
        self._owned: list[RRef] = end_all(made)

    def steps(self) -> int:
        """How many steps optimizers of this `name` have made, as far as the owners have kept them."""
        if self._native is None:
            raise InvalidArgument("DistributedOptimizer: owners in Python count no steps")
        return self._native.steps()

    def step(self, context_id: int) -> None:
        """Each owner applies the gradients of that context to its parameters; returns when all have.
        ValueError: there is no such context here, or, with owners in C, it is another worker's."""
        find(current(), context_id)
        futures = [
            begin(owned._rank, _Step(), (owned, context_id), None, -1.0, None, NULL) for owned in self._owned
        ]
        try:
            if self._native is not None:
                self._native.step(context_id)
        finally:
            end_all(futures)


def _make(optimizer_class: Callable, parameters: list[RRef], args: tuple, kwargs: dict[str, Any]) -> RRef:
    return RRef(_Owned(optimizer_class, parameters, args, kwargs))
