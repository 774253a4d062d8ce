"""What tests of backends on threads share: a model, a request, and hooks that answer or exit."""

from __future__ import annotations

import json
import sys
from typing import Any

from tritonpy.plugin import InferResponse

CONFIG = """
backend: "odd"
input [ { name: "I" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "O" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
BODY = json.dumps({"inputs": [{"name": "I", "datatype": "FP32", "shape": [1], "data": [1]}]})


def raise_exit() -> Any:
    sys.exit("enough")


def execute(instance: Any, requests: Any) -> Any:
    return [InferResponse() for _ in requests]
