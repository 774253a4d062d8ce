"""Protobuf messages of a configuration, and the names of its element types.

They come from our descriptors in a private pool (`tritonpy.protos`); the rest of the server takes them from
here.
"""

from __future__ import annotations

from tritonpy.protos import (
    BatchInput,
    BatchOutput,
    DataType,
    ModelConfig,
    ModelDynamicBatching,
    ModelEnsembling,
    ModelInput,
    ModelInstanceGroup,
    ModelOptimizationPolicy,
    ModelOutput,
    ModelQueuePolicy,
    ModelSequenceBatching,
    ModelVersionPolicy,
)

__all__ = [
    "KIND_AUTO",
    "KIND_CPU",
    "KIND_GPU",
    "KIND_MODEL",
    "WIRE_DATATYPES",
    "BatchInput",
    "BatchOutput",
    "DataType",
    "ModelConfig",
    "ModelDynamicBatching",
    "ModelEnsembling",
    "ModelInput",
    "ModelInstanceGroup",
    "ModelOptimizationPolicy",
    "ModelOutput",
    "ModelQueuePolicy",
    "ModelSequenceBatching",
    "ModelVersionPolicy",
    "wire_datatype",
]

KIND_AUTO = ModelInstanceGroup.KIND_AUTO
KIND_GPU = ModelInstanceGroup.KIND_GPU
KIND_CPU = ModelInstanceGroup.KIND_CPU
KIND_MODEL = ModelInstanceGroup.KIND_MODEL

WIRE_DATATYPES: dict[int, str] = {
    number: "BYTES" if name == "TYPE_STRING" else name.removeprefix("TYPE_")
    for name, number in DataType.items()
    if number != DataType.TYPE_INVALID
}
"""The protocol's name for each number of `DataType`, such as `FP32`; TYPE_STRING is BYTES."""


def wire_datatype(data_type: int) -> str:
    """The protocol's name for a `data_type`, or `<invalid>` for one that is unset or unknown."""
    return WIRE_DATATYPES.get(data_type, "<invalid>")
