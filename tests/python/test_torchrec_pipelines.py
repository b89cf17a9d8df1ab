"""What millrace.torchrec's collections have of TorchRec's sharded modules, and TorchRec's train pipelines
over them: the weights of a plain loop, and those of TorchRec's own sharded modules.

With a stand-in for TorchRec, or with itself: see test_torchrec.py.
"""
import contextlib
import gc
import os
import subprocess
import sys

import numpy as np
import pytest

import millrace

torch = pytest.importorskip("torch")

import jagged  # noqa: E402
from torchrec_samples import (  # noqa: E402
    FEATURES,
    HAS_TORCHREC,
    KEYS,
    LR,
    STEPS,
    RowWiseAdagrad,
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


@pytest.fixture(autouse=True)
def torchrec_is_there(monkeypatch):
    if not HAS_TORCHREC:
        jagged.install(monkeypatch)


@pytest.fixture
def rows(client, prefix):
    """Our EmbeddingCollection."""
    return millrace.torchrec.EmbeddingCollection(
        configs(rec.EmbeddingConfig), client=client, prefix=prefix, optimizer=millrace.optim.SGD(lr=LR)
    )


def start(collection, features):
    """The lookups of a batch."""
    context = collection.create_context()
    args, kwargs = collection.preprocess_input([features], {})
    return context, collection.input_dist(context, *args, **kwargs)


def end(collection, context, request):
    return collection.compute_and_output_dist(context, request.wait().wait()).wait()


def tensors(result):
    return [its.values() for its in result.values()] if isinstance(result, dict) else [result.values()]


# ---- the interface ----


@pytest.mark.parametrize("kind", ["bags", "rows"])
def test_the_next_batch_is_looked_up_while_this_one_trains(bags, rows, kind):
    ours = bags() if kind == "bags" else rows
    theirs = (rec.EmbeddingBagCollection if kind == "bags" else rec.EmbeddingCollection)(
        tables=configs(rec.EmbeddingBagConfig if kind == "bags" else rec.EmbeddingConfig)
    )
    copy_rows(ours, theirs)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=LR)
    following = start(ours, batch(0))
    for step in range(STEPS):
        this, following = following, start(ours, batch(step + 1))
        a, b = end(ours, *this), theirs(batch(step))
        assert type(a) is type(b) and list(a.keys()) == list(b.keys()) == FEATURES
        optimizer.zero_grad()
        for result in (a, b):
            sum(its.pow(2).sum() for its in tensors(result)).backward()
        optimizer.step()
        for mine, their in zip(tensors(a), tensors(b)):
            close(mine, their)
    check_same_rows(ours, theirs)
    counts = ours.prefetch_counts
    assert counts.batches == STEPS and counts.missed == 0 and 0 < counts.again < counts.rows


def test_rows_that_every_step_moves_are_not_looked_up_ahead(bags):
    optimizer = millrace.optim.SGD(lr=LR, momentum=0.9, dense=True)
    ours = bags(optimizer=optimizer)
    theirs = rec.EmbeddingBagCollection(tables=configs())
    copy_rows(ours, theirs)
    its = torch.optim.SGD(theirs.parameters(), lr=LR, momentum=0.9)
    for step in range(STEPS):
        results = ours(batch(step)).values(), theirs(batch(step)).values()
        close(*results)
        its.zero_grad()
        for result in results:
            result.square().sum().mul(0.01).backward()
        its.step()
    with pytest.raises(ValueError, match="users' cannot be looked up ahead.*prefetch_stale=True"):
        start(ours, batch(STEPS))
    ours.eval()  # in which nothing moves
    close(end(ours, *start(ours, batch(STEPS))).values(), theirs(batch(STEPS)).values())
    stale = bags(prefetch_stale=True, optimizer=optimizer)
    close(end(stale, *start(stale, batch(STEPS))).values(), theirs(batch(STEPS)).values())


def test_rows_may_stay_as_they_were(bags):
    ours = bags(prefetch_stale=True)
    expected = ours(batch(1)).values().detach()
    this = start(ours, batch(1))
    ours(batch(1)).values().sum().backward()
    assert torch.equal(end(ours, *this).values(), expected)
    counts = ours.prefetch_counts
    assert counts.again == counts.missed == 0 and 0 < counts.stale <= counts.rows == 18
    assert counts.stale_pushes == 1
    assert not torch.equal(ours(batch(1)).values(), expected)


def test_a_batch_that_nobody_computes_leaves_nothing(client, bags):
    ours, before = bags(), set(client._futures)
    for seed in range(2):
        batch_on_its_way = start(ours, batch(seed))
        gc.collect()
        assert len(client._futures.keys() - before) == 1
    del batch_on_its_way
    gc.collect()
    assert not client._futures.keys() - before


def test_what_is_computed_again_or_is_something_else_is_looked_up(bags):
    ours = bags()
    context, request = start(ours, batch(1))
    keys = request.wait().wait()
    first = ours.compute_and_output_dist(context, keys).wait().values()
    assert torch.equal(ours.compute_and_output_dist(context, keys).wait().values(), first)
    context, _ = start(ours, batch(1))
    other = ours.compute_and_output_dist(context, [batch(2)]).wait().values()
    assert torch.equal(other, ours(batch(2)).values()) and ours.prefetch_counts.missed == 2
    context, request = start(ours, batch(1))
    ours.prefetch(request.wait().wait(), ctx=context)
    ours.eval()  # another kind of lookup
    assert torch.equal(end(ours, context, request).values(), first)
    assert not ours(batch(1)).values().requires_grad


def test_a_result_is_part_of_the_forward_that_uses_it(bags, monkeypatch):
    """Where DistributedDataParallel runs, which says what its gradients count."""
    ours = bags()
    before = ours.embedding_bags["users"].table.lookup([3])
    one = rec.KeyedJaggedTensor.from_lengths_sync(
        keys=FEATURES, values=torch.tensor([3]), lengths=torch.tensor([1, 0, 0])
    )
    context, request = start(ours, one)
    result = ours.compute_and_output_dist(context, request.wait().wait())
    monkeypatch.setattr("millrace._nn.backward.ddp_share", lambda: 0.5)
    pooled = result.wait()
    assert result.wait() is pooled
    pooled.values().sum().backward()
    millrace.nn.flush(ours)
    assert np.allclose(ours.embedding_bags["users"].table.lookup([3]), before - LR / 2)


def test_an_error_of_a_lookup_is_compute_s(client, bags, prefix):
    ours = bags()
    ours(batch(1))
    client.drop(prefix + "goods")
    context, request = start(ours, batch(1))
    keys = request.wait().wait()
    with pytest.raises(millrace.UnknownTable):
        ours.compute(context, keys)
    with pytest.raises(KeyError, match="'seen' is not among the input's keys"):
        start(ours, batch(1, keys=FEATURES[:2]))


def test_rows_are_written(bags, rows):
    values, lengths = torch.tensor([3, 2**40, 7]), torch.tensor([2, 0, 1, 0])
    weights = torch.arange(12.0).view(3, 4)
    written = rec.KeyedJaggedTensor.from_lengths_sync(
        keys=["user", "seen"], values=values, lengths=lengths, weights=weights
    )
    rows.write(written)
    found = [
        rows.embeddings[name].table.lookup(keys) for name, keys in (("users", values[:2]), ("goods", [7]))
    ]
    assert np.array_equal(np.concatenate(found), weights.numpy())
    with pytest.raises(ValueError, match="the input's weights .values, dim., and it has none"):
        rows.write(batch(1, keys=["user"]))
    with pytest.raises(ValueError, match="'price' is not among the collection's: user, item, seen"):
        rows.write(batch(1, weights=True, keys=["price"]))


def test_rows_begin_anew(client, prefix, monkeypatch):
    tables = configs()
    optimizer = millrace.optim.SparseAdam(lr=LR)
    ours = millrace.torchrec.EmbeddingBagCollection(tables, client=client, prefix=prefix, optimizer=optimizer)

    def train():
        outs = []
        for step in range(3):
            out = ours(batch(step)).values()
            out.pow(2).sum().backward()
            outs.append(out.detach().clone())
        return torch.cat(outs)

    first, spec = train(), client.table(prefix + "users").spec
    assert not torch.equal(train(), first)
    ours.reset_parameters()
    assert client.table(prefix + "users").spec == spec
    assert torch.equal(train(), first)

    def fail(specs):
        raise millrace.DeadlineExceeded("late")

    with monkeypatch.context() as failing:
        failing.setattr(client, "create", fail)
        with pytest.raises(millrace.DeadlineExceeded):
            ours.reset_parameters()
    ours.reset_parameters()  # which finds no tables now
    assert torch.equal(train(), first)


def test_learning_rates_of_the_groups(client, bags):
    ours = bags(optimizer={"users": millrace.optim.SGD(lr=LR), "goods": millrace.optim.SGD(lr=1)})
    optimizer = ours.fused_optimizer
    assert optimizer is ours.fused_optimizer and list(optimizer.params) == list(
        ours.sharded_parameter_names()
    )
    assert [group["lr"] for group in optimizer.param_groups] == [LR, 1]
    table, key = ours.embedding_bags["users"].table, int(batch(1).values()[0])

    def step(context, request, rate):
        before = table.lookup(np.arange(KEYS))
        end(ours, context, request).values()[:, :4].sum().backward()
        millrace.nn.flush(ours)
        counts = np.bincount(batch(1).values()[: int(batch(1).lengths()[:6].sum())], minlength=KEYS)
        assert counts[key] > 0
        moved = before - table.lookup(np.arange(KEYS))
        assert np.allclose(moved, np.repeat(counts[:, None], 4, 1) * rate, atol=1e-6)

    following = start(ours, batch(1))
    for rate in (LR, 0.5, 0.25):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        this, following = following, start(ours, batch(1))
        step(*this, rate)
    assert ours.prefetch_counts.missed == 0  # a rate is for pushes
    assert "learning_rate" not in ours.embedding_bags["goods"].options


def test_a_table_s_schedule_stays(client, bags):
    ours = bags(schedule=millrace.schedule.Linear(10))
    optimizer = ours.fused_optimizer
    optimizer.param_groups[0]["lr"] = 5.0
    optimizer.step()
    assert not ours.embedding_bags["users"].options


def test_it_is_a_sharded_module(bags):
    ours = bags()
    types, fused = sys.modules["torchrec.distributed.types"], sys.modules["torchrec.optim.fused"]
    assert isinstance(ours, types.ShardedModule) and isinstance(ours, fused.FusedOptimizerModule)
    assert not isinstance(ours.embedding_bags, types.ShardedModule)
    assert ours.unsharded_module_type is rec.EmbeddingBagCollection and ours.qcomm_codecs_registry == {}
    assert list(ours.sharded_parameter_names("model")) == [
        "model.embedding_bags.users.anchor",
        "model.embedding_bags.goods.anchor",
    ]


# ---- TorchRec's pipelines ----

CPU = torch.device("cpu")
BATCHES, CLICKS, CLICK_KEYS, DIM = 12, 16, 100, 8
SPARSE = "model.sparse_arch.embedding_bag_collection"


class Stream:
    """Of a device that is none: what pipelines do with streams means nothing on the CPU."""

    device = CPU

    def wait_stream(self, other):
        pass

    def record_event(self):
        pass

    def wait_event(self, event):
        pass


@pytest.fixture
def streams(monkeypatch):
    """TorchRec's pipelines that are for GPUs run on the CPU."""
    its = Stream()
    for module in (torch.cpu, torch.cuda):
        monkeypatch.setattr(module, "current_stream", lambda device=None: its)
        monkeypatch.setattr(module, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: None)
    return its


@pytest.fixture
def one_rank(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(os.environ["MILLRACE_EXAMPLES"])
    import dlrm

    return dlrm


def clicks(example, batches=BATCHES):
    return example.clicks(batches, CLICKS, CLICK_KEYS, seed=1)


def model_of(example):
    torch.manual_seed(1)
    return example.model_of(CLICK_KEYS, DIM, lr=0.05)


def ours_of(example, client, prefix):
    return millrace.torchrec.replace(model_of(example), client, prefix=prefix)


def theirs_of(example):
    """With fused tables, on one rank."""
    from torchrec.distributed import DistributedModelParallel
    from torchrec.distributed.sharding_plan import construct_module_sharding_plan, table_wise
    from torchrec.distributed.types import ShardingPlan

    model = model_of(example)
    collection = model.get_submodule(SPARSE)
    plan = construct_module_sharding_plan(
        collection,
        {
            config.name: table_wise(rank=0, compute_kernel="fused")
            for config in collection.embedding_bag_configs()
        },
        local_size=1,
        world_size=1,
        device_type="cpu",
    )
    return DistributedModelParallel(model, device=CPU, plan=ShardingPlan({SPARSE: plan}))


def run(pipeline, batches):
    """What the pipeline returns of each."""
    results = []
    with contextlib.suppress(StopIteration):
        while True:
            results.append(pipeline.progress(batches))
    return results


def weights_of(model):
    """All of a model, wherever they are."""
    millrace.nn.flush(model)
    found = {}
    for name, values in model.state_dict().items():
        found[name] = values.local_shards()[0].tensor if hasattr(values, "local_shards") else values
    for name, module in model.named_modules():
        if isinstance(module, millrace.EmbeddingBag):
            found[name + ".weight"] = torch.from_numpy(module.table.lookup(np.arange(CLICK_KEYS)))
    return found


def check_same_weights(a, b):
    a, b = weights_of(a), weights_of(b)
    assert a.keys() == b.keys() and sum("embedding_bags" in name for name in a) == 26
    for name in a:
        close(a[name], b[name])


@with_torchrec
def test_millrace_imports_no_torchrec():
    check = "import sys, millrace.torchrec; assert 'torch' in sys.modules and 'torchrec' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True)


@with_torchrec
@pytest.mark.parametrize(
    "kind", ["TrainPipelineBase", "TrainPipelineSparseDist", "TrainPipelineSparseDistLite"]
)
def test_pipelines_train_as_a_loop(client, prefix, example, kind):
    from torchrec.distributed.train_pipeline import train_pipelines

    before = set(client._futures)
    plain = ours_of(example, client, prefix + "a.")
    optimizer, losses = example.optimizer_of(plain, lr=0.05), []
    for one in clicks(example):
        optimizer.zero_grad()
        loss, _ = plain(one)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model = ours_of(example, client, prefix + "b.")
    pipeline = getattr(train_pipelines, kind)(model, example.optimizer_of(model, lr=0.05), CPU)
    results = run(pipeline, clicks(example))
    close(torch.tensor([loss for loss, *_ in results]), torch.tensor(losses))
    check_same_weights(model, plain)
    counts = model.get_submodule(SPARSE).prefetch_counts
    if kind != "TrainPipelineBase":
        assert counts.batches == BATCHES and counts.missed == 0 and 0 < counts.again < counts.rows
        assert pipeline.detach() is model
        one = next(iter(clicks(example)))
        with torch.no_grad():
            close(model(one)[1][1], plain(one)[1][1])
    del pipeline
    gc.collect()
    assert not client._futures.keys() - before


@with_torchrec
@pytest.mark.parametrize(
    "kind, arguments",
    [
        ("TrainPipelineSparseDist", {}),
        ("TrainPipelineFusedSparseDist", {}),
        ("PrefetchTrainPipelineSparseDist", {}),
        ("TrainPipelineSemiSync", {"start_batch": 0}),
        ("TrainPipelineSemiSync", {"start_batch": 4}),
    ],
    ids=lambda its: its if isinstance(its, str) else str(its.get("start_batch", "")),
)
def test_pipelines_train_as_with_sharded_modules(client, prefix, one_rank, streams, example, kind, arguments):
    from torchrec.distributed.train_pipeline import train_pipelines

    trained = []
    for model in (theirs_of(example), ours_of(example, client, prefix)):
        optimizer = example.optimizer_of(model, lr=0.05)
        pipeline = getattr(train_pipelines, kind)(model, optimizer, CPU, **arguments)
        pipeline._data_dist_stream = streams
        if kind.startswith("Prefetch"):
            pipeline._prefetch_stream = streams
        assert len(run(pipeline, clicks(example))) == BATCHES
        trained.append(model)
    check_same_weights(*trained)
    counts = trained[1].get_submodule(SPARSE).prefetch_counts
    assert counts.batches == BATCHES and counts.missed == 0


class Both(torch.nn.Module):
    """Of a collection of bags and one of rows."""

    def __init__(self, bags, rows):
        super().__init__()
        self.bags, self.rows, self.layer = bags, rows, torch.nn.Linear(20, 4)

    def forward(self, features):
        pooled, rows = self.bags(features), self.rows(features)
        out = self.layer(pooled.values())
        return out.pow(2).mean() + sum(rows[name].values().pow(2).mean() for name in FEATURES), out


@with_torchrec
@pytest.mark.parametrize("kind", ["TrainPipelineSparseDist", "TrainPipelineSemiSync"])
def test_a_model_with_several_collections(client, prefix, streams, kind):
    from torchrec.distributed.train_pipeline import train_pipelines

    optimizer, models = millrace.optim.SGD(lr=LR), []
    for part in "ab":
        torch.manual_seed(1)
        arguments = {"client": client, "optimizer": optimizer}
        bags = millrace.torchrec.EmbeddingBagCollection(configs(), prefix=prefix + part + ".", **arguments)
        tables = configs(rec.EmbeddingConfig)
        rows = millrace.torchrec.EmbeddingCollection(tables, prefix=prefix + part + ".rows.", **arguments)
        models.append(Both(bags, rows))
        for bag in (*bags.embedding_bags.values(), *rows.embeddings.values()):
            bag.load_rows(torch.randn(KEYS, bag.table.dim))
    plain, model = models
    for step in range(STEPS):
        plain(batch(step))[0].backward()
    arguments = {"start_batch": STEPS} if kind == "TrainPipelineSemiSync" else {}
    its = torch.optim.SGD(model.layer.parameters(), lr=0)
    pipeline = getattr(train_pipelines, kind)(model, its, CPU, **arguments)
    assert len(run(pipeline, (batch(step) for step in range(STEPS)))) == STEPS
    for a, b in (
        (plain.bags.embedding_bags, model.bags.embedding_bags),
        (plain.rows.embeddings, model.rows.embeddings),
    ):
        millrace.nn.flush(a), millrace.nn.flush(b)
        for name in a:
            close(*(torch.from_numpy(its[name].table.lookup(np.arange(KEYS))) for its in (a, b)))
    assert model.bags.prefetch_counts.batches == model.rows.prefetch_counts.batches == STEPS


@with_torchrec
def test_an_evaluation_s_pipeline(client, prefix, example):
    from torchrec.distributed.train_pipeline import EvalPipelineSparseDist

    model = ours_of(example, client, prefix).eval()
    with torch.no_grad():
        expected = [model(one)[1][1] for one in clicks(example)]
        results = run(EvalPipelineSparseDist(model, None, CPU), clicks(example))
    assert torch.equal(torch.cat([logits for _, logits, _ in results]), torch.cat(expected))
    info = next(i for i in client.features() if i.name == prefix + "t_cat_0")
    assert info.rows == 0 and model.get_submodule(SPARSE).prefetch_counts.missed == 0


@with_torchrec
def test_distributed_model_parallel_of_a_replaced_model(client, prefix, one_rank, example):
    """Takes the collections for sharded ones: their optimizer is among its own, and schedulers reach it."""
    from torchrec.distributed import DistributedModelParallel
    from torchrec.distributed.train_pipeline import TrainPipelineSparseDist
    from torchrec.optim.keyed import CombinedOptimizer
    from torchrec.optim.warmup import WarmupOptimizer, WarmupPolicy, WarmupStage

    trained = []
    for model in (theirs_of(example), ours_of(example, client, prefix)):
        if not trained:
            parallel = model
        else:
            parallel = DistributedModelParallel(model, device=CPU)
        names = [name for name, _ in parallel.named_parameters()]
        assert len(names) == len(set(names)) == 34
        combined = CombinedOptimizer([parallel.fused_optimizer, example.optimizer_of(parallel, lr=0.05)])
        stage = WarmupStage(WarmupPolicy.LINEAR, max_iters=BATCHES // 2, value=0.1, lr_scale=1)
        optimizer = WarmupOptimizer(combined, [stage], lr=0.05)
        assert len(run(TrainPipelineSparseDist(parallel, optimizer, CPU), clicks(example))) == BATCHES
        trained.append(parallel)
    check_same_weights(trained[0], trained[1].module)
    optimizer.load_state_dict(optimizer.state_dict())
    weight = torch.ones(CLICK_KEYS, DIM)
    trained[1].load_state_dict({SPARSE + ".embedding_bags.t_cat_3.weight": weight}, strict=False)
    assert torch.equal(weights_of(model)[SPARSE + ".embedding_bags.t_cat_3.weight"], weight)


@with_torchrec
def test_a_scheduler_of_torch_s(client, bags):
    ours = bags(optimizer=millrace.optim.RowWiseAdagrad(lr=LR))
    theirs = rec.EmbeddingBagCollection(tables=configs())
    copy_rows(ours, theirs)
    optimizers = ours.fused_optimizer, RowWiseAdagrad(theirs.parameters(), lr=LR)
    schedulers = [torch.optim.lr_scheduler.LambdaLR(its, lambda step: 0.5**step) for its in optimizers]
    for step in range(5):
        for collection, optimizer, scheduler in zip((ours, theirs), optimizers, schedulers):
            optimizer.zero_grad()
            collection(batch(step)).values().pow(2).sum().backward()
            optimizer.step()
            scheduler.step()
    check_same_rows(ours, theirs)
