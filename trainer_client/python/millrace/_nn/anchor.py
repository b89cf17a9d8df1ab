"""What stands for rows at a server among torch's parameters, so that what programs do with parameters
concerns them as well.

Each module has an anchor, a parameter without elements. Freezing it freezes the module. Where it is given to
an optimizer of torch's, the rows' gradients are its .grad between backward() and step(): a matrix of those
rows that have some, which is accumulated, zeroed, scaled and clipped like any other, and pushed by step().
The server's optimizer does the rest. Where it is given to none, backward() pushes.

Nothing of torch's is replaced for that. An optimizer asks each parameter that it is given whether it is a
leaf: so an anchor gets to know it. torch's hooks of that optimizer say when it steps.
"""
from __future__ import annotations

import functools
import sys
import threading
import types
import weakref
from typing import Any, Callable, Iterable, Optional

import numpy as np
import torch

from .fused_optimizer import FusedOptimizer
from .pushes import Gradients, Rows
from .._base import steps

_lock = threading.RLock()
_as: Any = torch.Tensor._make_subclass


class Pushed(torch.Tensor):
    """The .grad of an anchor whose gradients have left; any use of it raises an error that says so."""

    _why = (
        "the gradients were pushed by backward(): rows at a Millrace server whose module is given to an "
        "optimizer of torch's, as "
        "torch.optim.SGD(model.parameters(), lr), wait for its step()"
    )
    _is_zeroed = False
    _is_batch = False

    @staticmethod
    def of(why: str, is_batch: bool, device: torch.device) -> "Pushed":
        """why: what to write instead. is_batch: they were of a loader's batch."""
        made: Any = _as(Pushed, torch.empty(0, device=device))
        made._why, made._is_batch = why, is_batch
        return made

    @classmethod
    def __torch_function__(cls, function: Callable, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        its = [one for one in _flat(args) if isinstance(one, Pushed)]
        if name in ("zero_", "_foreach_zero_"):
            for one in its:
                one._is_zeroed = True
        elif name not in _HARMLESS:
            raise RuntimeError(its[0]._why)
        return super().__torch_function__(function, kinds, args, kwargs or {})


_HARMLESS = {
    "__get__",
    "detach_",
    "requires_grad_",
    "__repr__",
    "size",
    "dim",
    "numel",
    "element_size",
    "__hash__",
    "is_floating_point",
    "__len__",
}


def _flat(args: Any) -> Iterable[Any]:
    for one in args:
        if isinstance(one, (list, tuple)):
            yield from _flat(one)
        else:
            yield one


class Anchor(torch.nn.Parameter):
    """Of one module. Its shape is that of its gradient, and (0,) without one."""

    feature: Any
    keys: Optional[np.ndarray]  #: u64, sorted: of the rows of .grad; None: of a variable
    options: dict
    _optimizer: Any
    _asked_by: list  # optimizers that have asked since, and may have it now; weak

    def __new__(cls, feature: Any, device: Any = "cpu") -> "Anchor":
        made: Any = _as(cls, torch.empty(0, device=device), True)
        made.feature, made.keys, made.options = feature, None, {}
        made._optimizer, made._asked_by = None, []
        return made

    def __deepcopy__(self, memo: dict) -> "Anchor":
        twin = Anchor(self.feature)
        twin.requires_grad_(self.requires_grad)
        memo[id(self)] = twin
        return twin

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"what lives at a Millrace server cannot be pickled ({self.feature.name!r}): save "
            "model.state_dict()"
        )

    @property
    def is_leaf(self) -> bool:  # type: ignore[override]  # torch: an attribute
        """True. Optimizer.add_param_group() asks, of all versions of torch."""
        optimizer = sys._getframe(1).f_locals.get("self")
        if isinstance(optimizer, torch.optim.Optimizer) and not isinstance(optimizer, FusedOptimizer):
            self._asked_by.append(weakref.ref(optimizer))
            _steps_of(optimizer).watch(optimizer)
        return True

    @property
    def optimizer(self) -> Any:
        """Of torch's, which it was given to last; None: of none that is still there, or of one that steps in
        backward(), where the gradients leave by themselves."""
        while self._asked_by:
            asked_by = self._asked_by.pop(0)
            optimizer = asked_by()
            groups = () if optimizer is None else optimizer.param_groups
            if any(self is anchor for group in groups for anchor in group["params"]):
                self._optimizer = asked_by
                _steps_of(optimizer).watch(optimizer)
        if self._optimizer is None or hasattr(self, "_in_backward_optimizers"):
            return None
        return self._optimizer()

    def moved(self, device: torch.device) -> "Anchor":
        """Itself there, without a gradient; another one where torch moves no parameter in its place."""
        self.drop()
        there = self.data.to(device)
        if torch._has_compatible_shallow_copy_type(self.data, there):  # as torch.nn.Module asks
            self.data = there
            return self
        twin = Anchor(self.feature, device)
        twin.requires_grad_(self.requires_grad)
        return twin

    # ---- gradients that wait for step() ----

    def _set(self, gradient: torch.Tensor, keys: Optional[np.ndarray]) -> None:
        self.grad = None
        self.data = torch.zeros(1, dtype=gradient.dtype, device=gradient.device).expand(gradient.shape)
        self.grad = gradient
        self.keys = keys

    def drop(self) -> None:
        """It has no gradient any more."""
        self.grad = None
        self.data = torch.empty(0, device=self.device)
        self.keys = None

    def _held(self) -> Optional[torch.Tensor]:
        """A gradient that waits. One of zeros comes from zero_grad(), and is none; unless it moves rows all
        the same, as it does in torch."""
        if self.grad is None or isinstance(self.grad, Pushed):
            return None
        return self.grad if steps.is_dense(self.feature) or self.grad.count_nonzero() else None

    def add_rows(self, keys: np.ndarray, gradients: np.ndarray, options: dict) -> None:
        """Keeps what one backward pass has for these rows, keys sorted and each once."""
        with _lock:
            before, self.options = self._held(), options
            made = torch.from_numpy(gradients).to(self.device)
            if before is not None:
                assert self.keys is not None
                keys, place = np.unique(np.concatenate([self.keys, keys]), return_inverse=True)
                both = torch.cat([before, made])
                made = both.new_zeros(len(keys), both.shape[1]).index_add(
                    0, torch.from_numpy(place).to(self.device), both
                )
            self._set(made, keys)

    def add_variable(self, gradient: np.ndarray, options: dict) -> None:
        """The same for a variable, its shape."""
        with _lock:
            before, self.options = self._held(), options
            made = torch.from_numpy(np.array(gradient)).to(self.device)
            self._set(made if before is None else before + made, None)

    def run_accumulated_hooks(self) -> None:
        """What register_post_accumulate_grad_hook(), of torch 2.1, was given: a pass has ended, and its
        gradients wait."""
        for hook in (getattr(self, "_post_accumulate_grad_hooks", None) or {}).copy().values():
            hook(self)

    # ---- gradients that have left ----

    def note_pushed(self, is_batch: bool) -> None:
        """They left with the backward."""
        grad = self.grad
        if type(grad) is Pushed and not grad._is_zeroed and grad._is_batch == is_batch:
            return  # as it was
        if is_batch:
            why = (
                f"the gradients of a loader's batch for {self.feature.name!r} are pushed by backward(), each "
                "batch as a step of "
                "its own: they cannot be clipped, unscaled or accumulated; scale the loss instead"
            )
        else:
            why = (
                f"the gradients for {self.feature.name!r} were pushed by backward(), for no optimizer of "
                "torch's has them: give "
                "it the model's parameters, as torch.optim.SGD(model.parameters(), lr); then they wait for "
                "its step()"
            )
        self.drop()
        self.grad = Pushed.of(why, is_batch, self.device)

    def check_step(self) -> None:
        """Each batch is a step: raises when another one comes without zero_grad() or step() since."""
        grad = self.grad
        if self.optimizer is not None and isinstance(grad, Pushed) and not grad._is_zeroed:
            raise RuntimeError(
                f"accumulating gradients: {grad._why}; call step() or zero_grad() after each batch"
            )


# ---- optimizers of torch's ----


def _scheduled(anchor: Anchor, group: dict) -> dict:
    """The options of a push with the rows' learning rate, where a scheduler of torch's has changed that of
    their group: it changes by the same factor, unless the program or the table's schedule names one."""
    first, options = group.get("initial_lr"), anchor.options
    spec = anchor.feature.spec
    if not first or group["lr"] == first or "learning_rate" in options or spec.schedule is not None:
        return options
    return {**options, "learning_rate": spec.optimizer.lr * float(group["lr"] / first)}


class _Steps:
    """The step() of one optimizer: takes what anchors have, and pushes it."""

    def __init__(self) -> None:
        self._gradients = Gradients()  # of a step that has begun; if that failed, they go with the next one
        self._handle: Any = None

    def watch(self, optimizer: Any) -> None:
        """Once more: after the hooks that have come since, which may change gradients."""
        if not hasattr(optimizer, "register_step_pre_hook"):  # before torch 2.0
            if self._handle is None:
                _give_step(optimizer, self)
                self._handle = True
            return
        if self._handle is None:
            optimizer.register_step_post_hook(self.after)
        else:
            self._handle.remove()
        self._handle = optimizer.register_step_pre_hook(self.before)

    def _take(self, optimizer: torch.optim.Optimizer) -> None:
        """Out of the optimizer's sight, which would change the anchors."""
        with _lock:
            for group in optimizer.param_groups:
                for anchor in group["params"]:
                    if isinstance(anchor, Anchor):
                        self._take_from(anchor, group, optimizer)

    def _take_from(self, anchor: Anchor, group: dict, optimizer: torch.optim.Optimizer) -> None:
        held = anchor._held()
        if held is None or anchor.optimizer is not optimizer:
            if held is None:
                anchor.drop()
            return
        gradients, options = _unscaled(held, optimizer), _scheduled(anchor, group)
        if gradients is None:
            pass
        elif anchor.keys is None:
            self._gradients.add_variable(anchor.feature, gradients, options)
        else:
            self._gradients.add_rows(anchor.feature, Rows(anchor.keys, None, None, gradients), options)
        anchor.drop()

    def before(self, optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict) -> Any:
        """torch's hook before a step(*args, **kwargs), of which args has the optimizer: what to call
        instead."""
        if isinstance(optimizer, torch.optim.LBFGS):
            raise RuntimeError(
                "LBFGS looks at its parameters' values, and rows at a Millrace server have theirs there: "
                "give it the others, as [p for p in model.parameters() if p.numel() > 0]"
            )
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if not callable(closure):
            self._take(optimizer)
            return args, kwargs

        def watched() -> Any:
            loss = closure()
            self._take(optimizer)
            return loss

        if "closure" in kwargs:
            return args, {**kwargs, "closure": watched}
        return (args[0], watched, *args[2:]), kwargs

    def after(self, optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict) -> None:
        """torch's hook after it."""
        with _lock:
            gradients, self._gradients = self._gradients, Gradients()
        gradients.push()


def _unscaled(held: torch.Tensor, optimizer: Any) -> Optional[np.ndarray]:
    """A gradient as the optimizer is to apply it: a fused one divides by the scale of a GradScaler itself,
    and leaves out a step that has Inf. None: nothing is applied."""
    if getattr(optimizer, "found_inf", None) is not None and optimizer.found_inf.item():
        return None
    scale = getattr(optimizer, "grad_scale", None)
    gradient = held.detach() if scale is None else held.detach() / scale.to(held.device)
    return gradient.to("cpu", torch.float32).numpy()


_steps: "weakref.WeakKeyDictionary[Any, _Steps]" = weakref.WeakKeyDictionary()


def _steps_of(optimizer: Any) -> _Steps:
    with _lock:
        return _steps.setdefault(optimizer, _Steps())


def _give_step(optimizer: Any, its: _Steps) -> None:
    """Gives this one optimizer, not its class, a step() that calls both."""
    inner = optimizer.step

    @functools.wraps(inner)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = its.before(self, (self, *args), kwargs)
        result = inner(*before[0][1:], **before[1])
        its.after(self, *before)
        return result

    optimizer.step = types.MethodType(step, optimizer)  # a method: schedulers wrap it again
