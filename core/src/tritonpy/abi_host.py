"""The server's side of tritonpy-abi, beyond `tritonpy.plugin`.

Libraries that it opens stay in the process until it ends, with log lines and metrics that begin outside of
Python. No other plugin needs this.
"""

from tritonpy.ipc.child import ChildProcess, describe_end
from tritonpy.logs import AdmittedRecord, LogFollower, LogSettings, follow, has_room, verbose
from tritonpy.own_thread import on_own_thread
from tritonpy.process_metrics import MetricFamily, MetricKind, MetricSample, add_metrics

__all__ = [
    "AdmittedRecord",
    "ChildProcess",
    "LogFollower",
    "LogSettings",
    "MetricFamily",
    "MetricKind",
    "MetricSample",
    "add_metrics",
    "describe_end",
    "follow",
    "has_room",
    "on_own_thread",
    "verbose",
]
