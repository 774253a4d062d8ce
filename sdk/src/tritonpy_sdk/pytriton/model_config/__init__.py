"""`pytriton.model_config`."""

from tritonpy_sdk.pytriton.model_config.common import DeviceKind, DynamicBatcher, QueuePolicy, TimeoutAction
from tritonpy_sdk.pytriton.model_config.model_config import ModelConfig
from tritonpy_sdk.pytriton.model_config.tensor import Tensor

__all__ = ["DeviceKind", "DynamicBatcher", "ModelConfig", "QueuePolicy", "Tensor", "TimeoutAction"]
