"""Loads for models, and what comes of them: `corectl bench`, and `measure` for programs."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tritonpy_bench.histogram import Histogram
    from tritonpy_bench.load import BenchError, Concurrency, Inputs, Load, Stability
    from tritonpy_bench.measurement import Measurement, ServerSide, Window
    from tritonpy_bench.report_json import measurement_json
    from tritonpy_bench.run import measure

__all__ = [
    "BenchError",
    "Concurrency",
    "Histogram",
    "Inputs",
    "Load",
    "Measurement",
    "ServerSide",
    "Stability",
    "Window",
    "measure",
    "measurement_json",
]

# Imported when they are asked for: `corectl --help` imports this package, and numpy takes a moment.
_MODULES = {
    "Histogram": "histogram",
    "Measurement": "measurement",
    "ServerSide": "measurement",
    "Window": "measurement",
    "measure": "run",
    "measurement_json": "report_json",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'load')}"), name)
