"""`pytriton.proxy.types`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tritonpy.tensor import Array

from tritonpy_sdk.functions.request import Request

Requests: TypeAlias = list[Request]
Response: TypeAlias = Mapping[str, Array]
Responses: TypeAlias = list[Response]

__all__ = ["Request", "Requests", "Response", "Responses"]
