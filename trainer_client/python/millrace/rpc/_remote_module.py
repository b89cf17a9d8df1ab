"""A module of torch that lives on another worker, as torch.distributed.nn.RemoteModule."""
from __future__ import annotations

from typing import Any, Callable, NoReturn, Sequence

import torch

from ..errors import InvalidArgument
from ._calls import rpc_async, rpc_sync
from ._future import Future
from ._rref import RRef

# Of torch.nn.Module, what would need the module itself here. Callers of forward() get none of it.
_NOT_REMOTE = (
    "add_module apply bfloat16 buffers children cpu cuda double extra_repr float half "
    "ipu load_state_dict "
    "modules named_buffers named_children named_modules named_parameters parameters register_backward_hook "
    "register_buffer register_forward_hook register_forward_pre_hook register_parameter requires_grad_ "
    "share_memory state_dict to type xpu zero_grad"
).split()


_INSTEAD = {"parameters": "Please use ``remote_parameters`` instead. "}


def _make(module_class: Callable[..., torch.nn.Module], args: tuple, kwargs: dict) -> RRef:
    """At the owner."""
    module = module_class(*args, **kwargs)
    if not isinstance(module, torch.nn.Module):
        raise InvalidArgument(
            f"module_cls={module_class!r} makes a {type(module).__name__}, not a torch.nn.Module"
        )
    return RRef(module)


def _forward(reference: RRef, args: tuple, kwargs: dict) -> Any:
    return reference.local_value()(*args, **kwargs)


def _parameters(reference: RRef, recurse: bool) -> list[RRef]:
    return [RRef(parameter) for parameter in reference.local_value().parameters(recurse)]


def _set_training(reference: RRef, mode: bool) -> None:
    reference.local_value().train(mode)


def _made(on: str | int, module_rref: RRef) -> "RemoteModule":
    """What came from another worker."""
    made = RemoteModule.__new__(RemoteModule)
    torch.nn.Module.__init__(made)
    made.on, made.module_rref = on, module_rref
    return made


def _worker_of(remote_device: str) -> str | int:
    worker, _, device = remote_device.partition("/")
    if device not in ("", "cpu"):
        raise InvalidArgument(
            f'remote_device="{remote_device}": tensors travel between main memories; use "{worker}/cpu", and '
            "have the module move its inputs to the device"
        )
    prefix, _, rank = worker.partition(":")
    if prefix == "rank" and rank.isdigit():
        return int(rank)
    if not worker:
        raise InvalidArgument(f'remote_device="{remote_device}": use "WORKER/cpu", or "rank:N/cpu"')
    return worker


class RemoteModule(torch.nn.Module):
    """A module on another worker, which calls it and keeps its parameters there. May be passed to other
    workers."""

    def __init__(
        self,
        remote_device: str,
        module_cls: Callable[..., torch.nn.Module],
        args: Sequence[Any] | None = None,
        kwargs: dict | None = None,
        _module_interface_cls: Any = None,
    ) -> None:
        """Makes module_cls(*args, **kwargs) on the worker of remote_device: "WORKER/cpu" or "rank:N/cpu", and
        raises what that raises. Python functions must be on at both workers."""
        super().__init__()
        if _module_interface_cls is not None:
            raise InvalidArgument("_module_interface_cls: TorchScript's modules cannot be remote")
        self.on = _worker_of(remote_device)
        self.module_rref = rpc_sync(self.on, _make, (module_cls, tuple(args or ()), dict(kwargs or {})))

    @staticmethod
    def init_from_module_rref(
        remote_device: str, module_rref: RRef, _module_interface_cls: Any = None
    ) -> "RemoteModule":
        """Returns a RemoteModule of a module that is on that worker already."""
        if _module_interface_cls is not None:
            raise InvalidArgument("_module_interface_cls: TorchScript's modules cannot be remote")
        return _made(_worker_of(remote_device), module_rref)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module, and returns what it returns. In an autograd context gradients come back to it."""
        return rpc_sync(self.module_rref._rank, _forward, (self.module_rref, args, kwargs))

    def forward_async(self, *args: Any, **kwargs: Any) -> Future:
        """Does the same without waiting."""
        return rpc_async(self.module_rref._rank, _forward, (self.module_rref, args, kwargs))

    def remote_parameters(self, recurse: bool = True) -> list[RRef]:
        """Returns references to the module's parameters, for a DistributedOptimizer."""
        return rpc_sync(self.module_rref._rank, _parameters, (self.module_rref, recurse))

    def train(self, mode: bool = True) -> "RemoteModule":
        """Calls the module's train() there."""
        rpc_sync(self.module_rref._rank, _set_training, (self.module_rref, mode))
        return self

    def eval(self) -> "RemoteModule":
        """Calls the module's eval() there."""
        return self.train(False)

    def get_module_rref(self) -> RRef:
        """Returns the reference to the module."""
        return self.module_rref

    def __reduce__(self) -> tuple:
        """Another worker gets a module of its own, over the same one: what this one was given besides stays
        here."""
        return _made, (self.on, self.module_rref)

    def __repr__(self) -> str:
        return f"RemoteModule(on={self.on!r})"


def _not_remote(name: str) -> Callable[..., NoReturn]:
    def method(self: RemoteModule, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise InvalidArgument(
            f"Method ``{name}`` not supported for RemoteModule. {_INSTEAD.get(name, '')}The module is on "
            f"{self.on!r}: call a function there, with get_module_rref() as its argument"
        )

    return method


for _name in _NOT_REMOTE:
    setattr(RemoteModule, _name, _not_remote(_name))
