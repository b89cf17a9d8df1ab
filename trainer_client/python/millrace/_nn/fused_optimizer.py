"""The servers' optimizers as one of torch's: what TorchRec calls a fused optimizer."""
from __future__ import annotations

from typing import Any, Optional, Sequence

import torch


class FusedOptimizer(torch.optim.Optimizer):
    """Learning rates of modules at a server, a group for each.

    Gradients leave at the end of backward(), and the server applies them. step() and zero_grad() only have
    the pushes that follow name the rates of the groups which have been changed. A table with a schedule keeps
    that; a rate of set_call_options() stands until the group's is changed.
    """

    def __init__(self, modules: Sequence[Any]) -> None:
        """Makes the tables. modules: of millrace.nn."""
        self._modules = list(modules)
        for module in self._modules:
            module.feature.id  # noqa: B018  # a collection's table has its optimizer when it is made
        rates = [module.feature.spec.optimizer.lr for module in self._modules]
        groups = [{"params": [module.anchor], "lr": lr} for module, lr in zip(self._modules, rates)]
        self._rates = rates  #: that pushes go by
        super().__init__(groups, {})

    def _set_rates(self) -> None:
        for i, (module, group) in enumerate(zip(self._modules, self.param_groups)):
            rate = float(group["lr"])
            if rate != self._rates[i] and module.feature.spec.schedule is None:
                module.options["learning_rate"] = self._rates[i] = rate

    def step(self, closure: Any = None) -> Optional[float]:  # type: ignore[override]  # torch: overloads
        """Gradients from now on are applied with the groups' rates."""
        loss = None if closure is None else closure()
        self._set_rates()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As step(): nothing waits here that could be zeroed."""
        self._set_rates()
