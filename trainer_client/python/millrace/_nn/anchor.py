"""What stands for rows at a server among torch's parameters, so that what programs do with parameters
concerns them as well.

Each module has an anchor, a parameter without elements. Freezing it freezes the module. Where it is given to
an optimizer of torch's, the rows' gradients are its .grad between backward() and step(): a matrix of those
rows that have some, which is accumulated, zeroed, scaled and clipped like any other, and pushed by step().
The server's optimizer does the rest. Where it is given to none, backward() pushes.
"""
from __future__ import annotations

import threading
import types
import weakref
from typing import Any, Callable, Iterable, Optional

import numpy as np
import torch

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

    def __new__(cls, feature: Any, device: Any = "cpu") -> "Anchor":
        made: Any = _as(cls, torch.empty(0, device=device), True)
        made.feature, made.keys, made.options, made._optimizer = feature, None, {}, None
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
    def optimizer(self) -> Any:
        """Of torch's, which it was given to last; None: of none that is still there, or of one that steps in
        backward(), where the gradients leave by themselves."""
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


def _anchors_of(group: dict) -> list[Anchor]:
    return [param for param in group["params"] if isinstance(param, Anchor)]


def _scheduled(anchor: Anchor, group: dict) -> dict:
    """The options of a push with the rows' learning rate, where a scheduler of torch's has changed that of
    their group: it changes by the same factor, unless the program or the table's schedule names one."""
    first, options = group.get("initial_lr"), anchor.options
    spec = anchor.feature.spec
    if not first or group["lr"] == first or "learning_rate" in options or spec.schedule is not None:
        return options
    return {**options, "learning_rate": spec.optimizer.lr * float(group["lr"] / first)}


def _take(optimizer: torch.optim.Optimizer, taken: list) -> None:
    """Out of the optimizer's sight, which would change the anchors."""
    with _lock:
        for group in optimizer.param_groups:
            for anchor in _anchors_of(group):
                held = anchor._held()
                if held is not None and anchor.optimizer is optimizer:
                    gradients = held.detach().to("cpu", torch.float32).numpy()
                    taken.append((anchor, anchor.keys, gradients, _scheduled(anchor, group)))
                if anchor.optimizer is optimizer or held is None:
                    anchor.drop()


def _step(optimizer: torch.optim.Optimizer, closure: Optional[Callable] = None, **kwargs: Any) -> Any:
    from .backward import push_taken

    step: Any = type(optimizer).step
    if isinstance(optimizer, torch.optim.LBFGS):
        raise RuntimeError(
            "LBFGS looks at its parameters' values, and rows at a Millrace server have theirs there: give it "
            "the "
            "others, as [p for p in model.parameters() if p.numel() > 0]"
        )
    taken: list = []
    if closure is None:
        _take(optimizer, taken)
        result = step(optimizer, **kwargs)
    else:
        run = closure

        def watched() -> Any:
            loss = run()
            _take(optimizer, taken)
            return loss

        result = step(optimizer, watched, **kwargs)
    push_taken(taken)
    return result


add_param_group = torch.optim.Optimizer.add_param_group  #: torch's own


def _add_and_adopt(self: torch.optim.Optimizer, param_group: dict) -> None:
    add_param_group(self, param_group)
    anchors = [anchor for group in self.param_groups for anchor in _anchors_of(group)]
    for anchor in anchors:
        anchor._optimizer = weakref.ref(self)
    if anchors and not isinstance(vars(self).get("step"), types.MethodType):
        vars(self)["step"] = types.MethodType(_step, self)  # a method: schedulers wrap it again


_add_and_adopt.__doc__ = add_param_group.__doc__
setattr(torch.optim.Optimizer, "add_param_group", _add_and_adopt)


def ddp_share() -> float:
    """What a gradient counts in this forward: torch's DistributedDataParallel averages those of its
    processes, and a server adds them up."""
    distributed, parallel = torch.distributed, torch.nn.parallel
    if not distributed.is_available() or not distributed.is_initialized():
        return 1.0
    ddp: Any = parallel.DistributedDataParallel
    active = ddp._get_active_ddp_module()
    return 1.0 if active is None else 1.0 / distributed.get_world_size(active.process_group)
