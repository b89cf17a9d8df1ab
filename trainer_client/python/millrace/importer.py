"""Rows of tables from files of tensors: safetensors, torch.save(), torch.distributed.checkpoint, npz, npy.

    python3 -m millrace.importer model.safetensors --map 'embedding_bags.*.weight=*' --create

import_rows() does the same in a program. Everything is checked before the first row is set.
"""
from __future__ import annotations

import argparse
import ast
import os
import re
import sys
from dataclasses import dataclass, field
from typing import Any, Iterator, Mapping, Sequence

import numpy as np

from . import init, optim
from ._base.entry import Entry, FileError
from ._base.library import counted
from ._base.printable import printable
from ._base.tensor_files import read
from .client import Client
from .errors import Error, UnknownOutcome, UnknownTable
from .feature import TableSpec
from .progress import Bar
from .pushed import Pushed
from .stored import Part, check_set, parts_of, record_floats
from .table import Table

__all__ = ["Imported", "FileError", "import_rows", "read"]

_PIECE_BYTES = 32 << 20  # of records read from the file at a time
_TRIES = 5  # of a piece whose outcome is not known

# What others call the parts of an optimizer's state: torch, FBGEMM and TorchRec.
_NAMES = {
    "sum": ("sum", "momentum1", "momentum_1"),
    "m": ("m", "exp_avg", "momentum1", "momentum_1"),
    "v": ("v", "exp_avg_sq", "momentum2", "momentum_2"),
    "step": ("step", "iter"),
    "last_step": ("last_step", "step", "iter"),
    "velocity": ("velocity", "momentum_buffer", "momentum1", "momentum_1"),
    "was_updated": ("was_updated",),
    "z": ("z",),
    "n": ("n",),
    "rate": ("rate",),
}

# Others keep no momentum of rows that were never updated.
_WAS_UPDATED = Entry("was_updated", (), "float32", lambda _: iter([np.ones((), np.float32)]))


@dataclass(frozen=True)
class Imported:
    """A tensor of a file, and the table that its rows go to."""

    entry: str
    table: str
    rows: int
    dim: int
    is_new: bool  #: the table is made for it
    state: tuple[str, ...]  #: parts of the optimizer's state that come along
    bytes: int  #: of rows and state, as float32


@dataclass
class _Job:
    entry: Entry
    table: str
    spec: TableSpec
    is_new: bool
    state: dict[str, Entry] = field(default_factory=dict)
    keys: Entry | None = None

    @property
    def record_bytes(self) -> int:
        return 4 * record_floats(self.spec, bool(self.state))

    def summary(self) -> Imported:
        rows = self.entry.shape[0]
        return Imported(
            self.entry.name,
            self.table,
            rows,
            self.spec.dim,
            self.is_new,
            tuple(self.state),
            rows * self.record_bytes,
        )


# ---- what goes where ----


def _target(name: str, rules: Mapping[str, str]) -> str | None:
    """Where the first rule that matches has it: a `*` of the pattern is any text, and fills a `*` in the
    target."""
    for pattern, target in rules.items():
        found = re.fullmatch("(.*)".join(map(re.escape, pattern.split("*"))), name)
        if found:
            texts = iter(found.groups())
            return re.sub(r"\*", lambda _: next(texts, "*"), target)
    return None


def _unused(rules: Mapping[str, str], names: Sequence[str], option: str) -> None:
    for pattern, target in rules.items():
        if all(_target(name, {pattern: target}) is None for name in names):
            shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
            raise ValueError(
                f"{option} {pattern}={target}: the file has no tensor of that name; it has {shown}"
            )


def _check_readable(entry: Entry) -> None:
    if entry.refused is not None:
        raise FileError(entry.refused)


def _spec_of(
    client: Client, entry: Entry, table: str, options: Mapping[str, Any] | None
) -> tuple[TableSpec, bool]:
    _check_readable(entry)
    if len(entry.shape) != 2:
        raise ValueError(f"{entry.name} has the shape {list(entry.shape)}; rows of a table are [n, dim]")
    rows, dim = entry.shape
    try:
        spec, is_new = client.table(table).spec, False
    except UnknownTable as error:
        if options is None:
            raise ValueError(f"{error}; or let the import create it (--create)") from None
        spec, is_new = TableSpec(table, dim, **options), True
        spec.to_feature()  # checks it
    if spec.dim != dim:
        raise ValueError(f"{entry.name} has rows of {dim}; those of table {table!r} have {spec.dim}")
    return spec, is_new


def _last(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _check_part(part: Part, entry: Entry, job: _Job) -> None:
    rows, wide = job.entry.shape[0], (job.spec.dim,) if part.is_wide else ()
    fits = [(rows, *wide)] if part.is_wide else [(rows,), (rows, 1), (), (1,)]
    if entry.shape not in fits:
        raise ValueError(
            f"{entry.name} has the shape {list(entry.shape)}; {part.name!r} of {job.spec.optimizer} for "
            f"{job.entry.name} is {list(fits[0])}"
        )


def _take_state(job: _Job, entries: Sequence[Entry]) -> None:
    parts = parts_of(job.spec.optimizer, job.spec.dim)
    if not parts:
        raise ValueError(f"table {job.table!r} has {job.spec.optimizer}, which keeps no state")
    for part in parts:
        found = [entry for entry in entries if _last(entry.name) in _NAMES[part.name]]
        if not found and part.name == "was_updated":
            found = [_WAS_UPDATED]
        if not found and part.name == "last_step":
            continue  # that which the table has reached
        if len(found) != 1:
            raise ValueError(
                f"table {job.table!r}: the state of {job.spec.optimizer} needs one tensor named "
                f"{' or '.join(_NAMES[part.name])}; there are {', '.join(e.name for e in found) or 'none'}"
            )
        _check_readable(found[0])
        _check_part(part, found[0], job)
        job.state[part.name] = found[0]


def _jobs(
    client: Client,
    entries: Mapping[str, Entry],
    rules: Mapping[str, str],
    states: Mapping[str, str],
    keys: str | None,
    options: Mapping[str, Any] | None,
) -> list[_Job]:
    names = list(entries)
    _unused(rules, names, "map")
    jobs: dict[str, _Job] = {}
    for name, entry in entries.items():
        table = _target(name, rules)
        if table is None:
            continue
        if table in jobs:
            raise ValueError(f"{jobs[table].entry.name} and {name} both go to table {table!r}")
        jobs[table] = _Job(entry, table, *_spec_of(client, entry, table, options))
    _unused({f"{prefix}.*": table for prefix, table in states.items()}, names, "state")
    groups: dict[str, list[Entry]] = {}
    for name, entry in entries.items():
        table = _target(name, {f"{prefix}.*": table for prefix, table in states.items()})
        if table is not None:
            groups.setdefault(table, []).append(entry)
    for table, group in groups.items():
        if table not in jobs:
            raise ValueError(f"state {group[0].name}: no tensor goes to table {table!r}")
        _take_state(jobs[table], group)
    if keys is not None:
        _take_keys(jobs.values(), entries, keys)
    return list(jobs.values())


def _take_keys(jobs: Any, entries: Mapping[str, Entry], name: str) -> None:
    if name not in entries:
        raise ValueError(f"keys {name}: the file has no tensor of that name")
    _check_readable(entries[name])
    for job in jobs:
        if entries[name].shape != job.entry.shape[:1]:
            raise ValueError(
                f"keys {name} have the shape {list(entries[name].shape)}; {job.entry.name} has "
                f"{job.entry.shape[0]} rows"
            )
        job.keys = entries[name]
    if not entries[name].dtype.startswith(("i", "u")):
        raise ValueError(f"keys {name} have the type {entries[name].dtype}; keys are whole numbers")


# ---- the rows ----


def _parts(job: _Job, rows: int) -> Iterator[dict[str, Any]]:
    """The state of each piece. One number for all stays one."""
    wide = {part.name for part in parts_of(job.spec.optimizer, job.spec.dim) if part.is_wide}
    count, same, streams = job.entry.shape[0], {}, {}
    for name, entry in job.state.items():
        if entry.shape == () or (entry.shape == (1,) and count > 1):
            same[name] = entry.all().reshape(())
        else:
            streams[name] = entry.pieces(rows)
    while True:
        pieces = {name: next(stream) for name, stream in streams.items()}
        yield {**same, **{name: p if name in wide else p.reshape(-1) for name, p in pieces.items()}}


def _set(table: Table, keys: Any, rows: np.ndarray, state: Mapping[str, Any] | None) -> Pushed:
    """Once more where it is not known what became of it, as when partitions move to another node: a set that
    comes twice does no harm."""
    for _ in range(_TRIES - 1):
        try:
            return table.set_rows(keys, rows, state, progress=False)
        except UnknownOutcome:
            pass
    return table.set_rows(keys, rows, state, progress=False)


def _run(job: _Job, table: Table, first_key: int, shown: Any) -> None:
    rows = max(1, _PIECE_BYTES // job.record_bytes)
    keys = None if job.keys is None else job.keys.pieces(rows)
    states = _parts(job, rows)
    at = 0
    for piece in job.entry.pieces(rows):
        numbers: Any = np.arange(first_key + at, first_key + at + len(piece), dtype=np.uint64)
        if keys is not None:
            numbers = next(keys)
        check_set(table.name, _set(table, numbers, piece, next(states) if job.state else None))
        at += len(piece)
        shown(len(piece) * job.record_bytes)


def import_rows(
    client: Client,
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    map: Mapping[str, str],
    *,
    state: Mapping[str, str] | None = None,
    keys: str | None = None,
    first_key: int = 0,
    create: Mapping[str, Any] | None = None,
    dry_run: bool = False,
    progress: bool | None = None,
) -> list[Imported]:
    """Sets rows of tables from tensors [n, dim] in files, with as little memory as a mapped file takes.

    files: safetensors, what torch.save() wrote (torch.load(weights_only=True) reads it), a directory of
        torch.distributed.checkpoint, npz or npy; of several, each tensor is in one.
    map: {name of a tensor: name of a table}. A `*` in a name is any text, which replaces a `*` of the table:
        {"embedding_bags.*.weight": "*"}. The first that matches counts; tensors that none matches stay out.
    state: {prefix: table}: the optimizer's state of these rows is in the tensors PREFIX.NAME, as torch and
        TorchRec name them ("exp_avg", "sum", "momentum1", ...). Without, rows start as new ones.
    keys: name of a tensor with the rows' keys, [n]. None: row i has the key first_key + i.
    create: a table that is not there is made with the dim of its rows and these other fields of TableSpec.
        None: it is an error.
    dry_run: check, and set nothing.
    progress: show a bar on standard error; None: on a terminal and in a notebook.

    Returns what went where. ValueError (FileError of a file): nothing was set. Other errors, such as
    RowsNotSet: rows before were set; the import can be repeated.
    """
    if isinstance(files, (str, os.PathLike)):
        files = [files]
    entries: dict[str, Entry] = {}
    for path in files:
        for name, entry in read(path).items():
            if name in entries:
                raise FileError(f"{os.fspath(path)}: {name} is in a file before, too")
            entries[name] = entry
    jobs = _jobs(client, entries, map, state or {}, keys, create)
    summaries = [job.summary() for job in jobs]
    if dry_run:
        return summaries
    total, done = sum(summary.bytes for summary in summaries), 0
    tables = (
        client.create([job.spec for job in jobs if job.is_new]) if any(job.is_new for job in jobs) else []
    )
    made: dict[str, Any] = {table.name: table for table in tables}
    with Bar("import", progress) as bar:

        def shown(more: int) -> None:
            nonlocal done
            done += more
            bar.show(done, total)

        for job in jobs:
            _run(job, made.get(job.table) or client.table(job.table), first_key, shown)
    return summaries


# ---- the command ----


def _described(text: str, module: Any) -> Any:
    """Adagrad(lr=0.05) of millrace.optim, normal(0, 0.01) of millrace.init: a name and plain numbers."""
    try:
        call = ast.parse(text, mode="eval").body
        if isinstance(call, ast.Name):
            call = ast.Call(call, [], [])
        assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        names = {name.lower(): name for name in dir(module) if not name.startswith("_")}
        make = getattr(module, names[call.func.id.lower()])
        arguments = [ast.literal_eval(value) for value in call.args]
        made = make(*arguments, **{k.arg or "": ast.literal_eval(k.value) for k in call.keywords})
        assert isinstance(made, (optim.Optimizer, init.Initializer))
        return made
    except (SyntaxError, AssertionError, KeyError, TypeError, ValueError) as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is none of {module.__name__}'s: {error or 'a name and arguments'}"
        )


def _rule(text: str) -> tuple[str, str]:
    name, is_there, table = text.rpartition("=")
    if not (name and is_there and table):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=TABLE")
    return name, table


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m millrace.importer",
        description="Sets rows of a Millrace server's tables from tensors [n, dim] in files: "
        "safetensors, torch.save(), a directory of torch.distributed.checkpoint, npz, npy.",
        epilog="A * in a name is any text, which replaces a * of the table: "
        "--map 'embedding_bags.*.weight=*'.",
    )
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="or a directory of torch.distributed.checkpoint")
    add(
        "--map",
        action="append",
        type=_rule,
        default=[],
        metavar="NAME=TABLE",
        help="which tensor goes to which table",
    )
    add(
        "--state",
        action="append",
        type=_rule,
        default=[],
        metavar="PREFIX=TABLE",
        help="the table's optimizer state is in PREFIX.exp_avg, PREFIX.sum, ...",
    )
    add(
        "--keys",
        metavar="NAME",
        help="the tensor with the rows' keys; else row i has the key --first-key + i",
    )
    add("--first-key", type=int, default=0, metavar="KEY", help="key of the first row (0)")
    add("--server", default=os.environ.get("MILLRACE_SERVER") or "127.0.0.1", metavar="HOST[:PORT]")
    add("--key-file", metavar="FILE", help="the server's key; else $MILLRACE_KEY_FILE")
    add("--create", action="store_true", help="make tables that are not there, with the dim of their rows")
    add("--optimizer", type=lambda text: _described(text, optim), help="of new tables: 'Adagrad(lr=0.05)'")
    add("--initializer", type=lambda text: _described(text, init), help="of new tables: 'normal(0, 0.01)'")
    add("--pooling", choices=("sum", "mean", "sqrtn", "none"), help="of new tables (sum)")
    add("--dtype", choices=("f32", "f16", "bf16"), help="of new tables (f32)")
    add("--dry-run", action="store_true", help="list what is in the files and would go where; set nothing")
    return parser


def _list(entry: Entry, done: Mapping[str, Imported]) -> None:
    what = done.get(entry.name)
    goes = "" if what is None else f" -> {what.table}{' (new)' if what.is_new else ''}"
    state = f", state {', '.join(what.state)}" if what and what.state else ""
    unread = "" if entry.refused is None else ", cannot be read"
    print(printable(f"{entry.name} {entry.dtype} {list(entry.shape)}{goes}{state}{unread}"))


def main(words: Sequence[str] | None = None) -> int:
    """The command. Returns its exit code."""
    parser = _arguments()
    given = parser.parse_args(words)
    fields = ("optimizer", "initializer", "pooling", "dtype")
    options = {name: getattr(given, name) for name in fields if getattr(given, name) is not None}
    if options and not given.create:
        parser.error(f"--{next(iter(options))} is of new tables: it needs --create")
    if not given.map and not given.dry_run:
        parser.error("--map NAME=TABLE says which tensor goes where; --dry-run lists the tensors")
    rules, states = dict(given.map), dict(given.state)
    try:
        done: list[Imported] = []
        if rules:
            with Client(given.server, key_file=given.key_file, deadline_s=60) as client:
                done = import_rows(
                    client,
                    given.files,
                    rules,
                    state=states,
                    keys=given.keys,
                    first_key=given.first_key,
                    create=options if given.create else None,
                    dry_run=given.dry_run,
                )
        if given.dry_run:
            by_name = {what.entry: what for what in done}
            for path in given.files:
                for entry in read(path).values():
                    _list(entry, by_name)
    except (Error, OSError, ValueError) as error:
        print(printable(f"{parser.prog}: {error}"), file=sys.stderr)
        return 1
    if rules:
        verb = "would import" if given.dry_run else "imported"
        rows, size = sum(what.rows for what in done), sum(what.bytes for what in done)
        print(
            f"{verb} {counted(rows, 'row')} ({size / (1 << 20):.1f} MiB) into {counted(len(done), 'table')}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
