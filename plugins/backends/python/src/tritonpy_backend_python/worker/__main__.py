"""Starts the worker: makes its packages importable by path, then serves the channel.

The folders they lie in never get onto the module path. They are those of the server's interpreter, whose
numpy must not be found by another one; and names in here must not hide a model's own modules.
"""

from __future__ import annotations

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location


def load_package(name: str, directory: str) -> None:
    """Import the package in `directory` under `name`."""
    spec = spec_from_file_location(
        name, os.path.join(directory, "__init__.py"), submodule_search_locations=[directory]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {directory}")
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)


def main() -> None:
    """Serve the channel this process was started with."""
    here = os.path.dirname(os.path.abspath(__file__))
    source = os.path.dirname(os.path.dirname(here))
    if sys.path and os.path.abspath(sys.path[0]) == here:
        del sys.path[0]
    for name in ("triton_python_backend_utils", "c_python_backend_utils", "tritonpy_model"):
        load_package(name, os.path.join(source, name))
    load_package("_tritonpy_python_worker", here)
    from _tritonpy_python_worker.session import serve  # type: ignore[import-not-found]

    serve()


if __name__ == "__main__":
    main()
