"""Runs models written in Python, as Triton's Python backend does: a `model.py` with a `TritonPythonModel`.

Every instance is a process of its own, so that a model's computing never holds up the server. Its program is
the package `worker` in here, started by path: nothing in it imports `tritonpy`, so it may run on an
interpreter that has only numpy. On request, and under a debugger, the same program runs on a thread of the
server instead.
"""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path
from typing import Any

from tritonpy.plugin import Backend, BackendAttributes, Model, WorkerCommand, hookimpl

from tritonpy_backend_python.environment import chosen_environment, prepare_environment
from tritonpy_backend_python.settings import Settings, read_settings

WORKER = Path(__file__).parent / "worker" / "__main__.py"
"""The program of a worker; runs on any Python from 3.9 on."""

_log = logging.getLogger("tritonpy.backend.python")
_settings_lock = threading.Lock()


@hookimpl
def backend_attributes(backend: Backend) -> BackendAttributes:
    """See `tritonpy.hookspecs`."""
    # A backend that is a model.py itself has models with files of their own kind.
    is_file = backend.directory is not None
    return BackendAttributes(
        execution="process",
        parallel_instance_loading=True,
        default_filename="" if is_file else "model.py",
    )


@hookimpl
def worker_command(model: Model) -> WorkerCommand:
    """See `tritonpy.hookspecs`."""
    choice = chosen_environment(model, _settings_of(model.backend).runtime)
    if choice is None:
        return WorkerCommand([sys.executable, str(WORKER)])
    interpreter = prepare_environment(choice)
    return WorkerCommand([str(interpreter.path), str(WORKER)], interpreter.environment)


@hookimpl
def worker_serve(model: Model, channel: Any) -> None:  # Any: as `worker.channel` describes it
    """See `tritonpy.hookspecs`."""
    choice = chosen_environment(model, _settings_of(model.backend).runtime)
    if choice is not None:
        _log.warning(
            "model '%s' runs on a thread of the server, and so on the server's interpreter, although %s",
            model.name,
            choice.origin,
        )
    from tritonpy_backend_python.worker.session import serve_channel  # late: most servers never need it here

    serve_channel(channel, owns_process=False)


def _settings_of(backend: Backend) -> Settings:
    with _settings_lock:  # models are loaded side by side
        if backend.state is None:
            backend.state = read_settings(backend)
        settings: Settings = backend.state
        return settings
