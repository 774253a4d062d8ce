"""The settings of `--backend-config=python,…` that concern this backend and not all workers."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tritonpy.plugin import Backend, InvalidArg

RUNTIME = "python-runtime"
THREAD_POOL_SIZE = "thread-pool-size"
TRACEBACK = "traceback-to-client"

_log = logging.getLogger("tritonpy.backend.python")

_OF_ALL_WORKERS = (
    "stub-timeout-seconds",
    "initialize-timeout-seconds",
    "unanswered-warning-seconds",
    "shm-default-byte-size",
    "shm-growth-byte-size",
    "shm-max-byte-size",
)
_OF_ALL_BACKENDS = (
    "auto-complete-config",
    "backend-directory",
    "default-max-batch-size",
    "min-compute-capability",
)
_WITHOUT_EFFECT = (THREAD_POOL_SIZE, "shm-region-prefix-name")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the backend itself.

    Attributes:
        runtime: the interpreter or environment of models that name none; "" for the server's own.
    """

    runtime: str = ""


def read_settings(backend: Backend) -> Settings:
    """Check and read the settings; unknown settings are named in the log.

    Raises:
        InvalidArg: a value cannot be; in Triton's words where it has some.
    """
    given = backend.settings
    size = given.get(THREAD_POOL_SIZE)
    if size is not None:
        _check_pool_size(size)
    if given.get(TRACEBACK, "").lower() not in ("", "true", "false", "1", "0"):
        raise InvalidArg(
            f"--backend-config={backend.name},{TRACEBACK}={given[TRACEBACK]}: expected true or false"
        )
    if backend.directory is None:  # settings of a backend that runs on this one may be its own
        for key in sorted(
            set(given).difference((RUNTIME, TRACEBACK, *_WITHOUT_EFFECT, *_OF_ALL_WORKERS, *_OF_ALL_BACKENDS))
        ):
            known = ", ".join((*_OF_ALL_WORKERS, RUNTIME, TRACEBACK))
            _log.warning(
                "--backend-config=%s,%s: there is no such setting and it has no effect; known are %s",
                backend.name,
                key,
                known,
            )
    return Settings(given.get(RUNTIME, ""))


def _check_pool_size(text: str) -> None:
    try:
        size = int(text)
    except ValueError:
        raise InvalidArg(
            f"--backend-config=python,{THREAD_POOL_SIZE}={text}: expected a whole number"
        ) from None
    if size < 1:
        raise InvalidArg(f"{THREAD_POOL_SIZE} can't be less than 1.")
