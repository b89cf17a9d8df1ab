"""torch's own tests of remote calls over millrace.rpc (torch_suite.py), where torch 2 is."""
from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
from torch_programs import skip_without_torch

skip_without_torch()
for _name in ("expecttest", "hypothesis"):
    if importlib.util.find_spec(_name) is None:
        pytest.skip(f"torch's tests need {_name}: scripts/torch2.py installs it", allow_module_level=True)


def test_every_test_but_those_that_are_left_out():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_suite.py")
    done = subprocess.run(
        [sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    print(done.stdout)
    last = done.stdout.rstrip().splitlines()[-1]
    assert done.returncode == 0, last
    assert " ok, " in last and last.endswith(" 0 FAIL")
