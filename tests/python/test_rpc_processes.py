"""Joining, leaving, dying and exiting: worlds of processes of their own.

A worker counts as dead after the default of 10 s: on a machine under load, one that lives may be silent for
seconds.
"""
from __future__ import annotations

import time

import pytest
from rpc_world import HERE, finish, free_port, key_file, start
from torch_programs import skip_without_torch

skip_without_torch()

_HEAD = """
import os, sys, time, threading, warnings
sys.path.insert(0, {here!r})
import torch
torch.set_num_threads(1)
import rpc_functions as there
from waits import wait_until
import millrace
import millrace.rpc as rpc
import millrace.autograd as dist_autograd

def join(rank, world_size=2, name=None, **options):
    options = {{"allow_python_functions": True, "key_file": {key!r}, "init_timeout_s": 200, **options}}
    options.setdefault("init_method", "tcp://127.0.0.1:{port}")
    options = rpc.RpcBackendOptions(**options)
    rpc.init_rpc(name or f"w{{rank}}", rank=rank, world_size=world_size, rpc_backend_options=options)

def expect(kind, part, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except kind as error:
        assert part in str(error), str(error)
        return
    raise AssertionError(f"no {{kind}}")
"""


@pytest.fixture
def run(tmp_path):
    """Runs scripts side by side, one for each rank; gives what each said. codes: what ranks end with, if
    not with 0. as_users_do: not by forks."""
    key = key_file(tmp_path)
    programs = []

    def side_by_side(
        *scripts: str,
        codes: dict[int, int] | None = None,
        key_of=None,
        as_users_do: bool = False,
        **environment: str,
    ) -> list[str]:
        head = _HEAD.format(here=HERE, port=free_port(), key=key if key_of is None else key_of())
        programs.extend(start(head + script, as_users_do, **environment) for script in scripts)
        said = []
        for rank, program in enumerate(programs):
            expected = (codes or {}).get(rank, 0)
            if expected == 0:
                said.append(finish(program))
            else:
                text, _ = program.communicate(timeout=300)
                assert program.returncode == expected, f"exit code {program.returncode}:\n{text}"
                said.append(text)
        return said

    yield side_by_side
    for program in programs:
        if program.poll() is None:
            program.kill()
            program.communicate()


SERVE = "\njoin({rank})\nrpc.shutdown()\n"


def test_python_functions_are_off_unless_turned_on(run):
    run(
        """
join(0, allow_python_functions=None)
# Off here: its result would be a pickle.
expect(PermissionError, "allow_python_functions", rpc.rpc_sync, 1, there.nothing)
expect(millrace.UnknownFunction, "x.y", rpc.rpc_sync, 1, "x.y")  # by name needs no pickle
rpc.shutdown()
""",
        "\njoin(1)\nexpect(millrace.Unauthorized, 'MILLRACE_PYTHON_FUNCTIONS=on', rpc.rpc_sync, 0, "
        "there.nothing)\n"
        "expect(millrace.Unauthorized, 'any code', rpc.remote(0, there.nothing).to_here)\n"
        "expect(millrace.Unauthorized, 'any code', rpc.rpc_sync, 0, there.total, "
        "(there.many(200),))\nrpc.shutdown()\n",
    )


def test_the_environment_turns_them_on(run):
    run(
        "\njoin(0, allow_python_functions=None)\nassert rpc.rpc_sync(1, there.my_name) == "
        "'w1'\nrpc.shutdown()\n",
        "\njoin(1, allow_python_functions=None)\nrpc.shutdown()\n",
        MILLRACE_PYTHON_FUNCTIONS="on",
    )


def test_without_a_key_they_warn_once(run):
    said = run(
        "\nwarnings.simplefilter('always')\njoin(0, key_file=None)\nrpc.rpc_sync(1, "
        "there.nothing)\nrpc.shutdown()\n",
        "\njoin(1, key_file=None)\nrpc.shutdown()\n",
    )
    assert said[0].count("there is no key") == 1


def test_another_version_is_named(run):
    """Of the protocol, by whoever answers: to a worker, and to a client."""
    run(
        """
import re, socket
other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
other.bind(("127.0.0.1", 0))
where = "127.0.0.1:%d" % other.getsockname()[1]

def answer():
    while True:
        hello, sender = other.recvfrom(2048)
        if len(hello) >= 64:
            head = hello[:2] + bytes([hello[2] + 1, 255, hello[2], 0, 0, 0])
            other.sendto(head + hello[8:32] + bytes(24), sender)

threading.Thread(target=answer, daemon=True).start()
def mismatch(call):
    for _ in range(60):
        try:
            call()
        except millrace.VersionMismatch as error:
            return error
        except millrace.Error as error:  # the answer came later than a second
            last = error
        else:
            raise AssertionError("no error")
    raise last

calls = {"rendezvous": lambda: join(1, init_method="tcp://" + where, init_timeout_s=1),
         "server": lambda: millrace.Client(where, connect_s=1)}
for peer, call in calls.items():
    line = (
        rf"{peer} speaks version ([0-9]+) of the protocol, "
        r"and this library version ([0-9]+): upgrade the library"
    )
    error = str(mismatch(call))
    versions = re.search(line, error)
    assert versions and int(versions[1]) == int(versions[2]) + 1 and where in error, error
"""
    )


def test_the_key_from_the_environment(run, tmp_path):
    run(
        *(
            "\njoin({0}, key_file=None)\n"
            "assert rpc.rpc_sync({1}, there.my_name) == 'w{1}'\nrpc.shutdown()\n".format(a, b)
            for a, b in ((0, 1), (1, 0))
        ),
        as_users_do=True,
        MILLRACE_KEY_FILE=key_file(tmp_path),
    )


def test_the_place_from_the_environment(run):
    port = str(free_port())
    script = """
os.environ["RANK"] = "{0}"
rpc.init_rpc("w{0}", rpc_backend_options=rpc.RpcBackendOptions(allow_python_functions=True))
assert rpc.rpc_sync("w{1}", there.my_name) == "w{1}"
rpc.shutdown()
"""
    run(script.format(0, 1), script.format(1, 0), MASTER_ADDR="127.0.0.1", MASTER_PORT=port, WORLD_SIZE="2")


def test_one_world_after_another(run):
    script = """
for port in os.environ["PORTS"].split(","):  # the first must not come to the world that the other leaves
    join({0}, init_method="tcp://127.0.0.1:" + port)
    big = rpc.rpc_sync({1}, there.same, (torch.arange(100000.0),))[0]
    reference = rpc.remote({1}, there.add, (1, 2))
    future = rpc.rpc_async({1}, there.add, (1, 2))
    rpc.shutdown()
    assert big[99999] == 99999  # stays
    expect(millrace.InvalidArgument, "left", reference.to_here)
    expect(millrace.InvalidArgument, "left", reference.confirmed_by_owner)
    expect(millrace.InvalidArgument, "init_rpc", rpc.rpc_sync, {1}, there.nothing)
    expect(millrace.InvalidArgument, "init_rpc", rpc.RRef, 1)
    expect(millrace.InvalidArgument, "init_rpc", rpc.shutdown)
    expect(millrace.InvalidArgument, "init_rpc", dist_autograd.context().__enter__)
"""
    run(script.format(0, 1), script.format(1, 0), PORTS=",".join(str(free_port()) for _ in range(3)))


_ENDS = """
import gc
from millrace._base.library import ffi
from millrace.rpc import _world

join({0})
world = _world.current()
big = rpc.rpc_sync({1}, there.same, (torch.arange(100000.0),))[0]
small = rpc.rpc_sync({1}, there.same, (torch.arange(3.0),))[0]
waited, dropped = [rpc.rpc_async({1}, there.add, (1, 2)) for _ in range(2)]
waited.wait()
references = [rpc.remote({1}, there.add, (1, 2)), rpc.RRef(torch.ones(3))]
context = dist_autograd.context()
with context as context_id:
    weight = torch.ones(5000, requires_grad=True)
    loss = rpc.rpc_sync({1}, there.same, (weight,))[0].sum()
    dist_autograd.backward(context_id, [loss])
ring = [world, big, small, waited, dropped, references, context, loss, weight]
ring.append(ring)  # collected together, in whatever order
rpc.shutdown()
"""


@pytest.mark.parametrize(
    "end",
    [
        "ffi.release(world.rpc); assert big[99999] == 99999 and small[2] == 2; ring = None; del big, "
        "references, world; gc.collect()",
        "big = big[10:]; del world, ring, references, small, waited, dropped, context, loss, weight; "
        "gc.collect(); assert big[0] == 10",
        "gc.disable()",  # left to the interpreter's end
    ],
    ids=["world_first", "world_in_a_ring", "exit"],
)
def test_ends_in_any_order(run, end):
    script = _ENDS + end + "\n"
    run(script.format(0, 1), script.format(1, 0))


def test_references_in_globals_do_not_hold_the_world(run):
    script = """
join({0})
mine = [rpc.RRef(torch.ones(3)) for _ in range(5)]
theirs = rpc.remote({1}, there.same, (mine,))
rpc.rpc_sync({1}, there.keep, ("held", (mine, theirs)))
start = time.monotonic()
rpc.shutdown()
"""
    run(script.format(0, 1), script.format(1, 0))


def test_who_is_missing_is_named_and_it_may_be_tried_again(run):
    run(
        """
join(0)
expect(TimeoutError, "w1", rpc.shutdown, timeout=0.3)
assert rpc.rpc_sync(1, there.my_name) == "w1"  # a worker still
rpc.rpc_sync(1, there.wake)
rpc.shutdown()
""",
        "\njoin(1)\nthere.sleep(600)\nrpc.shutdown()\n",
    )


def test_not_graceful(run):
    run(
        "\njoin(0)\nrpc.rpc_sync(1, there.wake)\nrpc.shutdown(graceful=False)\njoin(0, world_size=1)\nassert "
        "rpc.rpc_sync(0, there.add, (1, 2)) == 3\nrpc.shutdown()\n",
        """
join(1, dead_after_s=3600)
there.sleep(600)
while True:  # until its goodbye is there: nobody waits for its silence
    try:
        rpc.rpc_sync(0, there.nothing)
    except millrace.WorkerDied:
        break
    except millrace.Error:
        pass
expect(millrace.WorkerDied, '"w0" (rank 0) has left the world', rpc.rpc_sync, 0, there.nothing)
future = rpc.rpc_async(0, there.nothing)
assert future.done()
expect(millrace.WorkerDied, '"w0" (rank 0) has left the world', future.wait)
rpc.shutdown(graceful=False)
""",
    )


def test_nobody_else_joins(run):
    run(
        "\nexpect(millrace.DeadlineExceeded, 'rank 1', join, 0, 3, init_timeout_s=0.5)\n"
        "expect(millrace.InvalidArgument, 'init_rpc', rpc.rpc_sync, 0, there.nothing)\njoin(0, 1)\nassert "
        "rpc.rpc_sync('w0', there.add, (1, 1)) == 2\nrpc.shutdown()\n"
    )


def test_a_worker_that_dies_in_the_middle(run):
    run(
        """
join(0, world_size=3)
reference = rpc.remote(1, there.add, (1, 2))
assert reference.to_here() == 3
own = rpc.RRef(torch.ones(2))
rpc.rpc_sync(1, there.keep, ("own", own))
future = rpc.rpc_async(1, there.sleep, (600,))
x = torch.ones(3, requires_grad=True)
with dist_autograd.context() as context_id:
    y = rpc.rpc_sync(1, torch.mul, (x, x))
    expect(ConnectionError, "w1", rpc.rpc_sync, 1, there.die)
    expect(millrace.WorkerDied, "w1", future.wait)
    expect(millrace.WorkerDied, "w1", dist_autograd.backward, context_id, [y.sum()])
expect(millrace.WorkerDied, "w1", rpc.rpc_sync, 1, there.nothing)
expect(millrace.WorkerDied, "w1", reference.to_here)
assert rpc.rpc_sync(2, there.my_name) == "w2"
rpc.shutdown()
""",
        "\njoin(1, 3)\nrpc.shutdown()\n",
        "\njoin(2, 3)\nrpc.shutdown()\n",
        codes={1: 9},
    )


# ---- the end of the interpreter ----


def test_the_main_thread_raises(run):
    said = run(
        """
join(0)
mine, theirs = rpc.RRef(torch.ones(3)), rpc.remote(1, there.add, (1, 2))
big = rpc.rpc_sync(1, there.same, (torch.arange(100000.0),))[0]
asleep = rpc.rpc_async(1, there.sleep, (600,), timeout=0)
asleep.then(lambda f: None)
threading.Thread(target=lambda: rpc.rpc_sync(1, there.sleep, (600,), timeout=0), daemon=True).start()
context = dist_autograd.context()
context.__enter__()
raise RuntimeError("the script's own")
""",
        """
join(1)
def is_dead():
    try:
        rpc.rpc_sync(0, there.nothing)
    except millrace.Error:
        return True
    return False
wait_until(is_dead, "worker 0 is dead")
there.wake()
rpc.shutdown(graceful=False)
""",
        codes={0: 1},
        as_users_do=True,
    )
    assert "the script's own" in said[0] and "Fatal" not in said[0]


def test_the_end_without_a_shutdown_while_others_call(run):
    start_s = time.monotonic()
    said = run(
        """
join(0)
there.sleep(600)
print("ends")
""",
        """
join(1)
def call():
    while True:
        try:
            rpc.rpc_sync(0, there.add, (torch.ones(5000), 1))
            rpc.remote(0, there.add, (1, 1)).to_here()
        except millrace.Error:
            return
threads = [threading.Thread(target=call) for _ in range(4)]
for thread in threads:
    thread.start()
rpc.rpc_sync(0, there.wake)
for thread in threads:
    thread.join()
rpc.shutdown(graceful=False)
""",
        as_users_do=True,
    )
    assert "ends" in said[0] and "Fatal" not in said[0]
    assert time.monotonic() - start_s < 110


def test_the_end_while_a_function_never_ends(run):
    said = run(
        """
join(0)
there.sleep(600)
sys.exit(3)
""",
        """
join(1)
futures = [rpc.rpc_async(0, there.forever) for _ in range(3)]
rpc.rpc_sync(0, there.wake)
for future in futures:
    assert isinstance(future.exception(), millrace.Error)
rpc.shutdown(graceful=False)
""",
        codes={0: 3},
    )
    assert "Fatal" not in said[0]


@pytest.mark.forks
def test_the_child_of_a_fork_is_no_worker(run):
    run(
        """
join(0)
mine, theirs = rpc.RRef(1), rpc.remote(1, there.add, (1, 2))
big = rpc.rpc_sync(1, there.same, (torch.arange(100000.0),))[0]
begun, ended = (rpc.rpc_async(1, there.add, (i, 2)) for i in (3, 4))
assert theirs.to_here() == 3 and ended.wait() == 6
for _ in range(3):
    child = os.fork()
    if child == 0:
        try:
            expect(millrace.InvalidArgument, "init_rpc", rpc.rpc_sync, 1, there.nothing)
            expect(millrace.Forked, "a child is no worker", begun.wait)
            assert big[7] == 7 and ended.wait() == 6
            del big, mine, begun
        except BaseException:
            os._exit(1)
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
assert theirs.to_here() == 3 and rpc.rpc_sync(1, there.value_of, (mine,)) == 1 and begun.wait() == 5
rpc.shutdown()
""",
        SERVE.format(rank=1),
    )


WORLDS = 30
_AGAIN = """
def threads_and_descriptors():
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

def is_over(world):
    return world < 0 or os.path.exists({over!r} + str(world))

began = None
for i in range({worlds}):
    rank, world_size, name = {plan}
    if rank < world_size:
        if {rank} == 2:  # it is not in that world
            wait_until(lambda: is_over(i - 1), "the world before is over")
        join(rank, world_size, name)
        assert rpc.rpc_sync((rank + 1) % world_size, there.add, (i, 1)) == i + 1
        rpc.shutdown()
    if {rank} == 0:
        open({over!r} + str(i), "w").close()
    if i == 4:
        began = threads_and_descriptors()
assert threads_and_descriptors() == began, (began, threads_and_descriptors())
"""


@pytest.mark.parametrize(
    "plan",
    ["({rank}, 2, None)", "(({rank} + i) % 2, 2, None)", "({rank}, 2 + i % 2, f'w{rank}_{{i % 3}}')"],
    ids=["the same", "other ranks", "other sizes and names"],
)
def test_worlds_one_after_the_other_at_one_port(run, plan, tmp_path):
    """A worker may come for the next one while the rendezvous of the last one watches over its end."""
    size, over = (3 if "i % 3" in plan else 2), str(tmp_path / "over")
    run(
        *(
            _AGAIN.format(worlds=WORLDS, plan=plan.format(rank=rank), rank=rank, over=over)
            for rank in range(size)
        )
    )


def test_a_refused_worker_ends_the_world_for_all(run):
    """Two have the same name: all learn it, long before init_timeout_s."""
    twice = """
expect(RuntimeError, 'the name "same" is taken by rank 0', join, {rank}, 3, "{name}")
expect(millrace.InvalidArgument, "there is no world", rpc.get_worker_info)
"""
    run(*(twice.format(rank=rank, name=name) for rank, name in enumerate(("same", "other", "same"))))


def test_names_that_no_worker_can_have(run):
    run(
        """
for name in ("", " ", "a b", "abc*", "a/b", "\\x1b[2J", "a" * 64, "\u00e4"):
    expect(ValueError, "letters, digits", rpc.init_rpc, name, rank=0, world_size=1)
    expect(ValueError, "letters, digits", rpc.WorkerInfo, name, 0)
join(0, 1, "a" * 53 + "-_.:Zz0123")
rpc.shutdown()
"""
    )


def test_a_failed_function_is_printed_where_it_ran(run):
    said = run(
        "join(0)\nexpect(ValueError, 'a reason', rpc.rpc_sync, 1, there.fail, (ValueError, 'a reason'))\n"
        "rpc.shutdown()",
        SERVE.format(rank=1),
    )
    assert 'On worker "w1" (rank 1): ValueError: a reason' in said[1] and "Traceback" in said[1]
