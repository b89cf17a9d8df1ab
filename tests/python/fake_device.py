"""A device for torch that is none: its tensors lie in the CPU's memory, and what is copied from it without
waiting arrives when an event is waited for. Needs a torch with devices in Python (2.9 or later)."""
from __future__ import annotations

from typing import Any, Callable

import torch

NAME = "fake"
copies: list[Callable[[], None]] = []  #: those that have not been done
waits: list[int] = []  #: for each event that was waited for, how many copies had begun when it was recorded


class Event:
    """As torch.cuda.Event."""

    def record(self, stream: Any = None) -> None:
        self.count = len(copies)

    def synchronize(self) -> None:
        waits.append(self.count)
        for copy in copies[: self.count]:
            copy()
        del copies[: self.count]


class Module:
    """As torch.cuda."""

    Event = Event

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def is_initialized() -> bool:
        return True

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def current_device() -> int:
        return 0


_memory: dict[int, torch.Tensor] = {}  #: by a tensor's storage: what is there, flat, in the CPU's


def _is_there(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == NAME


def _wrap(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and not _is_there(value):
        value = value.contiguous()
        made: torch.Tensor = torch._C._acc.create_empty_tensor(value.shape, value.dtype)
        _memory[made.untyped_storage()._cdata] = value.view(-1)
        return made
    if isinstance(value, (list, tuple)):
        return type(value)(_wrap(item) for item in value)
    return value


def _unwrap(value: Any) -> Any:
    if _is_there(value):
        flat = _memory[value.untyped_storage()._cdata]
        return flat.as_strided(value.size(), value.stride(), value.storage_offset())
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if isinstance(value, (list, tuple)):
        return type(value)(_unwrap(item) for item in value)
    return value


def _any(operation: Any, *args: Any, **kwargs: Any) -> Any:
    """Any operation, by the CPU."""
    before = {id(arg): _unwrap(arg) for arg in args if _is_there(arg)}
    result = operation(
        *(before.get(id(arg), _unwrap(arg)) for arg in args),
        **{name: _unwrap(value) for name, value in kwargs.items()},
    )
    for arg in args:
        if before.get(id(arg)) is result and result is not None:
            return arg
    return _wrap(result)


def _copy_from(source: torch.Tensor, to: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    if _is_there(to):
        _unwrap(to).copy_(_unwrap(source))
    elif non_blocking:
        now, to_there = _unwrap(source).clone(), to.detach()
        copies.append(lambda: to_there.copy_(now))
    else:
        to.detach().copy_(_unwrap(source))
    return to


_libraries: list[torch.library.Library] = []


def register() -> bool:
    """Makes torch know the device. False: this torch has no devices in Python."""
    try:
        from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
    except ImportError:
        return False
    if not _libraries:
        _setup_privateuseone_for_python_backend(NAME, backend_module=Module())
        for library in (torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")):
            _libraries.append(library)
        _libraries[0].fallback(_any, "PrivateUse1")
        _libraries[1].impl("_copy_from", _copy_from, "PrivateUse1")
    return True
