"""The server's optimizers, with torch's names, arguments and defaults: parts of a table's or variable's
description.

docs/optimizers.md has the formulas. Rows that a push does not touch stay as they are, as with torch's sparse
optimizers; unless the optimizer is dense.

dense=True, of SGD, Adagrad, Adam and AdamW: as of torch's nn.EmbeddingBag(sparse=False), each step moves all
rows of the table. In those that do not touch a row its gradient is 0, with which momentum, old moments and
weight decay still move it. A row goes through the steps that it has missed when it is next touched, and
lookups show what they make of it by then; so it has one more float of state, lookups read states as well as
values, and rows cannot be looked up ahead unless they may be stale. Of tables of f32. Steps are those that
calls name, which the modules of millrace.nn do by themselves.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from . import schedule
from ._base.library import lib

__all__ = [
    "Optimizer",
    "SGD",
    "Adagrad",
    "RowWiseAdagrad",
    "Adam",
    "SparseAdam",
    "AdamW",
    "Ftrl",
    "GroupFtrl",
    "Assign",
    "schedule",
]


@dataclass(frozen=True)
class Optimizer:
    """A learning rate and what each optimizer adds to it. lr: at least 0, at which values stay; weight_decay:
    L2, at least 0."""

    lr: float
    allowed: ClassVar[str] = ""
    counts_steps: ClassVar[bool]  #: whether rows go by the numbers of steps; of each optimizer

    def __post_init__(self) -> None:
        is_by_step = getattr(self, "bias_correction", "row") == "step"
        object.__setattr__(self, "counts_steps", is_by_step or getattr(self, "dense", False))

    @property
    def number(self) -> int:
        """enum mr_optimizer."""
        raise NotImplementedError

    def arguments(self) -> tuple[float, ...] | None:
        """optimizer_args; None: the library's own for this optimizer."""
        raise NotImplementedError

    @classmethod
    def of(cls, lr: float, weight_decay: float, arguments: list[float]) -> Optimizer:
        """The other way round."""
        raise NotImplementedError


def _with_dense(arguments: tuple[float, ...], dense: bool) -> tuple[float, ...]:
    return (*arguments, *[0.0] * (lib.MR_OPTIMIZER_ARG_DENSE - len(arguments)), 1.0) if dense else arguments


def _only(name: str, value: Any, wanted: Any) -> None:
    if value != wanted:
        raise ValueError(f"{name} is {value!r}; the server's optimizer has only {wanted!r}")


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent, as torch.optim.SGD. momentum, dampening: from 0 to below 1. dense: each
    step moves all rows of a table, as said above."""

    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    dense: bool = False
    allowed: ClassVar[str] = (
        "momentum and dampening go from 0 to below 1; nesterov needs a momentum above 0 and no " "dampening"
    )

    @property
    def number(self) -> int:
        return lib.MR_OPT_MOMENTUM if self.momentum != 0 or self.nesterov else lib.MR_OPT_SGD

    def arguments(self) -> tuple[float, ...] | None:
        if self.number == lib.MR_OPT_SGD:
            return _with_dense((), True) if self.dense else None
        return _with_dense((self.momentum, self.dampening, float(self.nesterov)), self.dense)

    @classmethod
    def of(cls, lr: float, weight_decay: float, arguments: list[float]) -> Optimizer:
        return cls(
            lr,
            arguments[0],
            arguments[1],
            weight_decay,
            arguments[2] != 0,
            arguments[lib.MR_OPTIMIZER_ARG_DENSE] != 0,
        )


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """As torch.optim.Adagrad. initial_accumulator_value and eps: at least 0, not both 0. dense: each step
    moves all rows of a table, as said above; without weight decay that comes to the same."""

    lr: float = 0.01
    lr_decay: float = 0.0
    weight_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10
    dense: bool = False
    allowed: ClassVar[str] = "initial_accumulator_value and eps are at least 0, and not both 0"
    _number: ClassVar[int] = lib.MR_OPT_ADAGRAD

    def __post_init__(self) -> None:
        super().__post_init__()
        _only("lr_decay", self.lr_decay, 0)

    @property
    def number(self) -> int:
        return self._number

    def arguments(self) -> tuple[float, ...]:
        return _with_dense((self.initial_accumulator_value, self.eps), self.dense)

    @classmethod
    def of(cls, lr: float, weight_decay: float, arguments: list[float]) -> Optimizer:
        return cls(
            lr, 0.0, weight_decay, arguments[0], arguments[1], arguments[lib.MR_OPTIMIZER_ARG_DENSE] != 0
        )


@dataclass(frozen=True)
class RowWiseAdagrad(Adagrad):
    """Adagrad with one accumulator for each row: the mean of its squared gradients. A table of dim 16 takes 4
    bytes of state for each row, not 64."""

    _number: ClassVar[int] = lib.MR_OPT_ROWWISE_ADAGRAD

    def __post_init__(self) -> None:
        super().__post_init__()
        _only("dense", self.dense, False)


@dataclass(frozen=True)
class Adam(Optimizer):
    """As torch.optim.Adam, of the rows that a push touches. betas: from 0 to below 1; eps: above 0.

    bias_correction: "row" counts the updates of each row, so that the first steps of one that comes late are
    corrected like those of any other; "step" goes by the step that a push names, and corrects eps as well, as
    torch.optim.SparseAdam does. The modules of millrace.nn name it by themselves; a push without a step is
    corrected by the updates of each row.

    dense: each step moves all rows of a table, as said above; then the updates of a row are the steps.
    """

    lr: float = 0.001
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False
    bias_correction: str = "row"
    dense: bool = False
    allowed: ClassVar[str] = "betas go from 0 to below 1, eps is above 0"
    _number: ClassVar[int] = lib.MR_OPT_ADAM

    def __post_init__(self) -> None:
        super().__post_init__()
        _only("amsgrad", self.amsgrad, False)
        if self.bias_correction not in ("row", "step"):
            raise ValueError(f"bias_correction is {self.bias_correction!r}; it is 'row' or 'step'")

    @property
    def number(self) -> int:
        return self._number

    def arguments(self) -> tuple[float, ...]:
        beta1, beta2 = self.betas
        return _with_dense((beta1, beta2, self.eps, float(self.bias_correction == "step")), self.dense)

    @classmethod
    def of(cls, lr: float, weight_decay: float, arguments: list[float]) -> Optimizer:
        bias_correction = "step" if arguments[3] else "row"
        return cls(
            lr,
            (arguments[0], arguments[1]),
            arguments[2],
            weight_decay,
            bias_correction=bias_correction,
            dense=arguments[lib.MR_OPTIMIZER_ARG_DENSE] != 0,
        )


def SparseAdam(lr: float = 0.001, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8) -> Adam:
    """As torch.optim.SparseAdam: Adam with bias_correction="step"."""
    return Adam(lr, betas, eps, bias_correction="step")


@dataclass(frozen=True)
class AdamW(Adam):
    """As torch.optim.AdamW: weight decay apart from the gradient."""

    weight_decay: float = 0.01
    _number: ClassVar[int] = lib.MR_OPT_ADAMW


@dataclass(frozen=True)
class Ftrl(Optimizer):
    """FTRL-proximal (McMahan et al., KDD 2013). All at least 0; initial_accumulator_value and beta not both
    0."""

    initial_accumulator_value: float = 0.0
    beta: float = 1.0
    l1: float = 0.0
    l2: float = 0.0
    weight_decay: float = 0.0
    allowed: ClassVar[str] = "its arguments are at least 0, and initial_accumulator_value and beta not both 0"

    @property
    def number(self) -> int:
        return lib.MR_OPT_FTRL

    def arguments(self) -> tuple[float, ...]:
        return self.initial_accumulator_value, self.beta, self.l1, self.l2

    @classmethod
    def of(cls, lr: float, weight_decay: float, arguments: list[float]) -> Optimizer:
        return cls(lr, *arguments[:4], weight_decay)  # type: ignore[call-arg]


@dataclass(frozen=True)
class GroupFtrl(Optimizer):
    """FTRL with a group lasso: a row is zeros as a whole, or not at all (Yue et al., ECML PKDD 2021)."""

    initial_accumulator_value: float = 0.0
    beta: float = 1.0
    l1: float = 0.0
    l2: float = 0.0
    l21: float = 0.0
    weight_decay: float = 0.0
    allowed: ClassVar[str] = Ftrl.allowed

    @property
    def number(self) -> int:
        return lib.MR_OPT_GROUP_FTRL

    def arguments(self) -> tuple[float, ...]:
        return self.initial_accumulator_value, self.beta, self.l1, self.l2, self.l21

    @classmethod
    def of(cls, lr: float, weight_decay: float, arguments: list[float]) -> Optimizer:
        return cls(lr, *arguments[:5], weight_decay)  # type: ignore[call-arg]


@dataclass(frozen=True)
class Assign(Optimizer):
    """No optimizer: what is pushed becomes the row, and makes it. For programs that have an optimizer of
    their own; then weight decay, clipping and learning rates are theirs, too."""

    lr: float = 0.01
    weight_decay: ClassVar[float] = 0.0

    @property
    def number(self) -> int:
        return lib.MR_OPT_ASSIGN

    def arguments(self) -> tuple[float, ...]:
        return ()

    @classmethod
    def of(cls, lr: float, weight_decay: float, arguments: list[float]) -> Optimizer:
        return cls()


BY_NUMBER: dict[int, type[Optimizer]] = {
    lib.MR_OPT_SGD: SGD,
    lib.MR_OPT_MOMENTUM: SGD,
    lib.MR_OPT_ADAGRAD: Adagrad,
    lib.MR_OPT_ROWWISE_ADAGRAD: RowWiseAdagrad,
    lib.MR_OPT_ADAM: Adam,
    lib.MR_OPT_ADAMW: AdamW,
    lib.MR_OPT_FTRL: Ftrl,
    lib.MR_OPT_GROUP_FTRL: GroupFtrl,
    lib.MR_OPT_ASSIGN: Assign,
}


def __getattr__(name: str) -> Any:
    if name == "DistributedOptimizer":
        from .rpc._dist_optimizer import DistributedOptimizer

        return DistributedOptimizer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
