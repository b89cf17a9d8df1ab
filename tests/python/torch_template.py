"""A process that has imported torch, and nothing of ours, and forks a child for each request: importing torch
takes seconds of processor time, and a fork a few milliseconds. torch_programs.py starts it.

Its standard input is a socket. A request is JSON, with the descriptors of the child's standard input,
output and error. The child runs the program as the interpreter would: as __main__, until the interpreter
itself ends. Its parent is whoever asked, who reaps orphans.
"""
import contextlib
import gc
import importlib
import json
import os
import socket
import sys
import types

REQUEST_BYTES = 1 << 17
# torch 2 imports torch._dynamo at an optimizer's first step.
IMPORTED = ("numpy", "torch", "torch._dynamo", "torch.distributed.nn", "torch.distributed.optim")


def wait_for_request(control):
    """Forks a child for each request; returns in the child, with its request. Ends with whoever asks."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, REQUEST_BYTES, 3)
        if not message:
            os._exit(0)
        adopted, adopt = os.pipe()
        between = os.fork()
        if between == 0:
            child = os.fork()
            if child:
                control.send(b"%d" % child)
                os._exit(0)
            control.close()
            os.close(adopt)
            os.read(adopted, 1)
            os.close(adopted)
            return json.loads(message), descriptors
        os.waitpid(between, 0)  # the child has its new parent
        control.send(b"adopted")
        for descriptor in (adopted, adopt, *descriptors):
            os.close(descriptor)


def become(request, descriptors):
    """Turns this process into one that was started with the request's environment and command line; returns
    the program and its __main__."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv, source = request["arguments"], request["source"]
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    sys.path[0] = ""
    if source is not None:  # of -c
        return compile(source, "<string>", "exec"), main.__dict__
    main.__file__ = sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(main.__file__))
    with open(main.__file__, encoding="utf-8") as file:
        return compile(file.read(), main.__file__, "exec"), main.__dict__


if __name__ == "__main__":
    for name in IMPORTED:
        with contextlib.suppress(ImportError):  # torch 1 has not all of them
            importlib.import_module(name)
    assert "torch" in sys.modules
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, f"a fork would lose {len(threads) - 1} threads"
    gc.freeze()  # a child's collections do not touch, and so copy, what torch made
    with socket.socket(fileno=os.dup(0)) as asking:
        request_of_child = wait_for_request(asking)
    exec(*become(*request_of_child))
