"""Where workers meet, by a file that all of them see: init_method="file:///path"."""
from __future__ import annotations

import os
import socket
import time

from ..errors import InvalidArgument

_LOOK_S = 0.02


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


def write(path: str, host: str) -> str:
    """Of rank 0: chooses a port, and writes "host:port" to the file. Returns that."""
    address = f"[{host}]" if ":" in host else host
    place = f"{address}:{_free_port(host)}"
    unfinished = f"{path}.{os.getpid()}"
    try:
        with open(unfinished, "w", encoding="ascii") as file:
            file.write(place + "\n")
        os.replace(unfinished, path)
    except OSError as error:
        raise InvalidArgument(f'init_method="file://{path}": cannot write it: {error.strerror}') from None
    return place


def read(path: str, timeout_s: float) -> str:
    """Of the others: waits for the file, and returns what it says."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                return file.read().strip()
        except FileNotFoundError:
            if time.monotonic() >= until:
                raise TimeoutError(
                    f'init_method="file://{path}": rank 0 has not written the file in {timeout_s:g} s: start '
                    "it, or raise init_timeout_s; all workers must see the same file"
                ) from None
            time.sleep(_LOOK_S)
        except OSError as error:
            raise InvalidArgument(f'init_method="file://{path}": cannot read it: {error.strerror}') from None


def remove(path: str) -> None:
    """Of rank 0, when the world is over: the next one begins without it."""
    try:
        os.unlink(path)
    except OSError:
        pass
