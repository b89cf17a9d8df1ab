"""Options of a worker, with torch's names where torch has them."""
from __future__ import annotations

import enum
import os
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlparse

from ..errors import InvalidArgument
from . import _file_rendezvous

DEFAULT_TIMEOUT_S = 60.0
NO_TIMEOUT_MS = 0xFFFFFFFF
_MESSAGE_BYTES = 1 << 30  # the library's default


class BackendType(enum.Enum):
    """The only backend; scripts that name one of torch's get it, too."""

    MILLRACE = "millrace"
    TENSORPIPE = "millrace"


@dataclass
class RpcBackendOptions:
    """Options of a worker besides its name and rank.

    rpc_timeout: default time-out of calls in seconds; 0: none.
    init_method: "env://" ($MASTER_ADDR, $MASTER_PORT) or "tcp://host:port": where rank 0 listens, or a node
    (rendezvous_is_node). Of a cluster, any of its nodes: "tcp://a:7700,b:7700". "file:///path": rank 0 writes
    to path.millrace where it listens, at the host of `listen` or else on loopback; what a world before left
    there is known as old.
    num_worker_threads: threads for functions that others call here.
    key_file: as in Client; also $MILLRACE_KEY_FILE.
    allow_python_functions: workers that have the key may run Python here, and send pickles; also
    $MILLRACE_PYTHON_FUNCTIONS=on.
    message_bytes: limit of the arguments or results of a call; 0: 1 GiB.
    long_memory_bytes: memory for messages of more than 7 MiB, which are sent in parts, while they arrive and
    their functions run, and as much again for tensors of calls with more than 90; 0: twice message_bytes.
    listen: the worker's own address ("10.0.0.3:0"), or one of each family ("10.0.0.3:0,[fd00::3]:0").
    world_size_max: of a world without a world_size, how many workers may ever join; the same for all.
    init_timeout_s: time for all to join, in seconds. dead_after_s: a worker that is silent for this long is
    dead.
    busy_poll_s: a waiting thread spins so long before it sleeps, in seconds; None: 50 us.
    memory_bytes: for messages; 0: 256 MiB.

    ValueError: device_maps or devices, for tensors travel between main memories.
    """

    num_worker_threads: int = 16
    rpc_timeout: float = DEFAULT_TIMEOUT_S
    init_method: str = "env://"
    device_maps: Any = None
    devices: Any = None
    key_file: str | None = None
    allow_python_functions: bool | None = None
    listen: str | None = None
    rendezvous_is_node: bool = False
    world_size_max: int = 128
    init_timeout_s: float = 60.0
    dead_after_s: float = 10.0
    busy_poll_s: float | None = None
    memory_bytes: int = 0
    message_bytes: int = 0
    long_memory_bytes: int = 0
    _transports: Any = None  # torch's, of its own agent
    _channels: Any = None

    def __post_init__(self) -> None:
        if self.device_maps or self.devices:
            raise InvalidArgument(
                "device_maps and devices: tensors travel between main memories; .cpu() before, .to(device) "
                "after"
            )

    @property
    def python_functions(self) -> bool:
        """Whether Python functions are on."""
        if self.allow_python_functions is not None:
            return self.allow_python_functions
        return os.environ.get("MILLRACE_PYTHON_FUNCTIONS", "").lower() in ("on", "1", "true", "yes")

    @property
    def parts_bytes_max(self) -> int:
        """How much may be kept of calls of more than 90 tensors until it is asked for, in bytes."""
        return self.long_memory_bytes or 2 * (self.message_bytes or _MESSAGE_BYTES)

    @property
    def key(self) -> str | None:
        """The key's file; None: no key."""
        return self.key_file or os.environ.get("MILLRACE_KEY_FILE") or None


TensorPipeRpcBackendOptions = RpcBackendOptions


def milliseconds(timeout: float) -> int:
    """Converts a call's `timeout`, in seconds as in torch: -1: the default; 0: none."""
    if timeout == -1.0:
        return 0
    if timeout < 0:
        raise InvalidArgument(f"timeout={timeout}: seconds, 0 for none, or -1 for the worker's default")
    return NO_TIMEOUT_MS if timeout == 0 else min(max(round(timeout * 1000), 1), NO_TIMEOUT_MS - 1)


def _environment(name: str, what: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise InvalidArgument(f"init_rpc: {what} is not given, and ${name} is not set") from None


def _places(hosts: str) -> str | None:
    """Returns "host:port,..." as the library takes it; None: it is not such a list."""
    try:
        urls = [urlparse(f"tcp://{host}") for host in hosts.split(",")]
        places = [_address(url.hostname, url.port) for url in urls if url.hostname and url.port]
    except ValueError:  # a port, or a bracket
        return None
    return ",".join(places) if len(places) == len(urls) else None


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass
class Place:
    """Where a world's workers meet ("host:port", or several, separated by commas), this worker's rank, and
    the number of workers; None: they join and leave one by one. file: that rank 0 has written."""

    rendezvous: str
    rank: int
    world_size: int | None
    file: str | None = None


def _by_file(options: RpcBackendOptions, path: str, rank: int) -> tuple[str, str | None]:
    if rank != 0:
        return _file_rendezvous.read(path, options.init_timeout_s), None
    listen = urlparse("udp://" + (options.listen or "127.0.0.1:0").split(",")[0])
    return _file_rendezvous.write(path, listen.hostname or "127.0.0.1"), path


def find_place(options: RpcBackendOptions, rank: int, world_size: int | None) -> Place:
    """Of this worker. With a file it waits until rank 0 has written it."""
    scheme, _, rest = options.init_method.partition("://")
    hosts, _, further = rest.partition("?")
    query = {name: values[-1] for name, values in parse_qs(further).items()}
    rendezvous = _places(hosts.rstrip("/")) if scheme == "tcp" else None
    if rank < 0:
        rank = int(query["rank"] if "rank" in query else _environment("RANK", "rank"))
    file = None
    if scheme == "file" and hosts.startswith("/"):
        written, file = _by_file(options, hosts, rank)
        rendezvous = _places(written)
    if scheme == "env":
        host = _environment("MASTER_ADDR", "the master's address")
        rendezvous = _address(host, int(_environment("MASTER_PORT", "the master's port")))
    if rendezvous is None:
        raise InvalidArgument(
            f'init_method="{options.init_method}": use "tcp://host:port", "file:///path", or "env://" with '
            "$MASTER_ADDR and $MASTER_PORT"
        )
    if world_size is None or world_size < 0:
        told = query.get("world_size", os.environ.get("WORLD_SIZE"))
        world_size = None if told is None else int(told)
    return Place(rendezvous, rank, world_size, file)
