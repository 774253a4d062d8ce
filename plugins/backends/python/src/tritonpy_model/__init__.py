"""Shorthand for a `model.py`: `from tritonpy_model import batched`.

It comes with the Python backend and is there in every worker. It uses only numpy and the public part of
`triton_python_backend_utils`, so that a `model.py` with this folder beside it runs on Triton as well.
"""

from __future__ import annotations

from ._batched import Inputs, Outputs, RaggedInputs, batched

__all__ = ["Inputs", "Outputs", "RaggedInputs", "batched"]
