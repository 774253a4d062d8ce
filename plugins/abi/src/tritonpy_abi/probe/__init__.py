"""Tries shared objects in a child process, before the server loads them: a crash ends the child.

Nothing in a process can stop a library that crashes, exits or does not return. Most that do so do it in their
first calls, on a machine, with a configuration or beside files that their author did not think of. So these
calls are made once where they can do no harm. It costs a load some 20 ms, and the time that the library takes
(ADR 0019).

The environment variable `TRITONPY_ABI_PROBE_S` says how many seconds a library may take there (30); with 0
it is loaded untried.
"""

from __future__ import annotations

import json
import logging
import os
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

from tritonpy.plugin import Backend, InvalidArg, Model, Unavailable

from tritonpy_abi.build import library
from tritonpy_abi.json_text import json_text
from tritonpy_abi.libraries import aliases
from tritonpy_abi.model_facts import facts
from tritonpy_abi.probe.process import run_child
from tritonpy_abi.probe.verdict import TIME_VARIABLE, UNTRIED, judge, printed_lines
from tritonpy_abi.shim import open_shim

_log = logging.getLogger("tritonpy.abi")

_DEFAULT_S = 30.0


def try_strategy(path: str | Path, model: Model) -> None:
    """Open a batching strategy in a child, begin it for a model, make a batch without requests, and end it.

    Where it cannot be opened, or has not all functions, nothing is said: the server will find that out. Nor
    is anything said of errors that it returns from other functions than the first, since they may have a
    reason that is gone later. Blocking.

    Args:
        path: the shared object.
        model: as it is configured for the server.

    Raises:
        TritonError: the strategy's own, as its `ModelBatcherInitialize` gave it; or how it ended the child,
            or where it did not return.
    """
    _try("TRITONPY_TryStrategy", f"batching strategy '{path}'", path, *facts(model).values())


def try_cache(path: str | Path, settings: Mapping[str, str]) -> None:
    """Open a response cache in a child, begin it, look up a key that is not there, and end it. Blocking.

    Args:
        path: the shared object.
        settings: what `--cache-config` says.

    Raises:
        TritonError: as for `try_strategy`.
    """
    _try("TRITONPY_TryCache", f"response cache '{path}'", path, json_text(settings))


def ask_backend(path: str | Path, backend: Backend, config: str) -> list[str]:
    """Initialise a backend in a child, ask it for its attributes, and end it. Blocking.

    Args:
        path: the shared object.
        backend: as it is configured for the server.
        config: what `TRITONBACKEND_BackendConfig` gives.

    Returns:
        What it reported; see `TRITONPY_AskBackend`. A library that cannot be opened has not been asked.

    Raises:
        TritonError: as for `try_strategy`.
    """
    open_shim()
    what = f"backend '{path}'"
    location = str(Path(path).parent)
    # There is no other way to learn of them: it is asked also where libraries are loaded untried.
    return _run("TRITONPY_AskBackend", what, path, _time_s() or _DEFAULT_S, backend.name, location, config)


def _try(function: str, what: str, path: str | Path, *arguments: str | int) -> None:
    open_shim()  # says what is wrong with the installation, or with this process
    time_s = _time_s()
    if time_s != 0:
        _run(function, what, path, time_s, *arguments)


def _run(function: str, what: str, path: str | Path, time_s: float, *arguments: str | int) -> list[str]:
    request = {
        "function": function,
        "arguments": [str(path), *arguments],
        "aliases": [b64encode(alias).decode() for alias in aliases(path)],
    }
    try:
        ending = run_child([str(library().absolute())], json.dumps(request).encode(), time_s)
    except OSError as exc:
        raise Unavailable(
            f"{what} cannot be tried, because no process can be started for it: {exc}; {UNTRIED}"
        ) from exc
    try:
        return judge(what, ending, time_s)
    except Exception:
        for line in printed_lines(ending):
            _log.info("%s, while it was tried: %s", what, line)
        raise


def _time_s() -> float:
    text = os.environ.get(TIME_VARIABLE, "")
    try:
        time_s = float(text or _DEFAULT_S)
    except ValueError:
        time_s = -1
    if not 0 <= time_s < float("inf"):
        raise InvalidArg(
            f"the environment variable {TIME_VARIABLE} is {text!r}; it is the number of seconds that a "
            f"library may take in the process it is tried in, or 0 to try none"
        )
    return time_s
