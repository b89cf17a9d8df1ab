"""Descriptions of tables and variables, without a node: every field of struct mr_feature is reached, and
comes back."""
import math
from dataclasses import fields

import pytest

import millrace
from millrace import TableSpec, VariableSpec, admission, eviction, init, optim
from millrace._base.library import ffi, lib
from millrace.feature import spec_of
from millrace.optim import schedule

OPTIMIZERS = [
    optim.SGD(lr=0.1),
    optim.SGD(0.1, momentum=0.9, dampening=0.1),
    optim.SGD(0.1, momentum=0.9, nesterov=True),
    optim.Adagrad(),
    optim.Adagrad(lr=0.3, initial_accumulator_value=0.1, eps=1e-6, weight_decay=0.01),
    optim.RowWiseAdagrad(lr=0.2),
    optim.Adam(),
    optim.Adam(lr=0.01, betas=(0.8, 0.99), eps=1e-7),
    optim.AdamW(),
    optim.AdamW(bias_correction="step"),
    optim.SparseAdam(lr=0.01, betas=(0.8, 0.99), eps=1e-7),
    optim.Ftrl(lr=0.1, initial_accumulator_value=0.1, beta=0.5, l1=0.01, l2=0.02),
    optim.GroupFtrl(lr=0.1, l1=0.01, l2=0.02, l21=0.03),
    optim.Assign(),
]
DENSE = [
    optim.SGD(0.1, dense=True),
    optim.SGD(0.1, momentum=0.9, dense=True),
    optim.Adagrad(weight_decay=0.01, dense=True),
    optim.Adam(dense=True),
    optim.AdamW(dense=True),
]
SCHEDULES = [
    None,
    schedule.Constant(warmup_steps=7),
    schedule.Linear(steps=100, end=0.001),
    schedule.Cosine(200, 0.01, warmup_steps=10),
    schedule.Exponential(steps=300, end=0.0001),
]
INITIALIZERS = [
    init.constant(2.5, seed=9),
    init.uniform(-0.01, 0.02, seed=2**64 - 1),
    init.normal(0.5, 0.25),
    init.truncated_normal(),
]
ADMISSIONS = [
    admission.always(),
    admission.probability(0.25),
    admission.observations(3),
    admission.observations(255, filter_bytes=1 << 20),
]
EVICTIONS = [
    eviction.never(),
    eviction.age(3600.5),
    eviction.lru(),
    eviction.lfu(),
    eviction.norm(1e-3),
    eviction.steps(1000),
]


@pytest.mark.parametrize(
    "field, values",
    [
        ("optimizer", OPTIMIZERS + DENSE),
        ("initializer", INITIALIZERS),
        ("admission", ADMISSIONS),
        ("eviction", EVICTIONS),
        ("pooling", ["sum", "mean", "sqrtn", "none"]),
        ("dtype", ["f32", "f16", "bf16"]),
        ("dim", [1, 16, 1024]),
        ("capacity_rows", [0, 2**64 - 1]),
        ("memory_bytes", [0, 1 << 20]),
        ("clip_value", [0.0, 1.5]),
        ("clip_norm", [0.0, 0.1]),
    ],
)
def test_a_table_comes_back_as_it_was_described(field, values):
    for value in values:
        spec = TableSpec(**{"name": "t", "dim": 4, field: value})
        assert spec_of(spec.to_feature()) == spec


def test_schedules_come_back():
    for wanted in SCHEDULES:
        for kind in (
            TableSpec("t", 4, optim.Adam(), schedule=wanted),
            VariableSpec("v", (3, 4), optim.Adam(), schedule=wanted),
        ):
            assert spec_of(kind.to_feature()) == kind


def test_a_variable_comes_back():
    for shape in ((), (5,), (1, 2, 3, 4)):
        for optimizer in OPTIMIZERS:
            clips = (0.0, 0.0) if isinstance(optimizer, optim.Assign) else (1.0, 2.0)
            spec = VariableSpec("v", shape, optimizer, init.normal(0, 0.1, seed=3), "bf16", None, *clips)
            assert spec_of(spec.to_feature()) == spec
    assert VariableSpec("v", 7).shape == (7,)
    for range_values in (None, 3, millrace.WHOLE):
        spec = VariableSpec("v", 7, range_values=range_values)
        assert spec_of(spec.to_feature()).range_values == range_values


def test_every_field_is_set_by_something():
    """A field that no description changes would be out of reach."""
    base = TableSpec("t", 4, optim.SGD(lr=0.02)).to_feature()
    specs = [
        TableSpec(
            "other",
            5,
            optimizer,
            pooling="mean",
            initializer=initial,
            dtype="f16",
            admission=admitted,
            eviction=evicted,
            capacity_rows=9,
            memory_bytes=1 << 30,
            schedule=rate,
            clip_value=1.0,
            clip_norm=2.0,
        )
        for optimizer in OPTIMIZERS[:-1]
        for initial in INITIALIZERS[1:2]
        for admitted in ADMISSIONS[2:]
        for evicted in EVICTIONS[1:2]
        for rate in SCHEDULES[3:4]
    ] + [TableSpec("t", 4, optim.Adam(weight_decay=0.5))]
    features = [spec.to_feature() for spec in specs] + [
        VariableSpec("t", (2, 2), range_values=2).to_feature()
    ]
    for name, _ in ffi.typeof("struct mr_feature").fields:
        if name in ("altered", "reserved"):  # not for callers to set
            continue
        plain = [
            ffi.buffer(ffi.addressof(f, name))[:]
            if isinstance(getattr(f, name), ffi.CData)
            else getattr(f, name)
            for f in [base, *features]
        ]
        assert any(value != plain[0] for value in plain[1:]), name


def test_defaults_are_the_library_s_own():
    for spec, made in (
        (TableSpec("t", 4), lib.mr_feature_table(b"t", 4)),
        (VariableSpec("v", (2, 3)), lib.mr_feature_variable(b"v", 2, ffi.new("uint32_t[]", [2, 3]))),
    ):
        assert lib.mr_feature_diff(spec.to_feature(), ffi.new("struct mr_feature *", made)) == ffi.NULL
    for kind in (optim.Adagrad, optim.RowWiseAdagrad, optim.Adam, optim.AdamW):
        theirs = ffi.new("struct mr_feature *", lib.mr_feature_table(b"t", 4))
        lib.mr_feature_set_optimizer(theirs, kind().number)
        ours = TableSpec("t", 4, kind()).to_feature()
        assert list(ours.optimizer_args) == list(theirs.optimizer_args)


def test_optimizers_have_torch_s_names_and_defaults():
    torch = pytest.importorskip("torch")
    weight = torch.zeros(1, requires_grad=True)
    for ours, theirs in (
        (optim.SGD(lr=0.1), torch.optim.SGD([weight], lr=0.1)),
        (optim.Adagrad(), torch.optim.Adagrad([weight])),
        (optim.Adam(), torch.optim.Adam([weight])),
        (optim.AdamW(), torch.optim.AdamW([weight])),
        (optim.SparseAdam(), torch.optim.SparseAdam([weight])),
    ):
        named = {field.name for field in fields(ours)} - {"bias_correction", "dense"}
        if isinstance(theirs, torch.optim.SparseAdam):
            named -= {"weight_decay", "amsgrad"}
        assert named <= set(theirs.defaults) | {"initial_accumulator_value"}
        for name in named:
            assert getattr(ours, name) == theirs.defaults.get(name, 0), (ours, name)


@pytest.mark.parametrize(
    "change, says",
    [
        ({"name": ""}, "table '': name is ''.*1 to 63"),
        ({"name": "a b"}, "name is 'a b'"),
        ({"name": "x" * 64}, "1 to 63"),
        ({"name": "é"}, "name is"),
        ({"name": "a\0b"}, "name is"),
        ({"dim": 0}, "dim is 0: it goes from 1 to 1024"),
        ({"dim": 1025}, "dim is 1025"),
        ({"dim": -1}, "dim is -1"),
        ({"dim": 2**32 + 4}, "dim is 4294967300"),
        ({"pooling": "max"}, "pooling is 'max'; it is one of sum, mean, sqrtn, none"),
        ({"dtype": "f64"}, "dtype is 'f64'"),
        ({"optimizer": optim.SGD(lr=-1)}, "lr is -1.0: it is at least 0"),
        ({"optimizer": optim.SGD(lr=math.nan)}, "lr is nan"),
        ({"optimizer": optim.SGD(lr=1e39)}, "lr is inf"),
        ({"optimizer": optim.Adam(weight_decay=-1)}, "weight_decay is -1.0"),
        ({"optimizer": optim.Adam(betas=(1.0, 0.9))}, "Adam.*betas go from 0 to below 1"),
        ({"optimizer": optim.SGD(lr=1, nesterov=True)}, "nesterov needs a momentum"),
        ({"optimizer": optim.Adagrad(eps=0)}, "not both 0"),
        ({"optimizer": optim.AdamW(dense=True), "dtype": "bf16"}, "AdamW.*: dense is for tables of f32"),
        ({"optimizer": optim.Adam(betas=(1.0, 0.9), dense=True)}, "Adam.*betas go from 0 to below 1"),
        ({"optimizer": optim.Ftrl(lr=1, l1=-1)}, "at least 0"),
        ({"initializer": init.uniform(1, 0)}, "initializer.b is 0.0: it is"),
        ({"initializer": init.constant(math.inf)}, "initializer.a is inf"),
        ({"initializer": init.constant(0, seed=-1)}, "seed is -1"),
        ({"admission": admission.probability(1.5)}, "admission.argument is 1.5: a probability is"),
        ({"admission": admission.observations(256)}, "observations are 1 to 255"),
        ({"admission": admission.observations(2, filter_bytes=2**40)}, "admission.filter_bytes is"),
        ({"eviction": eviction.age(0)}, "eviction.argument is 0.0: it is above 0"),
        ({"memory_bytes": 5}, "memory_bytes is 5"),
        ({"capacity_rows": 2**64}, "capacity_rows is"),
        ({"clip_norm": -0.5}, "clip_norm is -0.5"),
        ({"clip_value": math.inf}, "clip_value is inf"),
        ({"schedule": schedule.Linear(steps=0)}, "schedule.steps is 0"),
        ({"schedule": schedule.Exponential(10)}, "schedule.end is 0.0"),
        (
            {"optimizer": optim.SGD(lr=0), "schedule": schedule.Exponential(10, 0.1)},
            "lr is 0.0.*above 0 with an exp",
        ),
        ({"schedule": schedule.Linear(steps=-1)}, "schedule.steps is -1"),
        ({"optimizer": optim.Assign(), "clip_norm": 1.0}, "clip_norm is 1.0.*optim.Assign has none"),
        (
            {"optimizer": optim.Assign(), "schedule": schedule.Cosine(10)},
            "schedule is .*optim.Assign has none",
        ),
    ],
)
def test_what_is_out_of_range_is_refused_with_field_value_and_range(change, says):
    with pytest.raises(ValueError, match=says):
        TableSpec(**{"name": "t", "dim": 4, **change}).to_feature()


@pytest.mark.parametrize(
    "change, says",
    [
        ({"name": 5}, "name is 5; it is a string"),
        ({"dim": 1.5}, "dim is 1.5"),
        ({"optimizer": "adam"}, "one of millrace.optim, for example optim.Adam"),
        ({"optimizer": optim.Adam}, r"for example optim.Adam\(lr=0.001\)"),
        ({"initializer": 0.5}, "one of millrace.init, for example init.uniform"),
        ({"admission": "always"}, "one of millrace.admission, for example admission.observations"),
        ({"eviction": "lru"}, r"one of millrace.eviction, for example eviction.lru\(\)"),
        ({"schedule": "cosine"}, "one of millrace.optim.schedule, for example optim.schedule.Cosine"),
        ({"optimizer": optim.SGD(lr="big")}, "lr is 'big'"),
        ({"clip_norm": "x"}, "clip_norm is 'x'"),
    ],
)
def test_what_is_of_another_type_is_refused(change, says):
    with pytest.raises(TypeError, match=says):
        TableSpec(**{"name": "t", "dim": 4, **change}).to_feature()


def test_dense_optimizers_are_for_tables_of_f32():
    with pytest.raises(ValueError, match="SGD.*: dense is for tables of f32"):
        VariableSpec("v", 4, optim.SGD(0.1, momentum=0.9, dense=True)).to_feature()
    with pytest.raises(ValueError, match="dense is True; the server's optimizer has only False"):
        optim.RowWiseAdagrad(dense=True)


def test_shapes_out_of_range_are_refused():
    for shape, says in (
        ((1, 1, 1, 1, 1), "shape is .*up to 4 dimensions"),
        ((0, 3), r"shape is \(0, 3\)"),
        ((-1,), "shape is -1"),
        ((2**31, 2), "2.30 elements"),
    ):
        with pytest.raises(ValueError, match=says):
            VariableSpec("v", shape).to_feature()


def test_what_torch_has_and_the_server_does_not_is_refused():
    for refused in (
        lambda: optim.Adagrad(lr_decay=0.1),
        lambda: optim.Adam(amsgrad=True),
        lambda: optim.RowWiseAdagrad(lr_decay=0.1),
    ):
        with pytest.raises(ValueError, match="has only"):
            refused()
    with pytest.raises(ValueError, match="bias_correction is 'table'; it is 'row' or 'step'"):
        optim.Adam(bias_correction="table")
    assert issubclass(millrace.InvalidArgument, ValueError)
