"""Where workers meet, by a file that all of them see: init_method="file:///path". What rank 0 writes is in
/path.millrace: torch's process groups may have /path as their store, and programs may have made it."""
from __future__ import annotations

import os
import socket
import tempfile
import time

from ..errors import InvalidArgument

_LOOK_S = 0.02
_ANSWER_S = 0.01  # a host that is not this one may answer later: then the place counts as good


def _socket(host: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)


def _free_port(host: str) -> int:
    with _socket(host) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


def _file_of(path: str) -> str:
    return path + ".millrace"


def write(path: str, host: str) -> str:
    """Of rank 0: chooses a port, and writes "host:port" to the file. Returns that."""
    address = f"[{host}]" if ":" in host else host
    place = f"{address}:{_free_port(host)}"
    try:
        # A name that nobody can guess: the folder may be /tmp, where another user may have made a link.
        fd, unfinished = tempfile.mkstemp(
            prefix=f"{os.path.basename(path)}.millrace.", dir=os.path.dirname(path)
        )
        with open(fd, "w", encoding="ascii") as file:
            os.fchmod(fd, 0o644)
            file.write(place + "\n")
        os.replace(unfinished, _file_of(path))
    except OSError as error:
        raise InvalidArgument(f'init_method="file://{path}": cannot write it: {error.strerror}') from None
    return place


def _content(path: str) -> str:
    """Empty: there is none yet."""
    try:
        with open(_file_of(path), encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise InvalidArgument(f'init_method="file://{path}": cannot read it: {error.strerror}') from None


def _is_of_the_past(place: str) -> bool:
    """Whether nobody listens there: as after a world that did not end by shutdown(), or just before rank 0
    begins to listen. What is no place is left to others to complain about."""
    host, _, port = place.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit():
        return False
    try:
        with _socket(host) as probe:
            probe.settimeout(_ANSWER_S)
            probe.connect((host, int(port)))
            probe.send(b"\0")  # no packet of this protocol: only the host itself answers
            probe.recv(1)
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def read(path: str, timeout_s: float) -> str:
    """Of the others: waits until the file says where somebody listens, and returns that."""
    until = time.monotonic() + timeout_s
    while True:
        place = _content(path)
        if place and not _is_of_the_past(place):
            return place
        if time.monotonic() >= until:
            what = f"nobody listens at {place}, which stands there" if place else "it says nothing"
            raise TimeoutError(
                f'init_method="file://{path}": rank 0 has not written the file in {timeout_s:g} s, {what}: '
                "start it, or raise init_timeout_s; all workers must see the same file"
            )
        time.sleep(_LOOK_S)


def remove(path: str) -> None:
    """Of rank 0, when the world is over: the next one begins without it."""
    try:
        os.unlink(_file_of(path))
    except OSError:
        pass
