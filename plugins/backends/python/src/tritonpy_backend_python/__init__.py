"""Runs models written in Python, as Triton's Python backend does: a `model.py` with a `TritonPythonModel`.

Every instance is a process of its own, so that a model's computing never holds up the server. Its program is
the package `worker` in here, started by path: nothing in it imports `tritonpy`, so it may run on an
interpreter that has only numpy.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tritonpy.plugin import Backend, BackendAttributes, Model, hookimpl

_WORKER = Path(__file__).parent / "worker" / "__main__.py"


@hookimpl
def backend_attributes(backend: Backend) -> BackendAttributes:
    """See `tritonpy.hookspecs`."""
    return BackendAttributes(execution="process", default_filename="model.py")


@hookimpl
def worker_command(model: Model) -> Sequence[str]:
    """See `tritonpy.hookspecs`."""
    return [sys.executable, str(_WORKER)]
