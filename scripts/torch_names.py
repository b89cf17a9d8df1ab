#!/usr/bin/env python3
"""Prints docs/torch-names.md: every public name of torch's modules that Millrace stands in for, and what became of it.

usage: torch_names.py [--check PAGE]      --check: the page has each row for the torch that is installed

The names come from the installed torch, and whether Millrace has them from the installed package; what it does not have
needs a reason here.
"""
import importlib
import inspect
import sys
import types
import typing

INTERNAL = "torch's own machinery"
OWN = "use torch's own beside Millrace"
NO_PROFILER = "no profiler: `client.latencies()` and [observe.md](observe.md) tell how long calls take"

# (torch's module, ours, what it is called in the page)
MODULES = (
    ("torch.distributed.rpc", "millrace.rpc"),
    ("torch.distributed.rpc.functions", "millrace.rpc.functions"),
    ("torch.distributed.autograd", "millrace.autograd"),
    ("torch.distributed.optim", "millrace.optim"),
    ("torch.futures", "millrace.futures"),
)
REASONS = {
    "torch.distributed.rpc": {
        "AllGatherStates": INTERNAL,
        "PyRRef": INTERNAL,
        "RemoteProfilerManager": NO_PROFILER,
        "RpcAgent": INTERNAL,
        "Store": INTERNAL,
        "TensorPipeAgent": INTERNAL,
        "enable_gil_profiling": NO_PROFILER,
        "method_factory": INTERNAL,
        "new_method": INTERNAL,
        "server_process_global_profiler": NO_PROFILER,
    },
    "torch.distributed.autograd": {"DistAutogradContext": INTERNAL},
    "torch.distributed.optim": {
        "PostLocalSGDOptimizer": OWN,
        "ZeroRedundancyOptimizer": OWN,
        "as_functional_optim": INTERNAL,
        "DistributedRpcRRefOptimizer": INTERNAL,
    },
}
# Arguments of the two modules' constructors that ours take otherwise.
ARGUMENTS = {
    "num_embeddings": "rows are made as their keys come; `capacity_rows` of the table limits them",
    "embedding_dim": "the table's `dim`",
    "max_norm": "no: rows are not rescaled by a lookup",
    "norm_type": "no, as `max_norm`",
    "scale_grad_by_freq": "no",
    "sparse": "always: only rows of a batch get gradients",
    "_weight": "no: rows begin as the table's `init` says; pushes to a table with `optim.Assign()` set them",
    "device": "no: rows live at the server; outputs are on the CPU",
    "dtype": "the table's `dtype`",
}


def is_of_torch(value) -> bool:
    """Not what a module has imported from elsewhere."""
    if isinstance(value, types.ModuleType) or getattr(value, "__module__", "torch").split(".")[0] not in (
        "torch",
        "",
    ):
        return False
    return callable(value) or inspect.isclass(value)


def names_of(name: str) -> list[str]:
    module = importlib.import_module(name)
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    typing_names = set(dir(typing))
    return sorted(
        key
        for key, value in vars(module).items()
        if not key.startswith("_") and key not in typing_names and is_of_torch(value)
    )


def rows_of(theirs: str, ours: str) -> list[tuple[str, str]]:
    has, reasons = importlib.import_module(ours), REASONS.get(theirs, {})
    rows = []
    for name in names_of(theirs):
        if hasattr(has, name):
            state = f"`{ours}.{name}`"
        elif name in reasons or name.startswith("functional_"):
            state = reasons.get(name, INTERNAL)
        else:
            raise SystemExit(f"torch_names: {theirs}.{name} is neither in {ours} nor explained: see REASONS")
        rows.append((f"`{name}`", state))
    return rows


def argument_rows(name: str) -> list[tuple[str, str]]:
    theirs = getattr(importlib.import_module("torch.nn"), name)
    ours = inspect.signature(getattr(importlib.import_module("millrace.nn"), name).__init__).parameters
    rows = []
    for argument in list(inspect.signature(theirs.__init__).parameters)[1:]:
        if argument in ARGUMENTS:
            state = ARGUMENTS[argument]
        elif argument in ours:
            state = "as in torch"
        else:
            raise SystemExit(
                f"torch_names: {name}({argument}=) is neither taken nor explained: see ARGUMENTS"
            )
        rows.append((f"`{argument}`", state))
    return rows


def remote_module_rows() -> list[tuple[str, str]]:
    theirs = importlib.import_module("torch.distributed.nn").RemoteModule
    ours = importlib.import_module("millrace.rpc").RemoteModule
    refused = importlib.import_module("millrace.rpc._remote_module")._NOT_REMOTE
    rows = []
    for name in sorted(set(vars(theirs)) | set(vars(theirs.__mro__[1]))):
        if name.startswith("_"):
            continue
        if name not in vars(ours):
            raise SystemExit(f"torch_names: RemoteModule.{name} is not in millrace.rpc.RemoteModule")
        rows.append((f"`{name}`", "refused, as by torch" if name in refused else "as in torch"))
    return rows


def sections() -> list[tuple[str, list[tuple[str, str]]]]:
    found = [(theirs, rows_of(theirs, ours)) for theirs, ours in MODULES]
    return [
        *found,
        ("torch.distributed.nn.RemoteModule", remote_module_rows()),
        *((f"torch.nn.{name}", argument_rows(name)) for name in ("Embedding", "EmbeddingBag")),
    ]


def page() -> str:
    lines = [
        "# Names of torch",
        "",
        "What became of each name in Millrace, and of the arguments of `nn.Embedding` and `nn.EmbeddingBag`. Made by",
        "`scripts/torch_names.py` from the installed packages. [python-rpc.md](python-rpc.md) says what differs in meaning.",
    ]
    for title, rows in sections():
        lines += ["", f"## {title}", "", "| name | here |", "|---|---|"]
        lines += [f"| {name} | {state} |" for name, state in rows]
    return "\n".join(lines) + "\n"


def missing_lines(text: str) -> list[str]:
    """What a page lacks for the installed torch."""
    return [line for line in page().splitlines() if line not in text]


def main() -> None:
    if sys.argv[1:2] != ["--check"]:
        print(page(), end="")
        return
    with open(sys.argv[2], encoding="utf-8") as file:
        missing = missing_lines(file.read())
    if missing:
        raise SystemExit(f"torch_names: {sys.argv[2]} lacks, among {len(missing)} lines: {missing[0]}")


if __name__ == "__main__":
    main()
