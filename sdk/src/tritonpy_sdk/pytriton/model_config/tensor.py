"""`pytriton.model_config.tensor`."""

from tritonpy_sdk.functions.tensors import Tensor

__all__ = ["Tensor"]
