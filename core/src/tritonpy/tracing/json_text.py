"""Traces as Triton's trace files have them: a JSON array of small objects, each with the id of its trace."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any

import numpy as np
import orjson

from tritonpy.errors import InvalidArg
from tritonpy.tensor import Array, Tensor
from tritonpy.tracing.trace import FinishedTrace, Span, TracedTensor

Entry = dict[str, Any]  # Any: JSON


def trace_text(trace: FinishedTrace) -> bytes:
    """The elements of the array for one client's request, separated by commas.

    What models and ensembles have asked for stands before what they were asked, as in Triton's files.
    """
    entries = [entry for span in reversed(trace.spans) for entry in _entries(span)]
    try:
        text = orjson.dumps(entries)
    except TypeError:  # half of a surrogate pair in a request id
        text = json.dumps(entries, separators=(",", ":")).encode()
    return text[1:-1]


def _entries(span: Span) -> Iterator[Entry]:
    """Everything noted of one request, by its time; what it was asked of stands where its model begins."""
    stamps = list(span.stamps)
    if span.ended_ns and stamps:
        stamps.append(("REQUEST_END", span.ended_ns))
    noted: list[tuple[int, int, Entry]] = [
        (ns, 1, {"id": span.id, "timestamps": [{"name": name, "ns": ns}]}) for name, ns in stamps
    ]
    # Outputs stand before the stamp of their response, which has the same time.
    noted += [(tensor.ns, 0, _tensor_entry(span.id, tensor)) for tensor in span.tensors]
    noted.sort(key=itemgetter(0, 1))
    is_introduced = False
    for _, _, entry in noted:
        is_start = "timestamps" not in entry or entry["timestamps"][0]["name"] == "REQUEST_START"
        if is_start and not is_introduced:
            is_introduced = True
            yield _introduction(span)
        yield entry
    if not is_introduced:
        yield _introduction(span)


def _introduction(span: Span) -> Entry:
    entry: Entry = {
        "id": span.id,
        "model_name": span.model_name,
        "model_version": int(span.model_version) if span.model_version.isdecimal() else -1,
    }
    if span.request_id:
        entry["request_id"] = span.request_id
    if span.parent_id:
        entry["parent_id"] = span.parent_id
    return entry


def _tensor_entry(id: int, tensor: TracedTensor) -> Entry:
    shape = ",".join(map(str, tensor.shape))
    described = {
        "name": tensor.name,
        "data": tensor_text(tensor),
        "shape": shape,
        "dtype": tensor.datatype,
    }
    return {"id": id, "activity": tensor.activity, "tensor": described}


def tensor_text(tensor: TracedTensor) -> str:
    """The elements in row-major order, separated by commas.

    Numbers have six significant digits at most, as C++ writes them; BOOL is 0 or 1; BYTES stand in quotes.
    """
    try:
        array = Tensor(tensor.name, tensor.datatype, tensor.shape, tensor.data).numpy()
    except InvalidArg:  # what could not be read, or a model's bytes that do not fit its shape
        return ""
    return ",".join(_elements(tensor.datatype, array.reshape(-1)))


def _elements(datatype: str, array: Array) -> Iterable[str]:
    if datatype == "BYTES":
        return (f'"{element.decode("utf-8", "replace")}"' for element in array.tolist())
    if datatype == "BF16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    if array.dtype.kind == "f":
        return map("%g".__mod__, array.tolist())
    if datatype == "BOOL":
        array = array.view(np.uint8)
    return map(str, array.tolist())
