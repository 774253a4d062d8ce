"""Prometheus metrics: Triton's families for models, and `tritonpy_*` for the server itself.

At a scrape the loop copies the counters (`ModelMetrics.take`), and a thread renders the copies (`render`).
"""

from tritonpy.metrics.custom import CustomMetrics
from tritonpy.metrics.exposition import render
from tritonpy.metrics.loop_watch import LoopWatch
from tritonpy.metrics.models import ModelMetrics, ModelSnapshot
from tritonpy.metrics.server import ServerMetrics
from tritonpy.metrics.workers import WorkerMemory, WorkerSnapshot

__all__ = [
    "CustomMetrics",
    "LoopWatch",
    "ModelMetrics",
    "ModelSnapshot",
    "ServerMetrics",
    "WorkerMemory",
    "WorkerSnapshot",
    "render",
]
