"""Descriptions of tables and variables, and what becomes of them: struct mr_feature."""
from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Iterable, Union

from . import admission as _admission
from . import eviction as _eviction
from . import init as _init
from . import optim as _optim
from . import schedule as _schedule
from ._base.library import ffi, lib, text
from ._base.options import choice, whole
from ._base.structs import brief
from .errors import InvalidArgument

DTYPES = {"f32": lib.MR_F32, "f16": lib.MR_F16, "bf16": lib.MR_BF16}
POOLINGS = {
    "sum": lib.MR_POOL_SUM,
    "mean": lib.MR_POOL_MEAN,
    "sqrtn": lib.MR_POOL_SQRTN,
    "none": lib.MR_POOL_NONE,
}
_U32_MAX, _U64_MAX = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF

WHOLE = _U32_MAX  #: VariableSpec.range_values: the variable is one range, whatever its size

_ALLOWED = {  # by the name that mr_feature_check() has for a field
    "name": "it has 1 to 63 characters of A-Z, a-z, 0-9 and _./:-",
    "dim": f"it goes from 1 to {lib.MR_DIM_MAX}",
    "dims": "each is at least 1, and there are at most 2^30 elements",
    "rank": f"there are up to {lib.MR_RANK_MAX} dimensions",
    "initializer": "it is one of millrace.init",
    "init_a": "it is finite",
    "init_b": "it is finite, at least the lower limit (uniform) or 0 (normal), and no first value is "
    "infinite",
    "learning_rate": "it is at least 0 (0: values stay), above 0 with an exponential schedule, and finite",
    "weight_decay": "it is at least 0, and finite",
    "clip_value": "it is at least 0 (0: off), and finite; optim.Assign has none",
    "clip_norm": "it is at least 0 (0: off), and finite; optim.Assign has none",
    "schedule": "it is one of millrace.optim.schedule, or None; optim.Assign has none",
    "schedule_warmup_steps": "it is at least 0; optim.Assign has none",
    "schedule_steps": "it is above 0, or 0 with a constant learning rate",
    "learning_rate_end": "it is at least 0, and above 0 with an exponential schedule",
    "admission_arg": f"a probability is above 0, at most 1; observations are 1 to {lib.MR_OBSERVATIONS_MAX}",
    "eviction_arg": "it is above 0",
    "memory_bytes": f"it is 0 (no limit of its own), or at least {lib.MR_MEMORY_BYTES_MIN}",
    "filter_bytes": f"it is at most {lib.MR_FILTER_BYTES_MAX}",
    "range_values": f"it makes at most {lib.MR_RANGES_MAX} ranges; optim.RowWiseAdagrad, optim.GroupFtrl "
    "and clip_norm need the whole variable",
}
_IN_PYTHON = {  # what the fields are called here
    "schedule_warmup_steps": "schedule.warmup_steps",
    "learning_rate": "lr",
    "learning_rate_end": "schedule.end",
    "schedule_steps": "schedule.steps",
    "dims": "shape",
    "rank": "shape",
    "init_a": "initializer.a",
    "init_b": "initializer.b",
    "admission_arg": "admission.argument",
    "eviction_arg": "eviction.argument",
    "filter_bytes": "admission.filter_bytes",
    "optimizer_args": "optimizer",
}


def _single(value: float) -> float:
    """The shortest number that is the same in single precision: 0.05, not 0.05000000074505806."""
    return next(
        short
        for digits in range(6, 10)
        if ffi.new("float *", short := float(f"{value:.{digits}g}"))[0] == value
    )


def _set(feature: Any, field: str, value: Any) -> None:
    try:
        setattr(feature, field, value)
    except (TypeError, OverflowError) as error:
        raise type(error)(f"{_IN_PYTHON.get(field, field)} is {value!r}: {error}") from None


def _wrong_kind(name: str, value: object, module: str, example: str) -> TypeError:
    shown = repr(value)
    if "\n" in shown:  # as that of torch's optimizers
        shown = f"a {type(value).__module__}.{type(value).__name__}"
    return TypeError(f"{name} is {shown}; it is one of millrace.{module}, for example {module}.{example}")


def _put_optimizer(feature: Any, optimizer: _optim.Optimizer, schedule: _schedule.Schedule | None) -> None:
    if not isinstance(optimizer, _optim.Optimizer):
        raise _wrong_kind("optimizer", optimizer, "optim", "Adam(lr=0.001)")
    lib.mr_feature_set_optimizer(feature, optimizer.number)
    for i, value in enumerate(optimizer.arguments() or ()):
        feature.optimizer_args[i] = value
    _set(feature, "learning_rate", optimizer.lr)
    _set(feature, "weight_decay", optimizer.weight_decay)  # type: ignore[attr-defined]
    if schedule is None:
        return
    if not isinstance(schedule, _schedule.Schedule):
        raise _wrong_kind("schedule", schedule, "optim.schedule", "Cosine(steps=10000)")
    feature.schedule = schedule.kind
    feature.schedule_steps = whole("schedule.steps", schedule.steps, _U32_MAX)
    feature.schedule_warmup_steps = whole("schedule.warmup_steps", schedule.warmup_steps, _U32_MAX)
    _set(feature, "learning_rate_end", schedule.end)


def _put_values(feature: Any, spec: Spec) -> None:
    if not isinstance(spec.initializer, _init.Initializer):
        raise _wrong_kind("initializer", spec.initializer, "init", "uniform(-0.01, 0.01)")
    feature.dtype = choice("dtype", spec.dtype, DTYPES)
    feature.initializer = spec.initializer.kind
    _set(feature, "init_a", spec.initializer.a)
    _set(feature, "init_b", spec.initializer.b)
    feature.seed = whole("seed", spec.initializer.seed, _U64_MAX)
    _set(feature, "clip_value", spec.clip_value)
    _set(feature, "clip_norm", spec.clip_norm)


def _put_rows(feature: Any, spec: TableSpec) -> None:
    admission, eviction = spec.admission, spec.eviction
    if not isinstance(admission, _admission.Admission):
        raise _wrong_kind("admission", admission, "admission", "observations(2)")
    if not isinstance(eviction, _eviction.Eviction):
        raise _wrong_kind("eviction", eviction, "eviction", "lru()")
    feature.pooling = choice("pooling", spec.pooling, POOLINGS)
    feature.admission = admission.kind
    _set(feature, "admission_arg", admission.argument)
    feature.filter_bytes = whole("filter_bytes", admission.filter_bytes, _U64_MAX)
    feature.eviction = eviction.kind
    _set(feature, "eviction_arg", eviction.argument)
    feature.capacity_rows = whole("capacity_rows", spec.capacity_rows, _U64_MAX)
    feature.memory_bytes = whole("memory_bytes", spec.memory_bytes, _U64_MAX)


def _refuse(spec: Spec, feature: Any, field: str) -> None:
    if field == "optimizer_args":
        value, allowed = repr(spec.optimizer), spec.optimizer.allowed
        if getattr(spec.optimizer, "dense", False) and (spec.what, spec.dtype) != ("table", "f32"):
            allowed = "dense is for tables of f32"
    else:
        mine = {"name": "name", "dim": "dim", "dims": "shape", "rank": "shape"}.get(field)
        value = repr(getattr(spec, mine) if mine else getattr(feature, field))
        allowed = _ALLOWED.get(field, "it is out of its range")
    raise InvalidArgument(f"{spec.what} {spec.name!r}: {_IN_PYTHON.get(field, field)} is {value}: {allowed}")


def _checked(spec: Spec, feature: Any) -> Any:
    field = text(lib.mr_feature_check(feature))
    if field:
        _refuse(spec, feature, field)
    return feature


def _name(name: Any) -> bytes:
    if not isinstance(name, str):
        raise TypeError(f"name is {name!r}; it is a string")
    encoded = name.encode("utf-8", "replace")
    return encoded[: lib.MR_NAME_BYTES] if b"\0" not in encoded else b"?"


@dataclass(frozen=True)
class TableSpec:
    """A table to be made: what Client.table() takes."""

    __repr__ = brief

    name: str
    dim: int  #: floats in a row, 1 to 1024
    optimizer: _optim.Optimizer = _optim.SGD(lr=0.01)
    pooling: str = (
        "sum"  #: how bags are reduced: "sum", "mean", "sqrtn" (the sum over the root of the count) or "none"
    )
    initializer: _init.Initializer = _init.constant(0.0)
    dtype: str = "f32"  #: of the rows in the server's memory: "f32", "f16", "bf16"
    admission: _admission.Admission = _admission.always()
    eviction: _eviction.Eviction = _eviction.never()
    capacity_rows: int = 0  #: of the node; 0: no limit but memory
    memory_bytes: int = 0  #: of the node, rows, index and filter together; 0: the node's limit
    schedule: _schedule.Schedule | None = None  #: of the learning rate; None: it stays
    clip_value: float = 0.0  #: each element of a gradient is brought into [-clip_value, clip_value]; 0: off
    clip_norm: float = 0.0  #: a row's gradient is scaled down to this L2 norm; 0: off

    what = "table"

    def to_feature(self) -> Any:
        """struct mr_feature *, checked; raises InvalidArgument with field, value and what is allowed."""
        feature = ffi.new(
            "struct mr_feature *", lib.mr_feature_table(_name(self.name), whole("dim", self.dim, _U32_MAX))
        )
        _put_optimizer(feature, self.optimizer, self.schedule)
        _put_values(feature, self)
        _put_rows(feature, self)
        return _checked(self, feature)


@dataclass(frozen=True)
class VariableSpec:
    """A variable to be made: what Client.variable() takes."""

    __repr__ = brief

    name: str
    shape: tuple[int, ...]  #: up to 4 dimensions; () is one number
    optimizer: _optim.Optimizer = _optim.SGD(lr=0.01)
    initializer: _init.Initializer = _init.constant(0.0)
    dtype: str = "f32"
    schedule: _schedule.Schedule | None = None
    clip_value: float = 0.0
    clip_norm: float = 0.0  #: of the whole tensor's gradient
    #: this many values make a range, which is spread over cores and nodes with the others; None: the library
    #: chooses, for large variables; WHOLE: it is one range
    range_values: int | None = dataclasses.field(default=None, compare=False)

    what = "variable"

    def __post_init__(self) -> None:
        shape = (self.shape,) if isinstance(self.shape, int) else tuple(self.shape)
        object.__setattr__(self, "shape", tuple(whole("shape", n, _U32_MAX) for n in shape))

    def to_feature(self) -> Any:
        """struct mr_feature *, checked; raises InvalidArgument with field, value and what is allowed."""
        if len(self.shape) > lib.MR_RANK_MAX:
            _refuse(self, None, "rank")
        dims = ffi.new("uint32_t[]", self.shape)
        feature = ffi.new(
            "struct mr_feature *", lib.mr_feature_variable(_name(self.name), len(self.shape), dims)
        )
        _put_optimizer(feature, self.optimizer, self.schedule)
        _put_values(feature, self)
        feature.range_values = whole("range_values", self.range_values or 0, _U32_MAX)
        return _checked(self, feature)


Spec = Union[TableSpec, VariableSpec]


def _name_of(known: dict[str, int], number: int) -> str:
    return next(name for name, value in known.items() if value == number)


def spec_of(feature: Any) -> Spec:
    """The description that a struct mr_feature was made from."""
    name = ffi.string(feature.name).decode()
    arguments = [_single(value) for value in feature.optimizer_args]
    if feature.optimizer == lib.MR_OPT_SGD:
        arguments[:-1] = [0.0] * (len(arguments) - 1)  # it has none of these, whatever stands there
    optimizer = _optim.BY_NUMBER[feature.optimizer].of(
        _single(feature.learning_rate), _single(feature.weight_decay), arguments
    )
    initializer = _init.Initializer(
        feature.initializer, _single(feature.init_a), _single(feature.init_b), feature.seed
    )
    kind = _schedule.BY_KIND[feature.schedule]
    schedule: _schedule.Schedule | None = None
    if kind is not _schedule.Constant:
        schedule = kind(
            feature.schedule_steps, _single(feature.learning_rate_end), feature.schedule_warmup_steps
        )
    elif feature.schedule_warmup_steps:
        schedule = _schedule.Constant(feature.schedule_warmup_steps)
    common: dict[str, Any] = {
        "optimizer": optimizer,
        "initializer": initializer,
        "schedule": schedule,
        "dtype": _name_of(DTYPES, feature.dtype),
        "clip_value": _single(feature.clip_value),
        "clip_norm": _single(feature.clip_norm),
    }
    if feature.kind == lib.MR_VARIABLE:
        return VariableSpec(
            name, tuple(feature.dims[0 : feature.rank]), range_values=feature.range_values or None, **common
        )
    return TableSpec(
        name,
        feature.dims[0],
        pooling=_name_of(POOLINGS, feature.pooling),
        admission=_admission.Admission(
            feature.admission, _single(feature.admission_arg), feature.filter_bytes
        ),
        eviction=_eviction.Eviction(feature.eviction, _single(feature.eviction_arg)),
        capacity_rows=feature.capacity_rows,
        memory_bytes=feature.memory_bytes,
        **common,
    )


@dataclass(frozen=True)
class FeatureInfo:
    """A table or variable that the node holds."""

    __repr__ = brief

    id: int
    spec: Spec
    rows: int  #: tables
    bytes: int  #: memory held for it
    rows_refused: int = 0  #: not made, as memory or the table's capacity was used up
    gradients_without_row: int = 0  #: left out: their keys have no row
    gradients_skipped: int = 0  #: left out: NaN or Inf, or values that would have become so

    @property
    def name(self) -> str:
        """Of the table or variable."""
        return self.spec.name

    @property
    def is_table(self) -> bool:
        """Otherwise it is a variable."""
        return isinstance(self.spec, TableSpec)


def check_options(what: str, kind: type, options: Iterable[str]) -> None:
    """TypeError over a name that a description does not have, with the one that was meant."""
    known = [field.name for field in dataclasses.fields(kind) if field.name not in ("name", "dim", "shape")]
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, 1)
            meant = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
            raise TypeError(f"{what}() has no option {name!r}; {meant}")
