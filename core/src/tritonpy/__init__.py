"""Triton-compatible model serving in Python; importing this package imports nothing heavy."""

from tritonpy.version import __version__

__all__ = ["__version__"]
