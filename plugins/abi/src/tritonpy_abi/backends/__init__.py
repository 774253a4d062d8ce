"""Backends compiled for Triton."""

from tritonpy_abi.backends.shared_backend import SharedBackend as open_backend

__all__ = ["open_backend"]
