"""What ends programs: Ctrl-C in the midst of calls, fork, exit with everything alive, garbage collection."""
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from waits import is_in_package, wait_until

import millrace
from millrace import init

LIMIT_S = 300
MULTI_THREADED_FORK = "ignore:This process:DeprecationWarning"  # Python 3.12 and later warn of it


def run(program, *arguments):
    """Runs a Python program that has `address`; returns what it wrote to stdout. It must end well and say
    nothing on stderr."""
    source = "import sys\nimport millrace\naddress = sys.argv[1]\n" + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-W", MULTI_THREADED_FORK, "-c", source, *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{done.returncode}: {done.stderr}"
    return done.stdout


EXITS = {
    "everything alive": """
        client = millrace.Client(address)
        table = client.table("exit", 16)
        rows = table.lookup(range(1000))
        futures = [table.lookup_async([i]) for i in range(100)]
        done = [table.lookup_async([i]) for i in range(10)]
        views = [future.result()[:, 3:5] for future in done]
        """,
    "a progress thread": """
        client = millrace.Client(address, progress_thread=True)
        futures = [client.table("exit", 16).lookup_async([i]) for i in range(100)]
        """,
    "cycles": """
        class Node: pass
        node = Node()
        node.self, node.client = node, millrace.Client(address)
        node.future = node.client.table("exit", 16).lookup_async([1])
        node.rows = node.client.table("exit").lookup([1])
        del node
        """,
    "a daemon thread in a call": """
        import threading
        client = millrace.Client(address)
        table = client.table("exit", 16)
        started = threading.Event()
        def call():
            while True:
                table.lookup([1])
                started.set()
        threading.Thread(target=call, daemon=True).start()
        started.wait()
        """,
    "a loop in the midst": """
        import asyncio
        client = millrace.Client(address)
        async def main():
            task = asyncio.ensure_future(take())
            await asyncio.sleep(0)
        async def take():
            return await client.table("exit", 16).lookup_async([1])
        asyncio.run(main())
        """,
    "an exception": """
        client = millrace.Client(address)
        future = client.table("exit", 16).lookup_async([1])
        try:
            raise KeyError(future)
        except KeyError as error:
            kept = error
        """,
}


@pytest.mark.parametrize("what", EXITS)
def test_exit_with(node, what):
    assert run(textwrap.dedent(EXITS[what]) + "print('end')\n", node.address) == "end\n"


def test_the_library_stays_when_it_is_closed():
    """As Python closes it at its end, when a client's thread may still be in it."""
    program = """
        import _ctypes
        handle = _ctypes.dlopen(sys.argv[1], 2)
        _ctypes.dlclose(handle)
        with open("/proc/self/maps", encoding="utf-8") as maps:
            print(sys.argv[1] in maps.read())
        """
    with open("/proc/self/maps", encoding="utf-8") as maps:
        path = next(line.split()[-1] for line in maps if "libmillrace.so" in line)
    source = "import sys\n" + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", source, path], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.forks
def test_fork(node):
    """The child's client says what is wrong; what it has of the parent stays readable; a client of its own
    works. The parent's goes on."""
    said = run(
        """
        import os
        parent = millrace.Client(address, progress_thread=True)
        table = parent.table("fork", 4, initializer=millrace.init.constant(1.5))
        rows, waiting, taken = table.lookup(range(500)), table.lookup_async([1]), table.lookup_async([2])
        taken.result()
        pid = os.fork()
        if pid == 0:
            for refused in (lambda: table.lookup([1]), waiting.result, lambda: table.lookup_async([1])):
                try:
                    refused()
                except millrace.ClientClosed as error:
                    assert "fork" in str(error), error
                else:
                    raise AssertionError("not refused")
            assert (rows == 1.5).all() and taken.result().shape == (1, 4)
            del rows, taken, waiting
            with millrace.Client(address) as own:
                assert (own.table("fork").lookup([7]) == 1.5).all()
            parent.close()
            print("child", flush=True)
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert (table.lookup([3]) == 1.5).all() and waiting.result().shape == (1, 4)
        print("parent")
        """,
        node.address,
    )
    assert said.split() == ["child", "parent"]


@pytest.mark.forks
def test_fork_by_torchs_loader(node):
    """A worker of torch's DataLoader is a fork: a data set that looks rows up makes a client of its own
    there."""
    pytest.importorskip("torch")
    said = run(
        """
        import torch
        parent = millrace.Client(address, progress_thread=True)
        table = parent.table("loaded", 4, initializer=millrace.init.constant(1.5))
        class Rows(torch.utils.data.Dataset):
            own = None
            def __len__(self):
                return 8
            def __getitem__(self, key):
                try:
                    table.lookup([key])
                except millrace.ClientClosed as error:
                    assert "fork" in str(error), error
                else:
                    raise AssertionError("not refused")
                if self.own is None:
                    self.own = millrace.Client(address)
                return torch.as_tensor(self.own.table("loaded").lookup([key])[0])
        loader = torch.utils.data.DataLoader(
            Rows(), batch_size=4, num_workers=1, multiprocessing_context="fork"
        )
        for rows in loader:
            assert rows.shape == (4, 4) and (rows == 1.5).all()
        assert (table.lookup([3]) == 1.5).all()
        print("end")
        """,
        node.address,
    )
    assert said == "end\n"


def interrupted(call):
    """Runs call() in this, the main thread, and sends it SIGINT once it is in flight. Returns how long
    KeyboardInterrupt took, in seconds."""
    sent = []

    def send():
        wait_until(lambda: is_in_package(threading.main_thread()), "the call is made")
        time.sleep(0.3)  # most often further on, in the library; the outcome is the same before
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            call()
        return time.monotonic() - sent[0]
    finally:
        thread.join()


def test_ctrl_c_in_a_long_call(new_node):
    node = new_node(settings=("transport.message_mib_max=1",))
    with millrace.Client(node.address, deadline_s=600.0) as client:
        table = client.table("t", 4)
        client.wait_for_save(client.save())
        node.kill()
        future = table.lookup_async([1])
        large = np.zeros(1 << 18, int)  # in several messages, of which a few are in flight
        for call in (
            lambda: table.lookup([1]),
            lambda: table.push_gradients([1], np.ones((1, 4))),
            lambda: table.lookup(large),
            future.result,
            client.features,
        ):
            assert interrupted(call) < LIMIT_S  # of a deadline of 600
        node.restart()
        assert future.result().shape == (1, 4) and table.lookup([1]).shape == (1, 4)


def test_ctrl_c_while_connecting(new_node):
    node = new_node()
    node.kill()
    assert interrupted(lambda: millrace.Client(node.address, connect_s=600.0)) < LIMIT_S


def test_a_signal_handler_may_call_and_close(new_node):
    """In the midst of a call of the same thread."""
    node = new_node()
    client = millrace.Client(node.address, deadline_s=600.0)
    table = client.table("t", 4)
    node.kill()

    def handler(*_):
        with pytest.raises(millrace.Error):
            table.lookup([2], deadline_s=0.05)
        client.close()

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(millrace.ClientClosed):
            table.lookup([1])
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_memory_goes_back(node):
    """Rows, futures and clients that are dropped leave nothing behind."""
    with millrace.Client(node.address, deadline_s=60.0) as client:
        table = client.table("leaks", 64, initializer=init.constant(1.0))
        keys = np.arange(2000, dtype=np.uint64)
        held = [table.lookup(keys)[5:6] for _ in range(10)]  # 512 KB each, kept by a view

        def resident():
            gc.collect()
            with open("/proc/self/statm", encoding="ascii") as statm:
                return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        def work(rounds):
            for _ in range(rounds):
                table.lookup(keys)
                table.lookup_async(keys).result()
                table.lookup_async(keys)
            table.lookup(keys)  # those that were dropped have ended

        work(20)
        before = resident()
        work(80)
        assert resident() - before < 40e6  # of 120 MB that went through
        assert all((rows == 1.0).all() for rows in held)


def test_clients_come_and_go(node):
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        client = millrace.Client(node.address)
        client.table("come_and_go", 4).lookup_async([1])
        del client
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= files + 2


def test_a_wrong_address_says_so():
    for address, kind, says in (
        ("nowhere.invalid:7700", ValueError, "nowhere.invalid"),
        ("127.0.0.1:99999", ValueError, "99999"),
        ("127.0.0.1:1", ConnectionError, "127.0.0.1:1"),
    ):
        with pytest.raises(kind, match=says):
            millrace.Client(address, connect_s=0.2)
    for refused, says in (
        ({"deadline_s": 0}, "deadline_s is 0"),
        ({"connect_s": float("nan")}, "connect_s is nan"),
        ({"client_id": "xyz"}, "32 hex"),
        ({"key_file": "/nowhere/key"}, "/nowhere/key"),
        ({"memory_bytes": 2**32}, "memory_bytes is 4294967296"),
        ({"busy_poll_s": -1.0}, "busy_poll_s"),
    ):
        with pytest.raises(ValueError, match=says):
            millrace.Client("127.0.0.1", **{"connect_s": 0.2, **refused})


def test_a_python_without_the_global_lock_is_refused_in_a_line():
    """As a free-threaded one says it is."""
    source = "import sys\nsys._is_gil_enabled = lambda: {}\nimport millrace\nprint(millrace.__name__)"
    done = [
        subprocess.run(
            [sys.executable, "-c", source.format(is_on)], capture_output=True, text=True, check=False
        )
        for is_on in (False, True)
    ]
    assert done[0].returncode == 1
    assert done[0].stderr.splitlines()[-1] == (
        "ImportError: millrace needs Python's global lock: start a free-threaded Python with PYTHON_GIL=1"
    )
    assert (done[1].stdout, done[1].stderr) == ("millrace\n", "")
