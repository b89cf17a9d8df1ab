"""Millrace: a parameter server for training models with large embedding tables."""
from . import admission, eviction, init, optim
from ._options import CallOptions
from .client import Client
from .errors import *  # noqa: F401,F403
from .errors import __all__ as _errors
from .feature import FeatureInfo, TableSpec, VariableSpec
from .future import Future
from .table import Table
from .variable import Variable

__all__ = [*_errors, "CallOptions", "Client", "FeatureInfo", "Future", "Table", "TableSpec", "Variable", "VariableSpec", "admission",
           "eviction", "init", "optim"]
