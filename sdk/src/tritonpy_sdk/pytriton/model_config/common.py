"""`pytriton.model_config.common`."""

from __future__ import annotations

from enum import Enum

from tritonpy_sdk.functions.config import DynamicBatcher, ModelWarmup, QueuePolicy, TimeoutAction, WarmupInput

__all__ = ["DeviceKind", "DynamicBatcher", "ModelWarmup", "QueuePolicy", "TimeoutAction", "WarmupInput"]


class DeviceKind(Enum):
    """Where instances run, in the words of a configuration."""

    KIND_AUTO = "KIND_AUTO"
    KIND_CPU = "KIND_CPU"
    KIND_GPU = "KIND_GPU"
