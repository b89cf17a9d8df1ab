"""TorchRec's collections over tables at a server, beside TorchRec's own.

With a stand-in for TorchRec, or with TorchRec where it is installed (with_torch.py).
"""
import concurrent.futures
import copy
import functools
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import millrace

torch = pytest.importorskip("torch")

from torchrec_samples import (  # noqa: E402
    FEATURES,
    KEYS,
    LIMIT_S,
    LR,
    SAMPLES,
    STEPS,
    DataType,
    PoolingType,
    RowWiseAdagrad,
    apply_in_backward,
    bags,
    batch,
    check_same_rows,
    close,
    configs,
    copy_rows,
    prefix,
    rec,
    with_torchrec,
)

__all__ = ["bags", "prefix"]  # fixtures


# ---- what TorchRec's modules do ----


def test_a_state_dict_of_torchrec_s_sets_the_rows(bags):
    ours, theirs = bags(), rec.EmbeddingBagCollection(tables=configs())
    ours.load_state_dict(theirs.state_dict())
    check_same_rows(ours, theirs)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize(
    "ours_of, theirs_of",
    [(millrace.optim.SGD, torch.optim.SGD), (millrace.optim.RowWiseAdagrad, RowWiseAdagrad)],
    ids=["sgd", "row_wise_adagrad"],
)
def test_bags_train_as_torchrec_s(bags, weighted, ours_of, theirs_of):
    tables = configs(pooling=PoolingType.SUM if weighted else PoolingType.MEAN)
    ours = bags(tables, is_weighted=weighted, optimizer=ours_of(lr=LR))
    theirs = rec.EmbeddingBagCollection(tables=tables, is_weighted=weighted)
    copy_rows(ours, theirs)
    optimizer = theirs_of(theirs.parameters(), lr=LR)
    for step in range(STEPS):
        features = batch(step, weighted, FEATURES[::-1])
        a, b = ours(features), theirs(features)
        assert type(a) is rec.KeyedTensor and list(a.keys()) == list(b.keys()) == FEATURES
        assert list(a.length_per_key()) == list(b.length_per_key()) == [4, 8, 8]
        close(a.values(), b.values())
        factors = torch.randn(b.values().shape, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        for result in (a, b):
            (result.values() * factors).sum().backward()
        optimizer.step()
    check_same_rows(ours, theirs)


def test_rows_train_as_torchrec_s(client, prefix):
    tables = configs(rec.EmbeddingConfig)
    ours = millrace.torchrec.EmbeddingCollection(
        tables, need_indices=True, client=client, prefix=prefix, optimizer=millrace.optim.SGD(lr=LR)
    )
    theirs = rec.EmbeddingCollection(tables=tables, need_indices=True)
    copy_rows(ours, theirs)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=LR)
    for step in range(STEPS):
        features = batch(step)
        a, b = ours(features), theirs(features)
        assert list(a) == list(b) == FEATURES
        optimizer.zero_grad()
        for key in FEATURES:
            assert type(a[key]) is rec.JaggedTensor
            close(a[key].values(), b[key].values())
            assert torch.equal(a[key].lengths(), b[key].lengths())
            assert torch.equal(a[key].weights(), b[key].weights())
        for result in (a, b):
            sum(its.values().pow(2).sum() * (i + 1) for i, its in enumerate(result.values())).backward()
        optimizer.step()
    check_same_rows(ours, theirs)
    assert ours.need_indices() and ours.embedding_dim() == 4 and ours.embedding_configs() is tables
    assert ours.embedding_names_by_table() == [["user"], ["item", "seen"]]


def test_a_feature_of_two_tables_is_named_by_both(bags, client, prefix):
    tables = [rec.EmbeddingBagConfig(KEYS, 4, name, feature_names=["item"]) for name in ("a", "b")]
    out = bags(tables)(batch(1))
    assert list(out.keys()) == ["item@a", "item@b"] and out.values().shape == (SAMPLES, 8)
    tables = [rec.EmbeddingConfig(KEYS, 4, name, feature_names=["item"]) for name in ("c", "d")]
    rows = millrace.torchrec.EmbeddingCollection(
        tables, client=client, prefix=prefix, optimizer=millrace.optim.SGD(lr=LR)
    )
    assert list(rows(batch(1))) == ["item@c", "item@d"] and rows(batch(1))["item@c"].weights is not None


def test_weights_of_a_mean_are_over_its_count_and_have_gradients(bags):
    ours = bags([rec.EmbeddingBagConfig(KEYS, 4, "t", pooling=PoolingType.MEAN)], is_weighted=True)
    rows = torch.from_numpy(np.array(ours.embedding_bags["t"].table.lookup([1, 2, 3])))
    weights = torch.tensor([0.5, 2.0, 3.0], requires_grad=True)
    features = rec.KeyedJaggedTensor.from_lengths_sync(
        keys=["t"], values=torch.tensor([1, 2, 3]), lengths=torch.tensor([2, 0, 1]), weights=weights
    )
    out = ours(features).values()
    close(out, torch.stack([(rows[0] * 0.5 + rows[1] * 2) / 2, torch.zeros(4), rows[2] * 3]))
    out.sum().backward()
    close(weights.grad, rows.sum(1) / torch.tensor([2.0, 2.0, 1.0]))


def test_it_is_a_module_as_torchrec_s(bags):
    tables = configs()
    tables[0].feature_names = []
    ours = bags(tables)
    assert ours.embedding_bag_configs() is tables and tables[0].feature_names == ["users"]
    assert not ours.is_weighted() and ours.device == torch.device("cpu") and not ours.state_dict()
    ours.load_state_dict({})
    features = batch(1, keys=["users", "item", "seen"])
    twin = copy.deepcopy(ours)
    twin.eval()
    assert not twin(features).values().requires_grad
    ours(features).values().sum().backward()
    millrace.nn.flush(ours)
    assert torch.equal(twin(features).values(), ours(features).values())
    assert bags(configs(), device="meta").device.type == "meta"


def test_batches_are_looked_up_ahead(bags):
    tables = configs()
    ours, theirs = bags(tables), rec.EmbeddingBagCollection(tables=tables)
    copy_rows(ours, theirs)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=LR)
    loader = millrace.prefetch(
        [batch(step) for step in range(STEPS)], {ours: lambda features: features}, depth=2
    )
    for features in loader:
        a, b = ours(features).values(), theirs(features).values()
        close(a, b)
        optimizer.zero_grad()
        for result in (a, b):
            result.pow(2).sum().backward()
        optimizer.step()
    check_same_rows(ours, theirs)
    assert (loader.counts.batches, loader.counts.missed) == (STEPS, 0) and loader.counts.rows > 0


# ---- tables from configs ----


def spec(client, prefix, **config):
    made = rec.EmbeddingBagConfig(num_embeddings=100, embedding_dim=4, name="t", **config)
    millrace.torchrec.EmbeddingBagCollection(
        [made], client=client, prefix=prefix, optimizer=millrace.optim.SGD(lr=LR)
    ).embedding_bags["t"].table.id
    return client.table(prefix + "t").spec


@pytest.mark.parametrize(
    "init_fn, a, b",
    [
        (None, -0.1, 0.1),
        (torch.nn.init.uniform_, 0, 1),
        (functools.partial(torch.nn.init.normal_, std=0.5), 0, 0.5),
        (functools.partial(torch.nn.init.trunc_normal_, mean=1.0, std=1.0, a=-1.0, b=3.0), 1, 1),
        (functools.partial(torch.nn.init.constant_, val=3.0), 3, 0),
        (torch.nn.init.ones_, 1, 0),
        (torch.nn.init.zeros_, 0, 0),
    ],
)
def test_first_values_are_the_config_s(client, prefix, init_fn, a, b):
    made = spec(client, prefix, init_fn=init_fn).initializer
    assert (made.a, made.b) == (a, b) and made.seed


def test_types_and_limits_are_the_config_s(client, prefix, bags):
    made = spec(client, prefix, data_type=DataType.FP16, weight_init_min=-2.0, weight_init_max=3.0)
    assert made.dtype == "f16" and (made.initializer.a, made.initializer.b) == (-2, 3)
    ours = bags(capacity_rows=7, initializer=millrace.init.constant(2.0))
    assert (ours(batch(1)).values().abs() % 2 == 0).any()
    assert client.table(prefix + "users").spec.capacity_rows == 7


# ---- optimizers ----


def made_with(client, prefix):
    return client.table(prefix + "users").spec.optimizer


@pytest.mark.parametrize(
    "fused_params, expected",
    [
        ({}, millrace.optim.SGD(lr=0.01)),
        ({"optimizer": "exact_sgd", "learning_rate": 0.5, "eps": 1.0}, millrace.optim.SGD(lr=0.5)),
        ({"optimizer": "exact_adagrad", "lr": 1}, millrace.optim.Adagrad(lr=1.0, eps=1e-8)),
        (
            {"optimizer": "exact_row_wise_adagrad", "weight_decay": 0.1, "weight_decay_mode": 1, "eps": 1e-3},
            millrace.optim.RowWiseAdagrad(lr=0.01, weight_decay=0.1, eps=1e-3),
        ),
        (
            {"optimizer": "adam", "beta1": 0.5, "cache_load_factor": 0.1},
            millrace.optim.SparseAdam(0.01, (0.5, 0.999)),
        ),
        (
            {"optimizer": "adam", "weight_decay": 0.1},
            millrace.optim.AdamW(0.01, weight_decay=0.1, bias_correction="step"),
        ),
    ],
)
def test_fused_params(bags, client, prefix, fused_params, expected):
    bags(optimizer=None, fused_params=fused_params)(batch(1))
    assert made_with(client, prefix) == expected


@pytest.mark.parametrize(
    "kind, arguments, expected",
    [
        (torch.optim.SGD, {"lr": 0.5, "momentum": 0.5}, millrace.optim.SGD(lr=0.5, momentum=0.5)),
        (torch.optim.Adagrad, {"lr": 0.5, "foreach": False}, millrace.optim.Adagrad(lr=0.5)),
        (RowWiseAdagrad, {"lr": 0.5}, millrace.optim.RowWiseAdagrad(lr=0.5)),
        (torch.optim.Adam, {"betas": (0.5, 0.75)}, millrace.optim.SparseAdam(betas=(0.5, 0.75))),
    ],
)
def test_optimizers_in_backward(bags, client, prefix, kind, arguments, expected):
    ours = bags(optimizer=None)
    apply_in_backward(kind, ours.parameters(), arguments)
    dense = torch.nn.Linear(1, 1)
    torch.optim.SGD([*ours.parameters(), *dense.parameters()], lr=1)  # which the gradients do not wait for
    before = ours(batch(1)).values().detach()
    assert made_with(client, prefix) == expected
    ours(batch(1)).values().sum().backward()
    ours.embedding_bags["goods"].flush()
    assert not torch.equal(ours(batch(1)).values(), before)


def test_optimizers_that_cannot_be_had(bags):
    for says, fused_params in (
        ("no lamb; it has SGD", {"optimizer": "lamb"}),
        ("eta=0.1 cannot be had.*SGD has dampening, lr", {"eta": 0.1}),
        ("gradient_clipping=True cannot be had", {"gradient_clipping": True}),
        ("weight_decay=0.1 cannot be had.*FBGEMM has it for Adam", {"weight_decay": 0.1}),
        ("weight_decay=0.1", {"optimizer": "row_wise_adagrad", "weight_decay": 0.1, "weight_decay_mode": 2}),
    ):
        with pytest.raises(ValueError, match=says):
            bags(optimizer=None, fused_params=fused_params)
    with pytest.raises(TypeError, match="leave one of them out"):
        bags(fused_params={})
    for says, kind, arguments in (
        ("users': the server has no RMSprop", torch.optim.RMSprop, {}),
        ("maximize=True cannot be had", torch.optim.SGD, {"lr": 1.0, "maximize": True}),
        ("amsgrad is True", torch.optim.Adam, {"amsgrad": True}),
    ):
        ours = bags(optimizer=None)
        apply_in_backward(kind, ours.parameters(), arguments)
        with pytest.raises(ValueError, match=says):
            ours(batch(1))


def test_a_table_has_one_optimizer(bags, client, prefix):
    ours = bags()
    apply_in_backward(torch.optim.SGD, ours.parameters(), {"lr": 1.0})
    with pytest.raises(ValueError, match="users' has two optimizers, SGD"):
        ours(batch(1))
    ours = bags(optimizer={"users": millrace.optim.Adagrad(), "goods": millrace.optim.SGD(lr=1)})
    ours(batch(1))
    assert [client.table(prefix + n).spec.optimizer.lr for n in ("users", "goods")] == [0.01, 1]
    apply_in_backward(torch.optim.SGD, ours.parameters(), {"lr": 1.0})
    with pytest.raises(ValueError, match="before apply_optimizer_in_backward.*before the first forward"):
        ours(batch(1))
    again = bags(optimizer=None)
    again(batch(1))
    assert again.embedding_bags["users"].table.spec.optimizer == millrace.optim.Adagrad()


# ---- models that are there already ----


class Model(torch.nn.Module):
    def __init__(self, *collections):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(20, 1), *collections])

    def forward(self, features):
        return self.layers[0](self.layers[1](features).values())


def test_a_model_s_collections_are_replaced(client, prefix):
    tables = configs()
    model = Model(rec.EmbeddingBagCollection(tables=tables, device=torch.device("cpu")))
    model.layers.append(model.layers[1])
    bag = model.layers[1].embedding_bags
    apply_in_backward(RowWiseAdagrad, bag["users"].parameters(), {"lr": 0.5})
    bag["goods"].requires_grad_(False)
    ours = millrace.torchrec.replace(model.eval(), client, prefix=prefix, optimizer=millrace.optim.SGD(lr=1))
    assert ours is model and type(ours.layers[1]) is millrace.torchrec.EmbeddingBagCollection
    assert ours.layers[2] is ours.layers[1] and not ours.layers[1].training
    model.train()
    assert model.layers[1].embedding_bag_configs() is tables
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = {name: its.table.lookup(np.arange(KEYS)) for name, its in model.layers[1].embedding_bags.items()}
    model(batch(1)).sum().backward()
    millrace.nn.flush(model)
    changed = [
        name
        for name in rows
        if (model.layers[1].embedding_bags[name].table.lookup(np.arange(KEYS)) != rows[name]).any()
    ]
    assert changed == ["users"]  # which did not wait for the step
    optimizer.step()
    assert client.table(prefix + "users").spec.optimizer == millrace.optim.RowWiseAdagrad(lr=0.5)
    assert client.table(prefix + "goods").spec.optimizer == millrace.optim.SGD(lr=1)


def test_rows_of_a_model_are_loaded(client, prefix):
    """From its state_dict, as DistributedModelParallel loads one."""
    model = Model(rec.EmbeddingBagCollection(tables=configs(), device=torch.device("cpu")))
    state = {name: values.clone() for name, values in model.state_dict().items()}
    expected = model(batch(1)).detach()
    ours = millrace.torchrec.replace(model, client, prefix=prefix, optimizer=millrace.optim.SGD(lr=LR))
    assert not torch.equal(ours(batch(1)), expected)
    ours.load_state_dict(state)
    close(ours(batch(1)), expected)
    state["layers.1.embedding_bags.users.weight"] = torch.zeros(3, 5)
    with pytest.raises(RuntimeError, match="users.weight: .3, 5. does not fit table"):
        ours.load_state_dict(state)


def test_a_replaced_model_in_ddp(client, prefix, tmp_path):
    """The rows go to the server as ever; its parameters are none of DistributedDataParallel's."""
    model = Model(rec.EmbeddingBagCollection(tables=configs(), device=torch.device("cpu")))
    apply_in_backward(torch.optim.SGD, model.layers[1].parameters(), {"lr": LR})
    ours = millrace.torchrec.replace(model, client, prefix=prefix).layers[1]
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/ddp", rank=0, world_size=1)
    try:
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        before = ours(batch(1)).values()
        parallel(batch(1)).sum().backward()
        millrace.nn.flush(model)
        assert not torch.equal(ours(batch(1)).values(), before) and model.layers[0].weight.grad is not None
    finally:
        torch.distributed.destroy_process_group()


@with_torchrec
def test_a_compiled_model(client, prefix):
    model = Model(rec.EmbeddingBagCollection(tables=configs(), device=torch.device("cpu")))
    millrace.torchrec.replace(model, client, prefix=prefix, optimizer=millrace.optim.SGD(lr=LR))
    expected = model(batch(1)).detach()
    compiled = torch.compile(model, backend="eager")
    out = compiled(batch(1))
    close(out, expected)
    out.sum().backward()
    assert not torch.equal(compiled(batch(1)), expected)


def test_a_collection_alone_is_replaced(client, prefix):
    theirs = rec.EmbeddingCollection(tables=configs(rec.EmbeddingConfig), need_indices=True)
    ours = millrace.torchrec.replace(theirs, client, prefix=prefix, optimizer=millrace.optim.SGD(lr=1))
    assert type(ours) is millrace.torchrec.EmbeddingCollection and ours.need_indices()
    assert list(ours(batch(1))) == FEATURES


def test_models_that_cannot_be_replaced(client, prefix):
    model = Model(*(rec.EmbeddingBagCollection(tables=configs()) for _ in range(2)))
    with pytest.raises(ValueError, match="layers.1 and layers.2 both have a table 'users'"):
        millrace.torchrec.replace(model, client, prefix=prefix)

    class ShardedEmbeddingBagCollection(torch.nn.Module):
        pass

    with pytest.raises(ValueError, match="layers.1 is sharded already"):
        millrace.torchrec.replace(Model(ShardedEmbeddingBagCollection()), client)


# ---- what is refused ----


def test_refusals(bags, client, prefix):
    theirs = rec.EmbeddingBagCollection(tables=configs())

    def one(**config):
        return [rec.EmbeddingBagConfig(num_embeddings=KEYS, embedding_dim=4, name="t", **config)]

    for error, says, make in (
        (ValueError, "Duplicate table name t", lambda: bags(one() + one())),
        (
            ValueError,
            "data_type is .*INT8; rows are BF16, FP16, FP32",
            lambda: bags(one(data_type=DataType.INT8)),
        ),
        (ValueError, "pooling is NONE", lambda: bags(one(pooling="NONE"))),
        (
            ValueError,
            "init_fn is <function.*give initializer",
            lambda: bags(one(init_fn=lambda weight: weight)),
        ),
        (
            ValueError,
            "cut at two",
            lambda: bags(one(init_fn=functools.partial(torch.nn.init.trunc_normal_, std=2))),
        ),
        (TypeError, "dtype: a table has that of its config", lambda: bags(dtype="f16")),
        (TypeError, "no option 'evict'; did you mean 'eviction'", lambda: bags(evict=1)),
        (TypeError, "'here:1'; it is a millrace.Client", lambda: millrace.torchrec.replace(theirs, "here:1")),
        (ValueError, "dim 'users?'|dim is 4096", lambda: bags([rec.EmbeddingBagConfig(KEYS, 4096, "users")])),
        (
            KeyError,
            "'seen' is not among the input's keys: user, item",
            lambda: bags()(batch(1, keys=FEATURES[:2])),
        ),
        (TypeError, "the input is a KeyedJaggedTensor, not Tensor", lambda: bags()(torch.zeros(3))),
        (ValueError, "its input has no weights", lambda: bags(is_weighted=True)(batch(1))),
        (
            LookupError,
            "no table .*users', and nothing says the optimizer",
            lambda: bags(optimizer=None)(batch(1)),
        ),
    ):
        with pytest.raises(error, match=says):
            make()
    client.table(prefix + "t", 5)
    with pytest.raises(ValueError, match="has dim 5 and pooling 'sum'; the config has 4 and 'sum'"):
        bags(one(), optimizer=None)(batch(1, keys=["t"]))
    client.drop(prefix + "t")
    tables = configs(rec.EmbeddingConfig)
    tables[1].embedding_dim = 5
    with pytest.raises(ValueError, match="same embedding_dim: that of 'goods' is 5, that of 'users' 4"):
        millrace.torchrec.EmbeddingCollection(tables, client=client)


# ---- the page of names ----


def test_what_the_page_says_is_there_is_there():
    with open(os.environ["MILLRACE_DOCS"] + "/torchrec-names.md", encoding="utf-8") as page:
        sections = re.findall(r"^## torchrec\.(\w+Collection)$(.*?)(?=^## )", page.read(), re.M | re.S)
    assert len(sections) == 2
    for name, rows in sections:
        there = re.findall(r"^\| `(\w+)` \| as in TorchRec \|$", rows, re.M)
        assert len(there) >= 4 and all(hasattr(getattr(millrace.torchrec, name), its) for its in there)


# ---- with TorchRec itself ----


@with_torchrec
def test_the_page_has_every_name(monkeypatch):
    monkeypatch.syspath_prepend(os.path.join(os.environ["MILLRACE_DOCS"], "../scripts"))
    import torchrec_names

    with open(os.environ["MILLRACE_DOCS"] + "/torchrec-names.md", encoding="utf-8") as page:
        text = page.read()
    assert torchrec_names.missing_lines(text) == []
    missing = torchrec_names.missing_lines(text.replace("| `need_indices` |", "| `needs` |"))
    assert missing == ["| `need_indices` | as in TorchRec |"]
    monkeypatch.delitem(torchrec_names.REASONS, "copy")
    with pytest.raises(SystemExit, match="copy is neither there nor explained"):
        torchrec_names.page()


@pytest.fixture
def one_rank(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@with_torchrec
@pytest.mark.parametrize(
    "fused_params",
    [
        {"optimizer": "EXACT_SGD", "learning_rate": LR},
        {"optimizer": "EXACT_ADAGRAD", "learning_rate": LR},
        {
            "optimizer": "EXACT_ROWWISE_ADAGRAD",
            "learning_rate": LR,
            "weight_decay": 0.1,
            "weight_decay_mode": "L2",
        },
        {"optimizer": "EXACT_ROWWISE_ADAGRAD", "learning_rate": LR},
    ],
    ids=lambda fused_params: "-".join([fused_params["optimizer"].lower(), *list(fused_params)[2:3]]),
)
def test_fused_params_train_as_fbgemm_does(bags, one_rank, fused_params):
    """Beside the sharded module, whose tables are FBGEMM's. With two features: for a table that has one, its
    CPU kernel leaves the weight decay out."""
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import WeightDecayMode
    from torchrec.distributed import DistributedModelParallel
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.sharding_plan import construct_module_sharding_plan, table_wise
    from torchrec.distributed.types import ShardingPlan

    fused_params = {**fused_params, "optimizer": EmbOptimType[fused_params["optimizer"]]}
    if "weight_decay_mode" in fused_params:
        fused_params["weight_decay_mode"] = WeightDecayMode[fused_params["weight_decay_mode"]]
    tables = configs()[1:]
    ours = bags(tables, optimizer=None, fused_params=fused_params)
    theirs = rec.EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    plan = {config.name: table_wise(rank=0, compute_kernel="fused") for config in tables}
    plan = construct_module_sharding_plan(theirs, plan, local_size=1, world_size=1, device_type="cpu")
    theirs = DistributedModelParallel(
        theirs,
        device=torch.device("cpu"),
        plan=ShardingPlan({"": plan}),
        sharders=[EmbeddingBagCollectionSharder(fused_params=dict(fused_params))],
    )
    weight = theirs.state_dict()["embedding_bags.goods.weight"].local_shards()[0].tensor
    table = ours.embedding_bags["goods"].table
    weight.copy_(torch.from_numpy(np.array(table.lookup(np.arange(KEYS)))))
    for step in range(STEPS):
        features = batch(step)
        a, b = ours(features).values(), theirs(features).values()
        close(a, b)
        factors = torch.randn(b.shape, generator=torch.Generator().manual_seed(step))
        for result in (a, b):
            (result * factors).sum().backward()
    millrace.nn.flush(ours)
    close(torch.from_numpy(table.lookup(np.arange(KEYS))), weight)


@with_torchrec
def test_a_stride_for_each_key(bags):
    tables = configs()
    ours, theirs = bags(tables), rec.EmbeddingBagCollection(tables=tables)
    copy_rows(ours, theirs)
    features = rec.KeyedJaggedTensor(
        keys=FEATURES,
        values=torch.arange(8),
        lengths=torch.tensor([1, 2, 0, 3, 1, 1]),
        stride_per_key_per_rank=[[2], [3], [1]],
        inverse_indices=(FEATURES, torch.tensor([[0, 1, 1, 0], [2, 0, 1, 2], [0, 0, 0, 0]])),
    )
    close(ours(features).values(), theirs(features).values())


@with_torchrec
def test_a_tensor_dict(bags):
    from tensordict import TensorDict

    ours, features = bags(), batch(1)
    as_dict = TensorDict(features.to_dict())
    keys = list(as_dict.keys())
    assert sorted(keys) == sorted(FEATURES)
    close(ours(as_dict).values(), ours(features).values())


def losses_of(script, port, *arguments):
    environment = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "USE_LIBUV": "0",  # which Debian's torch is built without, and takes for there from 2.4 on
        "MASTER_PORT": str(port),  # in the test's namespace
        "RANK": "0",
        "WORLD_SIZE": "1",
    }
    run = subprocess.run(
        [sys.executable, script, "--steps=31", "--batch=64", "--keys=500", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert run.returncode == 0, run.stderr
    return [float(loss) for loss in re.findall(r"loss ([0-9.]+)", run.stdout)], json.loads(
        run.stdout.splitlines()[-1]
    )


@with_torchrec
def test_dlrm_without_the_lines_that_change_is_torchrec_s(new_node, tmp_path):
    """docs/torchrec.md has those lines."""
    with open(os.environ["MILLRACE_DOCS"] + "/torchrec.md", encoding="utf-8") as page:
        change = re.search(r"^```diff\n(.*?)^```$", page.read(), re.M | re.S)[1]
    example, script = os.environ["MILLRACE_EXAMPLES"] + "/dlrm.py", tmp_path / "dlrm.py"
    shutil.copy(example, script)
    subprocess.run(
        ["patch", "--silent", "--fuzz=0", "--reverse", script], input=change, text=True, check=True
    )
    assert "millrace." not in script.read_text().split("import argparse")[1]
    with concurrent.futures.ThreadPoolExecutor() as both:  # side by side: most is the import of torchrec
        running = both.submit(losses_of, script, 29500)
        ours, end = losses_of(example, 29501, "--server", new_node().address)
        theirs, their_end = running.result()
    assert len(ours) == 4 and ours[-1] < ours[0] and end["samples"] == their_end["samples"]
    assert (
        max(abs(a - b) for a, b in zip(ours, theirs)) <= 1e-4 and abs(end["auc"] - their_end["auc"]) <= 1e-3
    )
