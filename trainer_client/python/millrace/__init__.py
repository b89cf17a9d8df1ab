"""Millrace: a parameter server for training models with large embedding tables."""
import importlib as _importlib
import sys as _sys
from typing import TYPE_CHECKING as _TYPE_CHECKING

if not getattr(_sys, "_is_gil_enabled", lambda: True)():  # what follows counts on it in many places
    raise ImportError("millrace needs Python's global lock: start a free-threaded Python with PYTHON_GIL=1")

from . import admission, eviction, init, optim
from ._base.options import CallOptions
from ._version import __version__
from .batch import BatchState, Stream
from .capture import Capture, CaptureState, Packet
from .checkpoint import CheckpointInfo, Restored, SaveInfo
from .client import Client
from .dev_server import DevServer, DevServerError, dev
from .errors import *  # noqa: F401,F403
from .errors import __all__ as _errors
from .feature import WHOLE, FeatureInfo, TableSpec, VariableSpec
from .feeder import Feed, FeedError, feed
from .future import Future
from .hub import Batch, Hub, HubStatus, SampleInfo
from .moves import Moves, Moving
from .node import (
    ClockOffset,
    Cluster,
    ClusterNode,
    CoreMemory,
    CoreState,
    Latency,
    Annotation,
    RecentCall,
    RecentCalls,
    ReplayInfo,
    TableMemory,
    World,
    WorldMember,
)
from .parquet import read_parquet
from .pushed import Pushed
from .slot_keys import slot_keys
from .stored import Rows, RowsNotSet
from .table import Table
from .top import Top
from .trace import Trace
from .variable import Variable

__all__ = [
    *_errors,
    "__version__",
    "Batch",
    "BatchState",
    "CallOptions",
    "Capture",
    "CaptureState",
    "CheckpointInfo",
    "Client",
    "ClockOffset",
    "Cluster",
    "ClusterNode",
    "CoreMemory",
    "CoreState",
    "DevServer",
    "DevServerError",
    "FeatureInfo",
    "Feed",
    "FeedError",
    "Future",
    "Hub",
    "HubStatus",
    "Latency",
    "Annotation",
    "Moves",
    "Moving",
    "Packet",
    "Pushed",
    "RecentCall",
    "RecentCalls",
    "ReplayInfo",
    "Restored",
    "Rows",
    "RowsNotSet",
    "SampleInfo",
    "SaveInfo",
    "Stream",
    "Table",
    "TableMemory",
    "TableSpec",
    "Top",
    "Trace",
    "Variable",
    "VariableSpec",
    "WHOLE",
    "World",
    "WorldMember",
    "admission",
    "dev",
    "eviction",
    "feed",
    "init",
    "optim",
    "read_parquet",
    "slot_keys",
]

if _TYPE_CHECKING:  # what __getattr__() imports
    from . import data, nn, torchrec
    from ._nn.prefetch import prefetch
    from .data import DataLoader
    from .nn import Embedding, EmbeddingBag

    __all__ += ["DataLoader", "Embedding", "EmbeddingBag", "data", "nn", "prefetch", "torchrec"]

_LAZY = {"EmbeddingBag": "nn", "Embedding": "nn", "DataLoader": "data", "prefetch": "_nn.prefetch"}


def __getattr__(name: str) -> object:
    """What needs torch is imported when it is first used."""
    if name in ("nn", "data", "torchrec"):
        return _importlib.import_module(f".{name}", __name__)
    if name in _LAZY:
        return getattr(_importlib.import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
