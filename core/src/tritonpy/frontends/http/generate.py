"""Bodies of generate requests: a flat JSON object in, a flat JSON object out.

A key that is the name of an input becomes that tensor, any other a parameter of the request; those inside of
`parameters` likewise. On the way back every output is a key, beside `model_name`, `model_version`, `id` and
the parameters of the response.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from tritonpy.dataplane import TensorSpec
from tritonpy.errors import Internal, InvalidArg, TritonError
from tritonpy.frontends.http.codec.flat_json import NESTED, input_tensor
from tritonpy.frontends.http.codec.json_body import ELSEWHERE, Json, parse_quickly, string, text
from tritonpy.frontends.http.codec.json_data import data_json
from tritonpy.frontends.http.codec.large_json import LARGE, ReadData, json_byte_size
from tritonpy.frontends.http.encoder import GAP, Encoded
from tritonpy.frontends.http.infer import Body
from tritonpy.frontends.http.parameters import custom_parameter, response_parameters
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse, ParameterValue
from tritonpy.tensor import Tensor


def parse_generate_request(
    body: Body, specs: Mapping[str, TensorSpec], model_name: str, model_version: str
) -> InferRequest | None:
    """Make a request of a body.

    Args:
        body: what the client sent.
        specs: the inputs of the model, by name.
        model_name: from the path.
        model_version: from the path, "" for the newest.

    Returns:
        The request, or None if its JSON would keep the loop busy and has to be read elsewhere.

    Raises:
        TritonError: with Triton's code and text for what is wrong with the body by itself; whether it
            fits the model is checked later.
    """
    document = parse_quickly(body)
    if document is ELSEWHERE:
        return None
    return read_generate_request(document, specs, model_name, model_version)


def read_generate_request(
    document: Json, specs: Mapping[str, TensorSpec], model_name: str, model_version: str
) -> InferRequest:
    """Make a request of a parsed body; its inputs may have been read already.

    Raises:
        TritonError: see `parse_generate_request`.
    """
    if not isinstance(document, dict):
        raise Internal("attempt to get members for non-object")
    request = InferRequest(model_name, {}, model_version=model_version)
    if "id" in document:
        request.id = string(document["id"], "id")
    parameters: dict[str, ParameterValue] = {}
    for key, value in document.items():
        if key == NESTED:
            _map_nested(value, specs, request, parameters)
        else:
            _map(key, value, specs, request, parameters)
    request.parameters = parameters
    return request


def _map_nested(
    members: Json,
    specs: Mapping[str, TensorSpec],
    request: InferRequest,
    parameters: dict[str, ParameterValue],
) -> None:
    if NESTED in specs:
        raise InvalidArg(f"Keyword '{NESTED}' for nested schema also given as input tensor name")
    if not isinstance(members, dict):
        raise Internal(
            f"Expected JSON object for keyword: '{NESTED}': attempt to access JSON non-object as object"
        )
    try:
        for key, value in members.items():
            _map(key, value, specs, request, parameters)
    except TritonError as error:
        raise TritonError(f"Converting keyword: '{NESTED}': {error.message}", error.code) from None


def _map(
    key: str,
    value: Json,
    specs: Mapping[str, TensorSpec],
    request: InferRequest,
    parameters: dict[str, ParameterValue],
) -> None:
    spec = specs.get(key)
    if spec is None:
        parameters[text(key, key)] = custom_parameter(key, value)
        return
    is_read = isinstance(value, ReadData)
    tensor = value.tensor() if is_read else input_tensor(key, (spec.datatype, spec.shape), value)
    if key in request.inputs:
        raise InvalidArg(f"{request.label}input '{key}' already exists in request")
    request.inputs[key] = tensor


def encode_event(request: InferRequest, response: InferResponse) -> Encoded:
    """A successful response as JSON, its keys sorted; one element alone stands there without brackets.

    What the server says hides a parameter of the same name, and a parameter hides an output.

    Raises:
        InvalidArg: an output cannot travel as JSON.
    """
    members, outputs = _members_and_outputs(request, response)
    members.update((name, _fragment(tensor)) for name, tensor in outputs.items())
    return Encoded(orjson.dumps(members, option=orjson.OPT_SORT_KEYS))


def encode_generated(request: InferRequest, response: InferResponse) -> Encoded:
    """The same, but without the elements of large arrays if there are any."""
    members, outputs = _members_and_outputs(request, response)
    missing: dict[str, Tensor] = {}
    for name, tensor in outputs.items():
        if tensor.element_count != 1 and json_byte_size(tensor) > LARGE:
            missing[name] = tensor
            members[name] = orjson.Fragment(GAP)
        else:
            members[name] = _fragment(tensor)
    document = orjson.dumps(members, option=orjson.OPT_SORT_KEYS)
    return Encoded(document, missing=[missing[name] for name in sorted(missing)])


def _members_and_outputs(
    request: InferRequest, response: InferResponse
) -> tuple[dict[str, Json], dict[str, Tensor]]:
    said: dict[str, Json] = {"model_name": request.model_name, "model_version": request.model_version}
    if request.id:
        said["id"] = request.id
    members: dict[str, Json] = {**response_parameters(response.parameters), **said}
    outputs = {tensor.name: tensor for tensor in reversed(response.outputs) if tensor.name not in members}
    return members, outputs


def _fragment(tensor: Tensor) -> orjson.Fragment:
    elements = data_json(tensor)
    return orjson.Fragment(elements[1:-1] if tensor.element_count == 1 else elements)
