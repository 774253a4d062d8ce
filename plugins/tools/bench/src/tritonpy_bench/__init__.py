"""Loads for models, and what comes of them: `corectl bench`, and `measure` for programs."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tritonpy_bench.errors import BenchError
    from tritonpy_bench.histogram import Histogram
    from tritonpy_bench.load import Inputs, Load, Stability
    from tritonpy_bench.measurement import Measurement, ServerSide, Window
    from tritonpy_bench.paces import (
        Concurrency,
        PeriodicConcurrency,
        Rate,
        Schedule,
        read_intervals,
        read_replay,
    )
    from tritonpy_bench.report_json import measurement_json
    from tritonpy_bench.run import measure
    from tritonpy_bench.tls import TlsFiles

__all__ = [
    "BenchError",
    "Concurrency",
    "Histogram",
    "Inputs",
    "Load",
    "Measurement",
    "PeriodicConcurrency",
    "Rate",
    "Schedule",
    "ServerSide",
    "Stability",
    "TlsFiles",
    "Window",
    "measure",
    "measurement_json",
    "read_intervals",
    "read_replay",
]

# Imported when they are asked for: `corectl --help` imports this package, and numpy takes a moment.
_NAMES = {
    "errors": ("BenchError",),
    "histogram": ("Histogram",),
    "load": ("Inputs", "Load", "Stability"),
    "measurement": ("Measurement", "ServerSide", "Window"),
    "paces": ("Concurrency", "PeriodicConcurrency", "Rate", "Schedule", "read_intervals", "read_replay"),
    "report_json": ("measurement_json",),
    "run": ("measure",),
    "tls": ("TlsFiles",),
}


def __getattr__(name: str) -> object:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
