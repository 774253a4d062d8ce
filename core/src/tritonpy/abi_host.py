"""The server's side of tritonpy-abi, beyond `tritonpy.plugin`.

Libraries that it opens stay in the process until it ends, with log lines and metrics that begin outside of
Python. No other plugin needs this.
"""

from tritonpy.ipc.child import ChildProcess, describe_end
from tritonpy.logs import (
    AdmittedRecord,
    LogFollower,
    LogSettings,
    admitted_by_server,
    follow,
    has_room,
    verbose,
)
from tritonpy.own_thread import on_own_thread
from tritonpy.process_metrics import (
    MetricFamily,
    MetricKind,
    MetricReporter,
    MetricSample,
    add_metrics,
    metric_reporter,
)

__all__ = [
    "AdmittedRecord",
    "ChildProcess",
    "LogFollower",
    "LogSettings",
    "MetricFamily",
    "MetricKind",
    "MetricReporter",
    "MetricSample",
    "add_metrics",
    "admitted_by_server",
    "describe_end",
    "follow",
    "has_room",
    "metric_reporter",
    "on_own_thread",
    "verbose",
]
