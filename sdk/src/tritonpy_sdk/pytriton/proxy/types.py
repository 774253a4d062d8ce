"""`pytriton.proxy.types`."""

from tritonpy_sdk.functions.request import Request

__all__ = ["Request"]
