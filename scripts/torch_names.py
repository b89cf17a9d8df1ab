#!/usr/bin/env python3
"""Prints docs/torch-names.md: every public name of torch's modules that Millrace stands in for, and what
became of it.

usage: torch_names.py [--check | --merge PAGE]
  --check: the page has each row for the torch that is installed
  --merge: rows of the page stay whose names only other versions of torch have

The names come from the installed torch, and whether Millrace has them from the installed package; what it
does not have needs a reason here.
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
        "BackendValue": INTERNAL,
        "PyRRef": INTERNAL,
        "RemoteProfilerManager": NO_PROFILER,
        "RpcAgent": INTERNAL,
        "Store": INTERNAL,
        "backend_registered": INTERNAL,
        "construct_rpc_backend_options": INTERNAL,
        "TensorPipeAgent": INTERNAL,
        "enable_gil_profiling": NO_PROFILER,
        "init_backend": INTERNAL,
        "method_factory": INTERNAL,
        "new_method": INTERNAL,
        "register_backend": INTERNAL,
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
# Arguments of the two modules' constructors that ours take otherwise, or among `**features`.
ARGUMENTS = {
    "embedding_dim": "as in torch: the `dim` of a new table",
    "norm_type": "as in torch: it means nothing without `max_norm`",
    "scale_grad_by_freq": "as in torch; refused for batches of a loader",
    "mode": "as in torch, and `sqrtn`; batches of a loader have no `max`",
    "sparse": "either: gradients are always of the rows of a batch; `False` is an optimizer with "
    "`dense=True`",
    "device": "where results go: rows live at the server",
    "dtype": "of results, and of a new table's rows (`f32` for float64)",
    "_freeze": "as in torch",
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
        return sorted(set(module.__all__))
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
    refused = importlib.import_module("millrace._nn.arguments").REFUSED
    rows = []
    for argument in list(inspect.signature(theirs.__init__).parameters)[1:]:
        if argument in ARGUMENTS:
            state = ARGUMENTS[argument]
        elif argument in refused:
            state = f"refused: {refused[argument]}"
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


def rows_in(text: str) -> dict[str, list[tuple[str, str]]]:
    """The rows of a page by section."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in text.splitlines():
        if line.startswith("## "):
            rows = found[line[3:]] = []
        elif line.startswith("| `"):
            rows.append(tuple(line.strip("| ").split(" | ", 1)))
    return found


def page(before: str = "") -> str:
    """before: a page whose rows stay that this torch has no names for."""
    lines = [
        "# Names of torch",
        "",
        "What became of each name in Millrace, and of the arguments of `nn.Embedding` and "
        "`nn.EmbeddingBag`. Made by",
        "`scripts/torch_names.py` from the installed packages. [python-rpc.md](python-rpc.md) says what "
        "differs in meaning.",
    ]
    kept = rows_in(before)
    for title, rows in sections():
        lines += ["", f"## {title}", "", "| name | here |", "|---|---|"]
        names = {name for name, _ in rows}
        others = [row for row in kept.get(title, []) if row[0] not in names]
        rows = rows + others if title.startswith("torch.nn.") else sorted(rows + others)
        lines += [f"| {name} | {state} |" for name, state in rows]
    return "\n".join(lines) + "\n"


def missing_lines(text: str) -> list[str]:
    """What a page lacks for the installed torch."""
    return [line for line in page().splitlines() if line not in text]


def main() -> None:
    if sys.argv[1:2] not in (["--check"], ["--merge"]):
        print(page(), end="")
        return
    with open(sys.argv[2], encoding="utf-8") as file:
        text = file.read()
    if sys.argv[1] == "--merge":
        print(page(text), end="")
        return
    missing = missing_lines(text)
    if missing:
        raise SystemExit(f"torch_names: {sys.argv[2]} lacks, among {len(missing)} lines: {missing[0]}")


if __name__ == "__main__":
    main()
