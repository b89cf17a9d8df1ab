"""Millrace: a parameter server for training models with large embedding tables."""
from .errors import *  # noqa: F401,F403
from .errors import __all__ as _errors

__all__ = [*_errors]
