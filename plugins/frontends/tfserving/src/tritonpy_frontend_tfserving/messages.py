"""Messages of TensorFlow Serving's gRPC services, as far as they are used here.

They have the numbers and types of TensorFlow's own, so that both are the same on the wire, and live in a
descriptor pool of their own: those of `tensorflow-serving-api` come with all of TensorFlow. Enumerations are
whole numbers here, and maps are lists of their entries, which is what they are on the wire.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

Message = Any  # Any: the classes are made when this is imported

_PACKAGE = "tensorflow.serving"  # of the one message whose name is sent: `SignatureDefMap`

_MESSAGES = """
Dim: int64 size = 1
TensorShape: repeated Dim dim = 2; bool unknown_rank = 3
Tensor: int32 dtype = 1; TensorShape tensor_shape = 2; bytes tensor_content = 4; \
repeated float float_val = 5; repeated double double_val = 6; repeated int32 int_val = 7; \
repeated bytes string_val = 8; repeated int64 int64_val = 10; repeated bool bool_val = 11; \
repeated int32 half_val = 13; repeated uint32 uint32_val = 16; repeated uint64 uint64_val = 17
TensorEntry: string key = 1; Tensor value = 2
Int64Value: int64 value = 1
ModelSpec: string name = 1; Int64Value version = 2; string signature_name = 3; string version_label = 4
PredictRequest: ModelSpec model_spec = 1; repeated TensorEntry inputs = 2; repeated string output_filter = 3
PredictResponse: repeated TensorEntry outputs = 1; ModelSpec model_spec = 2
TensorInfo: string name = 1; int32 dtype = 2; TensorShape tensor_shape = 3
TensorInfoEntry: string key = 1; TensorInfo value = 2
SignatureDef: repeated TensorInfoEntry inputs = 1; repeated TensorInfoEntry outputs = 2; \
string method_name = 3
SignatureDefEntry: string key = 1; SignatureDef value = 2
SignatureDefMap: repeated SignatureDefEntry signature_def = 1
AnyMessage: string type_url = 1; bytes value = 2
AnyEntry: string key = 1; AnyMessage value = 2
GetModelMetadataRequest: ModelSpec model_spec = 1; repeated string metadata_field = 2
GetModelMetadataResponse: ModelSpec model_spec = 1; repeated AnyEntry metadata = 2
Status: int32 error_code = 1; string error_message = 2
ModelVersionStatus: int64 version = 1; int32 state = 2; Status status = 3
GetModelStatusRequest: ModelSpec model_spec = 1
GetModelStatusResponse: repeated ModelVersionStatus model_version_status = 1
"""

_SCALARS = {
    name: getattr(FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in ("double", "float", "int64", "uint64", "int32", "bool", "string", "bytes", "uint32")
}


def _describe(line: str) -> DescriptorProto:
    name, _, fields = line.partition(": ")
    message = DescriptorProto(name=name)
    for text in fields.split("; "):
        declared, _, number = text.partition(" = ")
        *labels, kind, field_name = declared.split()
        repeated = FieldDescriptorProto.LABEL_REPEATED if labels else FieldDescriptorProto.LABEL_OPTIONAL
        field = message.field.add(name=field_name, number=int(number), label=repeated)
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        else:
            field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    return message


def _make_classes() -> dict[str, Message]:
    file = FileDescriptorProto(name="tritonpy_frontend_tfserving.proto", package=_PACKAGE, syntax="proto3")
    file.message_type.extend(map(_describe, _MESSAGES.strip().splitlines()))
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {
        message.name: GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{message.name}"))
        for message in file.message_type
    }


_CLASSES = _make_classes()

Tensor: Message = _CLASSES["Tensor"]
PredictRequest: Message = _CLASSES["PredictRequest"]
PredictResponse: Message = _CLASSES["PredictResponse"]
SignatureDefMap: Message = _CLASSES["SignatureDefMap"]
GetModelMetadataRequest: Message = _CLASSES["GetModelMetadataRequest"]
GetModelMetadataResponse: Message = _CLASSES["GetModelMetadataResponse"]
GetModelStatusRequest: Message = _CLASSES["GetModelStatusRequest"]
GetModelStatusResponse: Message = _CLASSES["GetModelStatusResponse"]
