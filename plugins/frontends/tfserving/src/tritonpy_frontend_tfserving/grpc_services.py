"""TensorFlow Serving's gRPC services: `PredictionService` and, of `ModelService`, the status of models."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from tritonpy.plugin import Address, ErrorCode, Frontend, InvalidArg, TensorSpec, TritonError, Unsupported

from tritonpy_frontend_tfserving import messages
from tritonpy_frontend_tfserving.messages import Message
from tritonpy_frontend_tfserving.models import (
    TYPES,
    ModelName,
    check_signature,
    find,
    metadata,
    signature_of,
    status,
)
from tritonpy_frontend_tfserving.predict import infer
from tritonpy_frontend_tfserving.settings import Settings
from tritonpy_frontend_tfserving.tensor_messages import NUMBERS, read_tensor, write_tensor

_log = logging.getLogger("tritonpy.frontend.tfserving")

Context = Any  # Any: grpc is untyped
Method = Callable[[bytes, Context], Awaitable[bytes]]

STATUSES = {
    ErrorCode.UNKNOWN: grpc.StatusCode.UNKNOWN,
    ErrorCode.INTERNAL: grpc.StatusCode.INTERNAL,
    ErrorCode.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    ErrorCode.INVALID_ARG: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    ErrorCode.UNSUPPORTED: grpc.StatusCode.UNIMPLEMENTED,
    ErrorCode.ALREADY_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    ErrorCode.CANCELLED: grpc.StatusCode.CANCELLED,
}
"""The status for each error."""

_STATES = {"LOADING": 20, "AVAILABLE": 30, "UNLOADING": 40, "END": 50}
_UNKNOWN = 2  # TensorFlow's number of this error
_SIGNATURE_DEF = "signature_def"
_NUMBERS_BY_TYPE = {name: NUMBERS[datatype] for datatype, name in TYPES.items()}


class GrpcServices:
    """Answers calls; on the loop only."""

    def __init__(self, frontend: Frontend, settings: Settings) -> None:
        self._frontend = frontend
        self._limit = settings.max_body_bytes

    def make_server(self, address: Address) -> tuple[Any, int]:  # Any: see `Context`
        """A server that is not started, and the port that it has got."""
        options = [
            ("grpc.max_receive_message_length", self._limit),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ]
        server = grpc.aio.server(options=options)
        records = self._refused("tf.Example records, which are a matter of TensorFlow's graphs")
        services: dict[str, dict[str, Method]] = {
            "PredictionService": {
                "Predict": self._predict,
                "GetModelMetadata": self._metadata,
                "Classify": records,
                "Regress": records,
                "MultiInference": records,
            },
            "ModelService": {
                "GetModelStatus": self._status,
                "HandleReloadConfigRequest": self._refused("a configuration of TensorFlow Serving"),
            },
        }
        for name, methods in services.items():
            handlers: dict[str, Any] = {
                method: grpc.unary_unary_rpc_method_handler(self._guarded(answer))
                for method, answer in methods.items()
            }
            service = f"tensorflow.serving.{name}"
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        host = f"[{address.host}]" if ":" in address.host else address.host
        return server, server.add_insecure_port(f"{host}:{address.port}")

    def _guarded(self, answer: Method) -> Method:
        """Count the bytes of a call while it is answered, and tell its client what is wrong."""

        async def call(body: bytes, context: Context) -> bytes:
            try:
                with self._frontend.admission.holding(len(body)):
                    return await answer(body, context)
            except TritonError as error:
                code, text = STATUSES[error.code], error.message
            except Exception as exc:  # the guard of this frontend's calls
                _log.exception("a call failed")
                code, text = grpc.StatusCode.INTERNAL, f"{type(exc).__name__}: {exc}"
            await context.abort(code, text)
            raise AssertionError("abort raises")

        return call

    async def _predict(self, body: bytes, context: Context) -> bytes:
        request = _parsed(messages.PredictRequest, body)
        wanted = _name(request.model_spec)
        model = find(self._frontend.dataplane, wanted)
        check_signature(model, request.model_spec.signature_name)
        arrays = {}
        for entry in request.inputs:
            spec: TensorSpec | None = model.inputs.get(entry.key)
            if spec is None:
                raise InvalidArg(
                    f"input tensor alias not found in signature: {entry.key}. Inputs expected to be in the "
                    f"set {{{', '.join(model.inputs)}}}."
                )
            arrays[entry.key] = read_tensor(entry.value, spec, self._limit)
        headers = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        outputs = await infer(self._frontend, model, wanted, arrays, headers, tuple(request.output_filter))
        response = messages.PredictResponse()
        for name, (array, datatype) in outputs.items():
            write_tensor(array, datatype, response.outputs.add(key=name).value)
        response.model_spec.name = model.name
        response.model_spec.version.value = model.version
        response.model_spec.signature_name = signature_of(model)
        return _sent(response)

    async def _metadata(self, body: bytes, context: Context) -> bytes:
        request = _parsed(messages.GetModelMetadataRequest, body)
        if list(request.metadata_field) != [_SIGNATURE_DEF]:
            raise InvalidArg(
                f"Metadata field {list(request.metadata_field)} is not supported, expected "
                f"['{_SIGNATURE_DEF}']"
            )
        described = metadata(self._frontend.dataplane, _name(request.model_spec))
        definitions = messages.SignatureDefMap()
        for key, definition in described["metadata"][_SIGNATURE_DEF][_SIGNATURE_DEF].items():
            signature = definitions.signature_def.add(key=key).value
            signature.method_name = definition["method_name"]
            for side, entries in (("inputs", signature.inputs), ("outputs", signature.outputs)):
                for name, info in definition[side].items():
                    value = entries.add(key=name).value
                    value.name, value.dtype = info["name"], _NUMBERS_BY_TYPE[info["dtype"]]
                    value.tensor_shape.SetInParent()
                    for dim in info["tensor_shape"]["dim"]:
                        value.tensor_shape.dim.add(size=int(dim["size"]))
        response = messages.GetModelMetadataResponse()
        response.model_spec.name = described["model_spec"]["name"]
        response.model_spec.version.value = int(described["model_spec"]["version"])
        entry = response.metadata.add(key=_SIGNATURE_DEF).value
        entry.type_url = f"type.googleapis.com/{definitions.DESCRIPTOR.full_name}"
        entry.value = definitions.SerializeToString()
        return _sent(response)

    async def _status(self, body: bytes, context: Context) -> bytes:
        request = _parsed(messages.GetModelStatusRequest, body)
        response = messages.GetModelStatusResponse()
        found = await status(self._frontend.dataplane, _name(request.model_spec))
        for row in found["model_version_status"]:
            said = row["status"]["error_message"]
            response.model_version_status.add(
                version=int(row["version"]),
                state=_STATES.get(row["state"], 0),
                status={"error_code": _UNKNOWN if said else 0, "error_message": said},
            )
        return _sent(response)

    def _refused(self, what: str) -> Method:
        async def refuse(body: bytes, context: Context) -> bytes:
            raise Unsupported(f"the call takes {what}; ask a model by Predict")

        return refuse


def _parsed(kind: Message, body: bytes) -> Message:
    try:
        return kind.FromString(body)
    except DecodeError as exc:
        raise InvalidArg(f"the message is no {kind.DESCRIPTOR.name}: {exc}") from exc


def _name(spec: Message) -> ModelName:
    version = str(spec.version.value) if spec.HasField("version") else ""
    return ModelName(spec.name, version, "" if version else spec.version_label)


def _sent(message: Message) -> bytes:
    sent: bytes = message.SerializeToString()
    return sent
