"""From `InferResponse` to serialized `ModelInferResponse` and `ModelStreamInferResponse`.

Tensors always travel as `raw_output_contents`, copied once, into the bytes that gRPC is given. What stands
before them is the same for every response of one shape, so it is remembered.
"""

from __future__ import annotations

from tritonpy.errors import TritonError
from tritonpy.frontends.grpc.wire import field_head
from tritonpy.frontends.outputs import UNTREATED, Treatments, treat
from tritonpy.protos import InferParameter, ModelInferResponse
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse, ParameterValue, plain_parameter

_ID = 3
_RAW_OUTPUT_CONTENTS = 6
_ERROR_MESSAGE = 1
_INFER_RESPONSE = 2

_MOST_REMEMBERED = 512
_MOST_INT64 = 2**63 - 1


def _final_flag(value: bool) -> bytes:
    """The map entry `triton_final_response` of the parameters, serialized."""
    entry = ModelInferResponse(parameters={"triton_final_response": InferParameter(bool_param=value)})
    return entry.SerializeToString()


_FINAL = {value: _final_flag(value) for value in (False, True)}


class ResponseEncoder:
    """Writes response messages. Not thread-safe: one loop's."""

    def __init__(self) -> None:
        self._heads: dict[tuple[object, ...], bytes] = {}

    def encode(
        self, request: InferRequest, response: InferResponse, treatments: Treatments = UNTREATED
    ) -> bytes:
        """A `ModelInferResponse` with the outputs of a response.

        Raises:
            TritonError: an output cannot be treated as the client wants.
        """
        return b"".join(self.parts(request, response, treatments))

    def encode_streamed(
        self,
        request: InferRequest,
        response: InferResponse,
        final: bool,
        treatments: Treatments = UNTREATED,
    ) -> bytes:
        """A `ModelStreamInferResponse` with the outputs of a response and whether it is the last one."""
        return _streamed([*self.parts(request, response, treatments), _FINAL[final]])

    def parts(
        self, request: InferRequest, response: InferResponse, treatments: Treatments = UNTREATED
    ) -> list[bytes | bytearray | memoryview]:
        """A `ModelInferResponse` in pieces, tensors not copied; see `encode`."""
        placed: frozenset[str] = frozenset()
        if treatments:
            outputs, placed = treat(response.outputs, treatments)
            response = InferResponse(outputs, None, response.parameters)
        parts: list[bytes | bytearray | memoryview] = [self._head(request, response)]
        if request.id:
            request_id = request.id.encode()
            parts += (field_head(_ID, len(request_id)), request_id)
        if response.parameters:
            parts.append(_parameters(response.parameters))
        for tensor in response.outputs:
            wire = b"" if tensor.name in placed else tensor.wire()
            parts += (field_head(_RAW_OUTPUT_CONTENTS, len(wire)), wire)
        return parts

    def _head(self, request: InferRequest, response: InferResponse) -> bytes:
        key = (
            request.model_name,
            request.model_version,
            *[part for tensor in response.outputs for part in (tensor.name, tensor.datatype, tensor.shape)],
        )
        head = self._heads.get(key)
        if head is None:
            message = ModelInferResponse(model_name=request.model_name, model_version=request.model_version)
            for tensor in response.outputs:
                message.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
            head = message.SerializeToString()
            if len(self._heads) >= _MOST_REMEMBERED:
                self._heads.clear()
            self._heads[key] = head
        return head


def encode_refusal(error: TritonError, request_id: str) -> bytes:
    """A `ModelStreamInferResponse` for a request that never ran: only the id says which it was."""
    return _streamed([ModelInferResponse(id=request_id).SerializeToString()], error)


def encode_failure(error: TritonError, request: InferRequest, final: bool) -> bytes:
    """A `ModelStreamInferResponse` for an error that came from running a request."""
    message = ModelInferResponse(model_name=request.model_name, id=request.id)
    return _streamed([message.SerializeToString(), _FINAL[final]], error)


def encode_empty_final(model_name: str, model_version: str, request_id: str) -> bytes:
    """A `ModelStreamInferResponse` without outputs, for a final flag that comes alone."""
    message = ModelInferResponse(model_name=model_name, model_version=model_version, id=request_id)
    return _streamed([message.SerializeToString(), _FINAL[True]])


def _streamed(parts: list[bytes | bytearray | memoryview], error: TritonError | None = None) -> bytes:
    head = field_head(_INFER_RESPONSE, sum(map(len, parts)))
    if error is not None:
        text = (error.message or error.code.text).encode("utf-8", "replace")
        head = field_head(_ERROR_MESSAGE, len(text)) + text + head
    return b"".join([head, *parts])


def _parameters(parameters: dict[str, ParameterValue]) -> bytes:
    message = ModelInferResponse()
    for key, value in parameters.items():
        parameter = message.parameters[key]
        value = plain_parameter(key, value)
        if isinstance(value, bool):
            parameter.bool_param = value
        elif isinstance(value, int):
            if value > _MOST_INT64:
                parameter.uint64_param = value
            else:
                parameter.int64_param = value
        elif isinstance(value, float):
            parameter.double_param = value
        else:
            parameter.string_param = value
    return message.SerializeToString()
