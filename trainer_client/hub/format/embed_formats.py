#!/usr/bin/env python3
"""Writes descriptions of formats as C, for built_in_formats.h.

usage: embed_formats.py OUTPUT FILE...
"""
import json
import sys
from pathlib import Path


def main() -> None:
    output, *files = sys.argv[1:]
    lines = ['#include "trainer_client/hub/format/built_in_formats.h"', ""]
    lines += ["const struct hub_built_in_format hub_built_in_formats[] = {"]
    for file in files:
        text = Path(file).read_text(encoding="ascii")
        lines += [f"    {{{json.dumps('configs/formats/' + Path(file).name)},"]
        lines += [f"     {json.dumps(line)}" for line in text.splitlines(keepends=True)]
        lines += ["    },"]
    lines += ["    {0, 0},", "};", ""]
    Path(output).write_text("\n".join(lines), encoding="ascii")


main()
