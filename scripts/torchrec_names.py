#!/usr/bin/env python3
"""Prints docs/torchrec-names.md: every name of TorchRec's collections, of their configs, optimizers and
input, and what became of it in millrace.torchrec.

usage: torchrec_names.py [--check PAGE]      --check: the page has each row for the torchrec that is installed

The names come from the installed torchrec, and whether Millrace has them from the installed package; what it
does not have needs a reason here.
"""
import dataclasses
import importlib
import inspect
import sys

NO_SHARDS = "no: there are no shards"
GATHER = "no: how TorchRec gathers rows"
THEIRS = "as in TorchRec"
# Of collections, unsharded and sharded: what they have not, and why.
REASONS = {
    "copy": "no: `copy.deepcopy()` gives one over the same rows",
    "create_embedding_bag_sharding": NO_SHARDS,
    "create_embedding_sharding": NO_SHARDS,
    "create_grouped_sharding_infos": NO_SHARDS,
    "create_rocksdb_hard_link_snapshot": "no: `client.save()` saves all tables",
    "extend_shard_name": NO_SHARDS,
    "init_data_parallel": "no: no trainer has a copy of a table",
    "register_post_lookup_tracker_fn": "no: the server's delta checkpoints have the rows that changed",
    "register_post_odist_tracker_fn": "no: as `register_post_lookup_tracker_fn`",
    "set_use_sorted_select": GATHER,
    "shardings": NO_SHARDS,
    "update_shards": NO_SHARDS,
    "use_gather_select": GATHER,
    "use_gather_select_per_sharding": GATHER,
    "use_sorted_select": GATHER,
}
# What they have, where more is to be said.
NOTES = {
    "fused_optimizer": "the tables' learning rates, a group for each; their state is at the server",
    "prefetch": "there, and does nothing: rows are on their way since `input_dist`",
    "qcomm_codecs_registry": "empty: `wire_dtype` says how rows and gradients travel",
    "reset_parameters": "makes the tables anew, for all trainers",
    "sharded_parameter_names": "of the parameters that stand for the tables",
    "update": "sets rows of any table; no `enable_embedding_update` is needed",
    "write": "as `update`",
}
ARGUMENTS = {
    "use_gather_select": "taken, and means nothing: how TorchRec gathers rows",
    "use_gather_select_per_sharding": "as `use_gather_select`",
}
SHARDING = "not read: it is about shards"
# Of EmbeddingBagConfig and EmbeddingConfig.
FIELDS = {
    "num_embeddings": "bounds of the first values only: rows are made as their keys come",
    "embedding_dim": "the table's `dim`",
    "name": "the table's, after `prefix`",
    "data_type": "FP32, FP16, BF16: the table's `dtype`; others are refused",
    "feature_names": THEIRS,
    "weight_init_max": THEIRS,
    "weight_init_min": THEIRS,
    "num_embeddings_post_pruning": "not read: nothing is pruned",
    "init_fn": "the table's `initializer`, or refused if the server has no such values",
    "need_pos": SHARDING,
    "input_dim": SHARDING,
    "total_num_buckets": SHARDING,
    "use_virtual_table": "not read: each table is one",
    "virtual_table_eviction_policy": "refused: the argument `eviction` has the server's",
    "enable_embedding_update": "not read: `write()` sets rows of any table",
    "stash_weights": "not read: trainers hold no rows",
    "pooling": "SUM, MEAN: the table's `pooling`",
}
READ = (
    "inverse_indices_or_none",
    "keys",
    "lengths",
    "offsets",
    "stride",
    "stride_per_key",
    "values",
    "weights_or_none",
)


def _own(module) -> list[str]:
    """Public names of a collection that are not torch.nn.Module's."""
    of_all = set(dir(importlib.import_module("torch").nn.Module))
    return sorted(name for name in dir(module) if not name.startswith("_") and name not in of_all)


def collection_rows(name: str) -> list[tuple[str, str]]:
    """The constructor's arguments, then what the collection and the sharded one have."""
    torchrec, ours = importlib.import_module("torchrec"), importlib.import_module("millrace.torchrec")
    theirs, mine = getattr(torchrec, name), getattr(ours, name)
    folder = "embeddingbag" if name == "EmbeddingBagCollection" else "embedding"
    sharded = getattr(importlib.import_module(f"torchrec.distributed.{folder}"), f"Sharded{name}")
    taken, rows = inspect.signature(mine.__init__).parameters, []
    for argument in list(inspect.signature(theirs.__init__).parameters)[1:]:
        if argument not in taken:
            raise SystemExit(f"torchrec_names: {name}({argument}=) is not taken")
        rows.append((f"`{name}({argument}=)`", ARGUMENTS.get(argument, THEIRS)))
    for method in ["forward", *_own(theirs), *(m for m in _own(sharded) if m not in _own(theirs))]:
        title = f"`{method}`" + ("" if hasattr(theirs, method) else ", of the sharded one")
        if not hasattr(mine, method) and method not in REASONS:
            raise SystemExit(f"torchrec_names: {name}.{method} is neither there nor explained: see REASONS")
        rows.append((title, NOTES.get(method, THEIRS) if hasattr(mine, method) else REASONS[method]))
    return rows


def field_rows() -> list[tuple[str, str]]:
    """Of both configs."""
    names = [
        field.name for field in dataclasses.fields(importlib.import_module("torchrec").EmbeddingBagConfig)
    ]
    for name in names:
        if name not in FIELDS:
            raise SystemExit(f"torchrec_names: EmbeddingBagConfig.{name} is not explained: see FIELDS")
    return [(f"`{name}`", FIELDS[name]) for name in names]


def optimizer_rows() -> list[tuple[str, str]]:
    """By the classes that apply_optimizer_in_backward() takes, then by FBGEMM's names."""
    known = importlib.import_module("millrace._nn.torchrec_config").OPTIMIZERS
    classes = importlib.import_module("torchrec.distributed.utils")._OPTIMIZER_CLASS_TO_EMB_OPT_TYPE
    kinds = importlib.import_module("fbgemm_gpu.split_embedding_configs").EmbOptimType
    names = [(f"{kind.__module__.split('.')[0]}.optim.{kind.__name__}", kind.__name__) for kind in classes]
    names += [(f"EmbOptimType.{kind.name}", kind.value) for kind in kinds]
    return [
        (f"`{title}`", f"`millrace.optim.{known[name].__name__}`" if name in known else "refused by name")
        for title, name in names
    ]


def input_rows() -> list[tuple[str, str]]:
    """KeyedJaggedTensor is TorchRec's own; what of it is read."""
    names = _own(importlib.import_module("torchrec").KeyedJaggedTensor)
    for name in READ:
        if name not in names:
            raise SystemExit(
                f"torchrec_names: KeyedJaggedTensor has no {name}, which millrace.torchrec reads"
            )
    return [(f"`{name}`", "read") for name in READ] + [("others", "not needed")]


def page() -> str:
    lines = [
        "# Names of TorchRec",
        "",
        "What became in [millrace.torchrec](torchrec.md) of each name of TorchRec's collections, unsharded",
        "and sharded, and of their configs, optimizers and input. Made by `scripts/torchrec_names.py` from",
        "the installed packages.",
    ]
    collections = ("EmbeddingBagCollection", "EmbeddingCollection")
    for title, rows in (
        *((f"torchrec.{name}", collection_rows(name)) for name in collections),
        ("torchrec.EmbeddingBagConfig, EmbeddingConfig", field_rows()),
        ("Optimizers", optimizer_rows()),
        ("torchrec.KeyedJaggedTensor", input_rows()),
    ):
        lines += ["", f"## {title}", "", "| name | here |", "|---|---|"]
        lines += [f"| {name} | {state} |" for name, state in rows]
    return "\n".join(lines) + "\n"


def missing_lines(text: str) -> list[str]:
    """What a page lacks for the installed torchrec."""
    return [line for line in page().splitlines() if line not in text]


def main() -> None:
    if sys.argv[1:2] != ["--check"]:
        print(page(), end="")
        return
    with open(sys.argv[2], encoding="utf-8") as file:
        missing = missing_lines(file.read())
    if missing:
        raise SystemExit(f"torchrec_names: {sys.argv[2]} lacks, among {len(missing)} lines: {missing[0]}")


if __name__ == "__main__":
    main()
