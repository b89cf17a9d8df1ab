"""One worker of the tutorials' worlds, by torch.distributed.rpc or, with the programs' imports changed, by
millrace.rpc. Prints what each program came to as JSON.

usage: run.py torch|millrace RANK NAME:PORT:PORT...     torch runs one program in a process

Before each program its workers wait for each other in the directory TUTORIALS_MEET.
"""
import importlib.util
import json
import os
import re
import sys

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(HERE))
from waits import wait_until  # noqa: E402

CHANGED = (  # what docs/python-rpc.md says
    (r"import torch\.distributed\.rpc as ", "import millrace.rpc as "),
    (r"import torch\.distributed\.autograd as ", "import millrace.autograd as "),
    (r"from torch\.distributed\.optim import ", "from millrace.optim import "),
    (r"from torch\.distributed\.rpc import ", "from millrace.rpc import "),
    (r"from torch\.distributed\.nn(\.api\.remote_module)? import ", "from millrace.rpc import "),
)


def load(name, backend):
    """The program as a module of that name, under which its functions are found on all workers."""
    path = os.path.join(HERE, f"{name}.py")
    with open(path, encoding="utf-8") as file:
        source = file.read()
    if backend == "millrace":
        for old, new in CHANGED:
            source = re.sub(f"^{old}", new, source, flags=re.MULTILINE)
        assert "import torch.distributed." not in source and "from torch.distributed." not in source
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader=None))
    sys.modules[name] = module
    exec(compile(source, path, "exec"), module.__dict__)
    return module


def meet(directory, program, rank):
    """Returns when all workers of the program are here. Some have been in programs before that it was not in,
    for longer than init_rpc waits for them."""
    here = [os.path.join(directory, f"{program.__name__}-{r}") for r in range(program.WORLD_SIZE)]
    open(here[rank], "x", encoding="ascii").close()
    wait_until(lambda: all(map(os.path.exists, here)), f"all workers of {program.__name__} are here", 600)


def run(program, rank):
    """What the worker came to; None where the program has fewer workers."""
    if rank >= program.WORLD_SIZE:
        return None
    meet(os.environ["TUTORIALS_MEET"], program, rank)
    return program.run_worker(rank, program.WORLD_SIZE)


if __name__ == "__main__":
    torch.set_num_threads(1)
    said = {}
    for wanted in sys.argv[3:]:
        name, os.environ["MASTER_PORT"], os.environ["DDP_PORT"] = wanted.split(":")
        said[name] = run(load(name, sys.argv[1]), int(sys.argv[2]))
    print("came to " + json.dumps(said), flush=True)
