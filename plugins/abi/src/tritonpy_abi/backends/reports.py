"""Metrics of a backend in a worker, handed to the server when they have changed."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Sequence

from tritonpy.abi_host import MetricReporter

from tritonpy_abi.metrics import read_metrics
from tritonpy_abi.shim import CData, Shim, open_shim

_DELAY_S = 0.05
"""What changes in that time travels together."""


class MetricReports:
    """Reports all metrics of this process: after an execution at once, and otherwise by and by.

    Args:
        shim: has the metrics.
        report: takes them.
    """

    def __init__(self, shim: Shim, report: MetricReporter) -> None:
        self._shim = shim
        self._report = report
        self._sending = threading.Lock()  # held while they travel, or older values could arrive last
        # Written under `_sending`: what was taken may not have been sent.
        self._is_sending: CData = shim.ffi.new("bool *")
        self._has_changed: CData = shim.lib.TRITONPY_MetricsFlag()
        threading.Thread(target=self._send_by_and_by, name="metrics", daemon=True).start()

    def flush(self) -> None:
        """Report what has changed; it is on its way when this returns, sent by this or another thread."""
        # In this order, and without a lock: a thread that takes the change away has first set `_is_sending`.
        if not self._has_changed[0] and not self._is_sending[0]:
            return
        with self._sending:
            self._is_sending[0] = True
            try:
                if self._shim.lib.TRITONPY_MetricsChanged():
                    self._report(list(read_metrics(self._shim)))
            finally:
                self._is_sending[0] = False

    @property
    def flags(self) -> Sequence[CData]:
        """A `bool *` each, one of them true while `flush` has something to do; to be read in this order."""
        return self._has_changed, self._is_sending

    def _send_by_and_by(self) -> None:
        while True:
            self._shim.lib.TRITONPY_MetricsWait()
            time.sleep(_DELAY_S)
            self.flush()


@functools.cache
def reports_to(report: MetricReporter) -> MetricReports:
    """The reports of this process; begun when they are first asked for."""
    return MetricReports(open_shim(), report)
