#!/usr/bin/env python3
"""The tables of operations in docs/protocol.md, from dataplane/wire/format/ops.def.

Checks that they are up to date, and that each body is used by an operation. scripts/docs.sh calls it.

usage: scripts/ops.py [--renew]     --renew: write the tables
"""
import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LIST = "dataplane/wire/format/ops.def"
PAGE = "docs/protocol.md"

LINE = re.compile(
    r'^MR_(OP|OP_FORM|BODY|WORD|WORD_SPAN|BODY_END)\(((?:"(?:[^"\\]|\\.)*"|[^"()])*)\)$', re.MULTILINE
)
ARGUMENT = re.compile(r'(?:"(?:[^"\\]|\\.)*"\s*)+|[^,\s"]+')
BODY_NAME = re.compile(r"@([A-Z_]+)(?:\[(\w+)\])?")
ROLES = {"OPERATOR": "operator", "TRAINER": "trainer", "READ_ONLY": "all"}
SERVED = {"CORE": "", "CORE_0": "core 0", "CONTROL": "core 0", "HUB": "hub", "WORKER": "worker"}


class Op(NamedTuple):
    name: str
    value: str
    repeatable: bool
    role: str
    served: str
    forms: list[tuple[str, str]]


class Body(NamedTuple):
    name: str
    dtype: str
    least: int
    words: list[tuple[str, int, str]]  # name, how many, what it is
    total: list[int]  # one number, from the end of the body


def text(argument: str) -> str:
    """A C string of one or more parts, or a name."""
    if not argument.startswith('"'):
        return argument
    parts = re.findall(r'"((?:[^"\\]|\\.)*)"', argument)
    return "".join(parts).replace('\\"', '"').replace("\\\\", "\\")


def read(source: str) -> tuple[list[Op], dict[str, Body]]:
    ops: list[Op] = []
    bodies: dict[str, Body] = {}
    for line in LINE.finditer(source):
        a = [text(argument.strip()) for argument in ARGUMENT.findall(line.group(2))]
        match line.group(1):
            case "OP":
                if a[0] != "NAME":  # the default at the top
                    ops.append(Op(a[0], a[2], a[3] == "true", a[4], a[5], [(a[6], a[7])]))
            case "OP_FORM":
                ops[-1].forms.append((a[0], a[1]))
            case "BODY":
                bodies[a[0]] = Body(a[0], a[2].lower(), int(a[3]), [], [])
            case "WORD":
                bodies[a[0]].words.append((a[1], 1, a[2]))
            case "WORD_SPAN":
                bodies[a[0]].words.append((a[1], int(a[2]), a[3]))
            case "BODY_END":
                bodies[a[0]].total.append(int(a[1]))
    return ops, bodies


def form_text(form: str, bodies: dict[str, Body]) -> str:
    """A request or reply, with the bodies named in it as `u64[n] *name*`."""

    def shape(found: re.Match[str]) -> str:
        body = bodies[found.group(1)]
        rows = f"{found.group(2)}, " if found.group(2) else ""
        return f"{body.dtype}[{rows}{body.total[0]}] *{body.name.lower()}*"

    return BODY_NAME.sub(shape, form).replace("|", "\\|").replace("\\\\|", "\\|")


def op_table(ops: list[Op], bodies: dict[str, Body], of_workers: bool) -> list[str]:
    lines = ["| op | | | role | request | reply |", "|---|---|---|---|---|---|"]
    for op in ops:
        if (op.served == "WORKER") != of_workers:
            continue
        notes = [
            note for note in ("R" if op.repeatable else "", SERVED[op.served]) if note not in ("", "worker")
        ]
        head = [op.value, op.name, ", ".join(notes), ROLES[op.role]]
        for form in op.forms:
            cells = head + [form_text(cell, bodies) for cell in form]
            lines.append("| " + " | ".join(cells).replace("|  |", "| |") + " |")
            head = ["", "", "", ""]
    return [line.replace("|  |", "| |").replace("|  |", "| |") for line in lines]


def word_table(bodies: dict[str, Body]) -> list[str]:
    lines = ["| body | at | word | |", "|---|---|---|---|"]
    for body in bodies.values():
        at, head = 0, f"*{body.name.lower()}*"
        if body.least < body.total[0]:
            head += f", {body.least} or more"
        for name, count, what in body.words:
            place = str(at) if count == 1 else f"{at} to {at + count - 1}"
            lines.append(f"| {head} | {place} | `{name.lower()}` | {what} |".replace("|  |", "| |"))
            at, head = at + count, ""
    return lines


def problems(ops: list[Op], bodies: dict[str, Body]) -> list[str]:
    named = {
        found.group(1)
        for op in ops
        for form in op.forms
        for cell in form
        for found in BODY_NAME.finditer(cell)
    }
    found = [f"{LIST}: no body is called {name}" for name in sorted(named - bodies.keys())]
    found += [f"{LIST}: no operation has the body {name}" for name in sorted(bodies.keys() - named)]
    values = [int(op.value) for op in ops]
    if values != sorted(set(values)):
        found.append(f"{LIST}: the numbers of operations do not rise")
    return found


def renewed(page: str, source: str) -> str:
    """The page with the tables as the list has them."""
    ops, bodies = read(source)
    tables = {
        "ops": op_table(ops, bodies, False),
        "remote calls": op_table(ops, bodies, True),
        "words": word_table(bodies),
    }
    for name, lines in tables.items():
        mark = f"<!-- {name}: scripts/ops.py --renew -->\n"
        begin = page.index(mark) + len(mark)
        end = page.index("<!-- end -->", begin)
        page = page[:begin] + "\n" + "\n".join(lines) + "\n\n" + page[end:]
    return page


def main() -> int:
    source, page = (ROOT / LIST).read_text(), (ROOT / PAGE).read_text()
    found = problems(*read(source))
    if not found and sys.argv[1:] == ["--renew"]:
        (ROOT / PAGE).write_text(renewed(page, source))
    elif not found and renewed(page, source) != page:
        found.append(f"{PAGE}: its tables are not those of {LIST}: scripts/ops.py --renew")
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
