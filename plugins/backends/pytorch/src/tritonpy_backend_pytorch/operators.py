"""Custom operators: libraries that a model's file calls, opened before it is loaded."""

from __future__ import annotations

import runpy
import threading
from pathlib import Path

import torch
from tritonpy.plugin import Internal, Model, Unavailable

_lock = threading.Lock()  # guards _opened
_opened: set[Path] = set()


def open_libraries(model: Model) -> None:
    """Open the libraries that `model_operations` names: shared objects and Python files of the model.

    Operators belong to the process and cannot be taken out of it again, so each library is opened once.

    Raises:
        TritonError: one is not there, or cannot be opened.
    """
    for name in model.config.get("model_operations", {}).get("op_library_filename", ()):
        path = (model.directory / name).resolve()
        if not path.is_file():
            raise Unavailable(
                f"unable to find '{path}', which 'op_library_filename' of model '{model.name}' names"
            )
        with _lock:
            if path in _opened:
                continue
            try:
                if path.suffix == ".py":
                    runpy.run_path(str(path))
                else:
                    torch.ops.load_library(str(path))
            except Exception as exc:  # of the dynamic linker, or of whatever the file does
                raise Internal(
                    f"failed to load model '{model.name}': custom operators of '{name}': "
                    f"{type(exc).__name__}: {exc}"
                ) from exc
            _opened.add(path)
