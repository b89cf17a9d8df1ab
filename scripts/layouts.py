#!/usr/bin/env python3
"""Checks that no layout changes without a look at older versions.

A layout is what leaves a process: packets, bodies of calls, descriptors of tables, rows as they are
stored, files of checkpoints, what the nodes of a cluster keep at the coordinator, and structures that
programs share with the library.
scripts/layouts.list has a hash of the declarations of each. If one differs, an older version may misread
what this one writes: then the change takes a capability bit (dataplane/wire/format/capability.h), or
raises the number of the protocol or of a format. If it cannot be misread (a new counter, a name), nothing
but the hash changes. Of the public headers the minor version rises, and with it the SONAME, once a
version of this SONAME has been released (docs/adr/0128-soname-by-minor-version.md).

usage: scripts/layouts.py [--renew]     --renew: write the hashes as they are now
"""
import hashlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST = "scripts/layouts.list"

# What is taken from a file: everything with its comments (bodies are described there), the operations and
# words of ops.def without comments and without what is said of a word, the declarations of data, the texts in
# quotes (keys of JSON), or functions of that name.
WHOLE, OPS, DATA, TEXTS = "whole", "ops", "data", "texts"
LAYOUTS = {
    "dataplane/wire/format/ops.def": OPS,
    "dataplane/wire/format/op.h": DATA,
    "trainer_client/millrace.h": DATA,
    "trainer_client/millrace_admin.h": DATA,
    "trainer_client/millrace_observe.h": DATA,
    "dataplane/rpc/millrace_rpc.h": DATA,
    "dataplane/wire/format/capability.h": DATA,
    "dataplane/wire/format/packet.h": DATA,
    "dataplane/wire/format/message.h": DATA,
    "dataplane/wire/format/mr_feature.h": DATA,
    "dataplane/wire/format/mr_tensor.h": DATA,
    "dataplane/wire/format/mr_annotation.h": DATA,
    "dataplane/wire/format/mr_tolerance.h": WHOLE,
    "dataplane/wire/format/cluster.h": WHOLE,
    "dataplane/wire/format/move.h": WHOLE,
    "dataplane/wire/format/capture.h": WHOLE,
    "dataplane/wire/format/recent_calls.h": WHOLE,
    "dataplane/wire/format/push_number.h": DATA,
    "dataplane/wire/format/ranges.h": DATA,
    "dataplane/rpc/base/values.h": DATA,
    "dataplane/rpc/world/world.h": DATA,
    "dataplane/rpc/world/long_message.h": DATA,
    "dataplane/rpc/rref/rref_count.h": DATA,
    "dataplane/rpc/autograd/backward.h": DATA,
    "dataplane/rpc/dist_optimizer/dist_optimizer.h": DATA,
    "dataplane/optimizer/rule.c": r"\w*state_floats",
    "ps/row/row_layout.c": WHOLE,
    "ps/log/log_format.h": WHOLE,
    "ps/checkpoint/checkpoint.h": DATA,
    "ps/checkpoint/checkpoint_format.h": DATA,
    "ps/checkpoint/checkpoint_manifest.c": TEXTS,
    "ps/checkpoint/cluster_manifest.c": TEXTS,
    "ps/cluster/map_json.c": TEXTS,
    "ps/cluster/catalog_json.c": TEXTS,
    "ps/core/history.c": TEXTS,
}

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
WORD_HELP = re.compile(r"""(^MR_WORD(?:_SPAN)?\([^"]*)(?:"(?:[^"\\]|\\.)*"\s*)+""", re.MULTILINE)
DECLARATION = re.compile(
    r"^#define(?:\\\n|[^\n])*|^(?:enum|struct) \w+ \{.*?^\}[^\n]*;|^enum \{.*?^\};", re.MULTILINE | re.DOTALL
)
KEY = re.compile(r'"((?:[^"\\\n]|\\.)*)"|^#define \w+_FIELDS\(X\)(?:\\\n|[^\n])*', re.MULTILINE)


def declarations(text: str, kind: str) -> str:
    """What counts of a file, without regard to spaces."""
    if kind == WHOLE:
        found = [text]
    elif kind == OPS:
        found = [WORD_HELP.sub(r"\1", COMMENT.sub("", text))]
    else:
        text = COMMENT.sub("", text)
        pattern = {DATA: DECLARATION, TEXTS: KEY}.get(kind) or re.compile(
            rf"^[^\n;]*\b{kind}\([^;{{]*\{{.*?^\}}", re.MULTILINE | re.DOTALL
        )
        found = [match.group(0) for match in pattern.finditer(text)]
    if kind == TEXTS:  # texts of errors have spaces, keys have none
        found = [t for t in found if t.startswith(("#", '"{')) or not (" " in t or t.endswith('.h"'))]
    return "\n".join(" ".join(part.replace("\\\n", " ").split()) for part in found)


def hashes(root: Path) -> dict[str, str]:
    return {
        path: hashlib.sha256(declarations((root / path).read_text(), kind).encode()).hexdigest()[:16]
        for path, kind in LAYOUTS.items()
    }


def renew(root: Path) -> None:
    lines = [f"{value}  {path}\n" for path, value in sorted(hashes(root).items())]
    (root / LIST).write_text("".join(lines))


def check(root: Path) -> list[str]:
    """The files whose layouts are not those of the list."""
    listed = {}
    for line in (root / LIST).read_text().splitlines():
        value, path = line.split()
        listed[path] = value
    now = hashes(root)
    return sorted(path for path in now.keys() | listed.keys() if now.get(path) != listed.get(path))


def main() -> int:
    if sys.argv[1:] == ["--renew"]:
        renew(ROOT)
        return 0
    changed = check(ROOT)
    for path in changed:
        print(f"{path}: its layouts have changed since {LIST} was renewed")
    if changed:
        print(
            "Would a version before this change misread what this one sends or writes? Then the change "
            "takes a bit in dataplane/wire/format/capability.h (docs/adr/0130-capability-bits.md). Renew the "
            "list with scripts/layouts.py --renew."
        )
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
