"""Connection of the C library with the server in this process."""

from __future__ import annotations

import functools
import threading

from tritonpy.abi_child import Internal
from tritonpy.abi_host import add_metrics

from tritonpy_abi.caches.usage import without_usage
from tritonpy_abi.logs import PluginLog
from tritonpy_abi.metrics import read_metrics
from tritonpy_abi.shim import open_shim

_connecting = threading.Lock()


def connect() -> PluginLog:
    """From here on log lines of shared objects are in the server's log, and their metrics on its page.

    Returns: what hands on the lines.

    Raises:
        TritonError: there are no descriptors left; or see `open_shim`.
    """
    with _connecting:
        log = _connect()
        log.refresh()
        return log


@functools.cache
def _connect() -> PluginLog:
    shim = open_shim()
    try:
        log = PluginLog(shim)
    except OSError as exc:
        raise Internal(f"cannot take log lines of shared objects: {exc}") from exc
    add_metrics(lambda: without_usage(read_metrics(shim)))
    return log
