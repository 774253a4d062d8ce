"""`pytriton.model_config.model_config`."""

from tritonpy_sdk.functions.config import ModelConfig

__all__ = ["ModelConfig"]
