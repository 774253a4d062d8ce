"""Backends compiled for Triton."""

from tritonpy_abi.backends.shared_backend import open_backend

__all__ = ["open_backend"]
