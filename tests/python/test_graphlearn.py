"""GraphLearn-torch's distributed loaders over millrace.rpc, between two workers (graphlearn_worker.py)."""
from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
from rpc_world import HERE, finish, free_port, key_file

if importlib.util.find_spec("graphlearn_torch") is None:
    pytest.skip(
        "there is no graphlearn_torch: scripts/torch2.py graphlearn installs it", allow_module_level=True
    )


def test_loaders_sample_at_both_workers(tmp_path):
    port, key = free_port(), key_file(tmp_path)
    environment = {**os.environ, "MILLRACE_PYTHON_FUNCTIONS": "on", "MILLRACE_KEY_FILE": key}
    workers = [
        subprocess.Popen(
            [sys.executable, os.path.join(HERE, "graphlearn_worker.py"), str(rank), str(port)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for worker in workers:
            said = finish(worker)
            for loader in ("neighbors 4", "links 12", "subgraphs 4"):
                assert said.count(f"{loader}\n") == 2, said
    finally:
        for worker in workers:
            worker.kill()
