"""Remote calls between workers, with the names and meaning of torch.distributed.rpc. Needs torch.

Functions that C programs and nodes register are called by name. Python workers can also call each other's
Python functions, if that is turned on.
"""
import importlib

try:
    importlib.import_module("torch")
except ImportError as _error:
    raise ImportError(f"millrace.rpc needs torch ({_error}): apt-get install python3-torch") from None

from . import api, functions
from ._calls import remote, rpc_async, rpc_sync
from ._errors import RemoteError
from ._future import Future, wait_all
from ._options import BackendType, RpcBackendOptions, TensorPipeRpcBackendOptions
from ._remote_module import RemoteModule
from ._rref import RRef
from ._world import WorkerInfo, get_rpc_timeout, get_worker_info, init_rpc, is_available, shutdown
from .api import AllGatherStates

# What programs call here, too.
_get_current_rpc_agent = api._get_current_rpc_agent
_is_current_rpc_agent_set = api._is_current_rpc_agent_set
_set_rpc_timeout = api._set_rpc_timeout
_wait_all = api._wait_all

__all__ = [
    "AllGatherStates",
    "BackendType",
    "Future",
    "RRef",
    "RemoteError",
    "RemoteModule",
    "RpcBackendOptions",
    "TensorPipeRpcBackendOptions",
    "WorkerInfo",
    "api",
    "functions",
    "get_rpc_timeout",
    "get_worker_info",
    "init_rpc",
    "is_available",
    "remote",
    "rpc_async",
    "rpc_sync",
    "shutdown",
    "wait_all",
]
