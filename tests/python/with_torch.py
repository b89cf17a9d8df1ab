#!/usr/bin/env python3
"""Runs tests in an environment of scripts/torch2.py.

usage: with_torch.py torch2|system|torchrec|graphlearn [--beside system|torchrec] FILE...

torch2: with the newest torch; with this Python where the environment has not been made.
system: with this Python; skipped where that is what "torch2" does.
torchrec, graphlearn: with TorchRec or GraphLearn-torch; skipped without the environment.
--beside: of files that "system" or "torchrec" runs, too. Where it does, it has the node with one core, and
this run the one with two; and it leaves out tests that are marked "once".
MILLRACE_TORCH2, MILLRACE_TORCHREC and MILLRACE_GRAPHLEARN name another Python for torch2, torchrec and
graphlearn.
"""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MESON_SKIPPED = 77
MAKER = Path(__file__).resolve().parents[2] / "scripts/torch2.py"


def python_of(name: str) -> str | None:
    """The environment's Python, if it has been made."""
    named = os.environ.get(f"MILLRACE_{name.upper()}")
    if named:
        return named
    command = [sys.executable, MAKER, "--python", sys.executable, "--path", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def is_made(which: str) -> bool:
    """Whether a run with this name is not skipped."""
    return python_of("torch2" if which == "system" else which) is not None


def main() -> int:
    """Becomes pytest. MESON_SKIPPED: there is no environment."""
    which, files = sys.argv[1], sys.argv[2:]
    beside = files[1] if files[0] == "--beside" else None
    if which != "torch2" and not is_made(which):
        print(f"skipped: {MAKER.name} has made no environment of its own")
        return MESON_SKIPPED
    if beside is not None:
        files = files[2:]
    if beside is not None and is_made(beside):
        os.environ["MILLRACE_NODE_CORES"] = "2"
    elif which in ("system", "torchrec"):
        os.environ.update(MILLRACE_NODE_CORES="1", MILLRACE_AGAIN="1")
    made = None if which == "system" else python_of(which)
    python = sys.executable if made is None else made
    os.execv(python, [python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *files])


if __name__ == "__main__":
    sys.exit(main())
