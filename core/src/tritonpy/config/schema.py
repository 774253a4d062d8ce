"""The configuration's messages, and the names that stand in for its enums."""

from __future__ import annotations

from tritonpy.protos import ModelConfig, ModelInstanceGroup

__all__ = ["KIND_AUTO", "KIND_CPU", "KIND_GPU", "KIND_MODEL", "ModelConfig", "ModelInstanceGroup"]

KIND_AUTO = ModelInstanceGroup.KIND_AUTO
KIND_GPU = ModelInstanceGroup.KIND_GPU
KIND_CPU = ModelInstanceGroup.KIND_CPU
KIND_MODEL = ModelInstanceGroup.KIND_MODEL
