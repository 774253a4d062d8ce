"""The body of the response to an inference request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from tritonpy.frontends.http.codec.json_data import data_json
from tritonpy.frontends.http.codec.large_json import LARGE, json_byte_size
from tritonpy.frontends.http.connection.message import BINARY, JSON, Chunk, response_head
from tritonpy.frontends.http.infer import OutputForm
from tritonpy.frontends.http.parameters import response_parameters
from tritonpy.frontends.outputs import treat
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.tensor import Tensor

GAP = b"\0"
"""The mark for data that is put in later; it stands in no JSON text."""


class Encoded:
    """A response that is ready to be sent, or nearly so.

    Attributes:
        header: its JSON, with a gap for the data of each of `missing`.
        wires: the binary tensors behind the JSON.
        wire_size: their bytes.
        missing: tensors whose JSON is too large to be made on the loop.
        opening: the response up to the binary tensors, with the head for a connection that stays open and a
            body that is not compressed; b"" where it is not remembered.
        headers: further header lines.
        status: of the response.
    """

    __slots__ = ("header", "headers", "missing", "opening", "status", "wire_size", "wires")

    def __init__(
        self,
        header: bytes,
        wires: Sequence[Chunk] = (),
        wire_size: int = 0,
        missing: Sequence[Tensor] = (),
        opening: bytes = b"",
    ) -> None:
        self.header = header
        self.wires = wires
        self.wire_size = wire_size
        self.missing = missing
        self.opening = opening
        self.headers: Sequence[bytes] = ()
        self.status = 200

    def filled(self, texts: Sequence[Chunk]) -> list[Chunk]:
        """The pieces of the JSON, with the data that was missing; nothing is copied."""
        pieces = self.header.split(GAP)
        parts: list[Chunk] = [pieces[0]]
        for text, piece in zip(texts, pieces[1:], strict=True):
            parts += (text, piece)
        return parts


def content_headers(json_size: int, wire_size: int) -> tuple[bytes, tuple[bytes, ...]]:
    """The content type and further header lines of a body: JSON, and maybe binary tensors behind it."""
    if not wire_size:
        return JSON, ()
    return BINARY, (b"Inference-Header-Content-Length: %d\r\n" % json_size,)


class ResponseEncoder:
    """Writes response bodies; what precedes the tensors of a binary response is remembered per shape."""

    MOST_REMEMBERED = 512

    def __init__(self) -> None:
        # What precedes the tensors: the JSON, the bytes of all tensors, and `Encoded.opening`.
        self._remembered: dict[tuple[Any, ...], tuple[bytes, int, bytes]] = {}  # Any: names, shapes, sizes …

    def encode(self, request: InferRequest, response: InferResponse, form: OutputForm) -> Encoded:
        """Write a successful response.

        Raises:
            TritonError: an output cannot travel as JSON, be classified, or be put where the client wants it.
        """
        outputs = response.outputs
        binary = form.binary
        default = form.binary_by_default
        if form.treatments:
            return self._treated(request, response, form)
        if not outputs or not (binary or default):
            return self._mixed(request, response, form)
        for tensor in outputs:
            if not binary.get(tensor.name, default):
                return self._mixed(request, response, form)
        wires: list[Chunk] = []
        parts: list[Any] = [request.model_name, request.model_version]  # Any: as for `_remembered`
        for tensor in outputs:
            wire = tensor.wire()
            wires.append(wire)
            parts += (tensor.name, tensor.datatype, tensor.shape, len(wire))
        if request.id or response.parameters:
            return Encoded(self._header(request, response, wires), wires, sum(map(len, wires)))
        key = tuple(parts)
        remembered = self._remembered.get(key)
        if remembered is None:
            remembered = self._before_tensors(request, response, wires)
            if len(self._remembered) >= self.MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = remembered
        header, wire_size, opening = remembered
        return Encoded(header, wires, wire_size, (), opening)

    def _before_tensors(
        self, request: InferRequest, response: InferResponse, wires: list[Chunk]
    ) -> tuple[bytes, int, bytes]:
        header = self._header(request, response, wires)
        wire_size = sum(map(len, wires))
        content_type, lines = content_headers(len(header), wire_size)
        head = response_head(200, content_type, len(header) + wire_size, True, lines)
        return header, wire_size, head + header

    def _treated(self, request: InferRequest, response: InferResponse, form: OutputForm) -> Encoded:
        outputs, placed = treat(response.outputs, form.treatments)
        return self._mixed(request, InferResponse(outputs, None, response.parameters), form, placed)

    def _header(self, request: InferRequest, response: InferResponse, wires: list[Chunk]) -> bytes:
        document = _head(request, response)
        document["outputs"] = [
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": tensor.shape,
                "parameters": {"binary_data_size": len(wire)},
            }
            for tensor, wire in zip(response.outputs, wires, strict=True)
        ]
        return orjson.dumps(document)

    def _mixed(
        self,
        request: InferRequest,
        response: InferResponse,
        form: OutputForm,
        placed: frozenset[str] = frozenset(),
    ) -> Encoded:
        wires: list[Chunk] = []
        missing: list[Tensor] = []
        entries: list[dict[str, Any]] = []  # Any: JSON
        for tensor in response.outputs:
            entry: dict[str, Any] = {  # Any: JSON
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": tensor.shape,
            }
            if tensor.name in placed:
                pass  # its bytes are where the client wanted them
            elif form.binary.get(tensor.name, form.binary_by_default):
                wire = tensor.wire()
                wires.append(wire)
                entry["parameters"] = {"binary_data_size": len(wire)}
            elif json_byte_size(tensor) > LARGE:
                missing.append(tensor)
                entry["data"] = orjson.Fragment(GAP)
            else:
                entry["data"] = orjson.Fragment(data_json(tensor))
            entries.append(entry)
        document = _head(request, response)
        document["outputs"] = entries
        return Encoded(orjson.dumps(document), wires, sum(map(len, wires)), missing)


def _head(request: InferRequest, response: InferResponse) -> dict[str, Any]:  # Any: JSON
    document: dict[str, Any] = {"id": request.id} if request.id else {}  # Any: JSON
    document["model_name"] = request.model_name
    document["model_version"] = request.model_version
    if response.parameters:
        document["parameters"] = response_parameters(response.parameters)
    return document
