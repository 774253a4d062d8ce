"""Batching strategies compiled for Triton."""

from tritonpy_abi.strategies.shared_strategy import SharedStrategy as open_strategy

__all__ = ["open_strategy"]
