"""torch's own tests of remote calls, which each wheel of torch has, over millrace.rpc: their imports are
changed, and nothing else. What an exception says is Millrace's own; its type has to be torch's.

usage: torch_suite.py [PATTERN]     prints a line for each test whose "Class.test" the pattern is found in

torch starts new processes for each test. Here the same ones run one test after the other, each in a world of
its own, so that programs that join again and again are tested, too. Variables of torch's modules are as they
were imported when a test begins.
"""
from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import importlib
import json
import os
import re
import select
import sys
import tempfile
import time
import types
import unittest
import warnings
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
LEFT_OUT = os.path.join(HERE, "torch_suite_left_out.txt")
WORKERS = 6  # of the largest world
TEST_S = 600  # none takes a twentieth of that on a machine that is not loaded
SKIPS = range(70, 100)  # torch's exit codes of tests that cannot run on a machine
MODULES = {
    "rpc.rpc_test": ["RpcTest"],
    "rpc.dist_autograd_test": ["DistAutogradTest"],
    "rpc.dist_optimizer_test": ["DistOptimizerTest"],
    "nn.api.remote_module_test": ["RemoteModuleTest", "ThreeWorkersRemoteModuleTest"],
    "rpc.examples.parameter_server_test": ["ParameterServerTest"],
    "rpc.examples.reinforcement_learning_rpc_test": ["ReinforcementLearningRpcTest"],
    "ddp_under_dist_autograd_test": ["DdpUnderDistAutogradTest", "DdpComparisonTest"],
}


# ---- torch's modules with Millrace's names in them ----


class _Mixed(types.ModuleType):
    """Ours where we have it, torch's otherwise: what its tests import besides."""

    def __init__(self, name: str, ours: Any, **further: Any) -> None:
        super().__init__(name)
        theirs = importlib.import_module(name)
        self.__theirs = theirs
        self.__spec__ = theirs.__spec__
        if hasattr(theirs, "__path__"):
            self.__path__ = theirs.__path__
        for one, value in {**vars(ours), **further}.items():
            if not one.startswith("__"):
                setattr(self, one, value)
        sys.modules[name] = self
        parent, _, last = name.rpartition(".")
        setattr(sys.modules[parent], last, self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__theirs, name)


def put_in_place() -> None:
    """Has torch's tests use millrace.rpc."""
    with contextlib.suppress(ImportError):  # for all workers: torch 2 has it at an optimizer's first step
        importlib.import_module("torch._dynamo")
    for name in ("distributed.nn.api.remote_module", "distributed.optim", "distributed.rpc.internal"):
        importlib.import_module(f"torch.{name}")
    import torch
    from torch.distributed.nn.api import remote_module

    import millrace.autograd
    import millrace.optim
    import millrace.rpc

    registry = types.SimpleNamespace(
        BackendType=millrace.rpc.BackendType,
        construct_rpc_backend_options=lambda _backend, **options: millrace.rpc.RpcBackendOptions(**options),
    )
    _Mixed("torch.distributed.rpc.api", millrace.rpc.api)
    _Mixed("torch.distributed.rpc", millrace.rpc, backend_registry=registry)
    _Mixed("torch.distributed.autograd", millrace.autograd)
    for module in (torch.distributed.nn, remote_module):
        module.RemoteModule = millrace.rpc.RemoteModule
    torch.distributed.optim.DistributedOptimizer = millrace.optim.DistributedOptimizer


def any_words(real: Any) -> Any:
    """assertRaisesRegex, of the type only."""

    def checked(self: Any, expected: Any, _words: Any, *args: Any, **kwargs: Any) -> Any:
        return real(self, expected, "", *args, **kwargs)

    return checked


def test_classes() -> dict[str, type]:
    """By name, as classes that workers make."""
    from torch.testing._internal.common_distributed import MultiProcessTestCase
    from torch.testing._internal.distributed.rpc.tensorpipe_rpc_agent_test_fixture import (
        TensorPipeRpcAgentTestFixture,
    )

    class Fixture(TensorPipeRpcAgentTestFixture):
        """By a file, beside the process group's."""

        @property
        def init_method(self) -> str:
            return self.file_init_method

        def get_shutdown_error_regex(self) -> str:
            return ".*"

        def get_timeout_error_regex(self) -> str:
            return ".*"

    found = {}
    for module, names in MODULES.items():
        tests = importlib.import_module(f"torch.testing._internal.distributed.{module}")
        for name in names:
            its = getattr(tests, name)
            found[name] = type(name, (its, Fixture, MultiProcessTestCase), {})
            found[name].__module__ = tests.__name__  # calls name it
            setattr(tests, name, found[name])
    return found


class Variables:
    """Of the modules of tests, by which workers tell each other how far they are."""

    def __init__(self, classes: dict[str, type]) -> None:
        modules = {kind.__module__: sys.modules[kind.__module__] for kind in classes.values()}
        self.saved = [
            (
                module,
                {name: (value, _copy(value)) for name, value in vars(module).items() if name[:2] != "__"},
            )
            for module in modules.values()
        ]

    def restore(self) -> None:
        """As they were."""
        for module, values in self.saved:
            for name, (value, copied) in values.items():
                setattr(module, name, value if copied is None else _copy(copied))


def _copy(value: Any) -> Any:
    """Of what tests change in place; None: it is used as it is."""
    if isinstance(value, concurrent.futures.Future):
        return concurrent.futures.Future()
    return type(value)(value) if type(value) in (list, set, dict) else None


# ---- a worker ----


def run_here(kind: type, test: str, rank: int, directory: str) -> str:
    """Runs one rank of a test: "" if it passed, "skip: why", or what it raised."""
    import traceback

    import torch.distributed

    import millrace.rpc

    case = kind(test)
    case.rank, case.file_name = rank, os.path.join(directory, "store")
    if rank >= case.world_size:
        return ""
    try:
        getattr(case, test)()
        return ""
    except unittest.SkipTest as why:
        return f"skip: {why}"
    except SystemExit as end:
        return (
            ""
            if end.code in (None, 0)
            else f"skip: exit {end.code}"
            if end.code in SKIPS
            else f"exit {end.code}"
        )
    except BaseException:  # noqa: BLE001: the test has failed
        traceback.print_exc()  # now: leaving waits for functions, which may wait for ever
        return traceback.format_exc()
    finally:
        if millrace.rpc._is_current_rpc_agent_set():
            millrace.rpc.shutdown(graceful=False)
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def serve(rank: int, orders: int, answers: int, output: int, classes: dict[str, type]) -> None:
    """In the child: runs what it is sent until there is no more."""
    os.dup2(output, 1), os.dup2(output, 2)
    sys.stdout = sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)
    variables = Variables(classes)
    with open(orders, encoding="utf-8") as lines:
        for line in lines:
            name, directory = json.loads(line)
            variables.restore()
            said = run_here(classes[name.split(".")[0]], name.split(".")[1], rank, directory)
            os.write(answers, (json.dumps(said) + "\n").encode())


class Workers:
    """Processes that run tests together."""

    def __init__(self, classes: dict[str, type]) -> None:
        # What torch's modules have made is never garbage: collections in the workers pass it over.
        gc.collect()
        gc.freeze()
        self.output = [tempfile.TemporaryFile("w+b") for _ in range(WORKERS)]
        self.pids, self.orders, self.answers = [], [], []
        for rank in range(WORKERS):
            order_out, order_in = os.pipe()
            answer_out, answer_in = os.pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    for descriptor in (order_in, answer_out, *self.orders, *self.answers):
                        os.close(descriptor)
                    serve(rank, order_out, answer_in, self.output[rank].fileno(), classes)
                finally:
                    os._exit(0)
            os.close(order_out), os.close(answer_in)
            self.pids.append(pid), self.orders.append(order_in), self.answers.append(answer_out)

    def run(self, name: str) -> list[str]:
        """What each rank has to say."""
        with tempfile.TemporaryDirectory() as directory:
            for order in self.orders:
                with contextlib.suppress(BrokenPipeError):
                    os.write(order, (json.dumps([name, directory]) + "\n").encode())
            said: dict[int, bytes] = {answer: b"" for answer in self.answers}
            until, missing = time.monotonic() + TEST_S, set(self.answers)
            while missing and time.monotonic() < until:
                ready, _, _ = select.select(list(missing), [], [], until - time.monotonic())
                for answer in ready:
                    more = os.read(answer, 1 << 16)
                    said[answer] += more
                    if not more or said[answer].endswith(b"\n"):
                        missing.discard(answer)
                    if not more:
                        said[answer] = json.dumps("the process ended").encode()
                if ready and any(json.loads(said[a]) not in ("",) for a in said if a not in missing):
                    until = min(until, time.monotonic() + TEST_S / 4)  # the others may wait for that one
            return [json.loads(line) if line else "no end in time" for line in said.values()]

    def printed(self, rank: int) -> str:
        """The end of its output."""
        self.output[rank].seek(0)
        return self.output[rank].read()[-4000:].decode(errors="replace")

    def end(self) -> None:
        """Kills those that have not ended."""
        import signal

        for descriptor in (*self.orders, *self.answers):
            os.close(descriptor)
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


# ---- all tests ----


def left_out() -> dict[str, str]:
    """Why, by test."""
    with open(LEFT_OUT, encoding="utf-8") as file:
        lines = [line.split(None, 1) for line in file if line.strip() and not line.startswith("#")]
    return {name: why.strip() for name, why in lines}


def judge(said: list[str]) -> str:
    """Of all ranks: ok, skip or FAIL."""
    failed = [one for one in said if one and not one.startswith("skip: ")]
    return "FAIL" if failed else "skip" if any(said) else "ok"


def run_all(pattern: str) -> int:
    """Returns how many have failed."""
    warnings.filterwarnings("ignore", message=".*Python functions are on.*")
    classes, without = test_classes(), left_out()
    names = [f"{c}.{t}" for c, kind in classes.items() for t in unittest.TestLoader().getTestCaseNames(kind)]
    unknown = sorted(set(without) - set(names))
    counts = {"ok": 0, "skip": 0, "left out": 0, "FAIL": len(unknown)}
    for name in unknown:
        print(f"FAIL     {name} is left out, and torch has no such test", flush=True)
    workers = Workers(classes)
    for name in names:
        if not re.search(pattern, name):
            continue
        if name in without:
            counts["left out"] += 1
            print(f"left out {name}: {without[name]}", flush=True)
            continue
        began = time.monotonic()
        said = workers.run(name)
        outcome = judge(said)
        counts[outcome] += 1
        print(f"{outcome:8} {name} {time.monotonic() - began:.1f} s", flush=True)
        for rank, one in enumerate(said):
            if outcome == "FAIL" and one:
                print(f"rank {rank}: {one}\n{workers.printed(rank)}", flush=True)
        if outcome == "FAIL":
            workers.end()
            workers = Workers(classes)
    workers.end()
    print(", ".join(f"{count} {what}" for what, count in counts.items()), flush=True)
    return counts["FAIL"]


if __name__ == "__main__":
    os.environ["MILLRACE_PYTHON_FUNCTIONS"] = "on"
    for interface in ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        os.environ[interface] = "lo"
    put_in_place()
    unittest.TestCase.assertRaisesRegex = any_words(unittest.TestCase.assertRaisesRegex)
    sys.exit(run_all(sys.argv[1] if len(sys.argv) > 1 else "") > 0)
