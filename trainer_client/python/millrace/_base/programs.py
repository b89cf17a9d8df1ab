"""The programs of Millrace that the package runs."""
from __future__ import annotations

import os
import shutil


def find_program(name: str, variable: str) -> str | None:
    """Its path: what the environment's `variable` names, the one in the package, or the one in $PATH; None:
    there is none."""
    packaged = os.path.join(os.path.dirname(__file__), "..", "_bin", name)
    return os.environ.get(variable) or (packaged if os.access(packaged, os.X_OK) else shutil.which(name))
