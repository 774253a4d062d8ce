"""Contents of inputs: made up, or read from files as perf_analyzer reads them."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from tritonpy.datatypes import DATATYPES
from tritonpy.tensor import Tensor

from tritonpy_bench.answers import Expected
from tritonpy_bench.elements import flat, packed, wire_of
from tritonpy_bench.errors import BenchError
from tritonpy_bench.load import Inputs
from tritonpy_bench.target import JsonObject, ModelFacts, TensorFacts

_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", np.uint8)


@dataclass(frozen=True, slots=True)
class Content:
    """One input of one row, or of a whole request for models without a batch dimension.

    Attributes:
        facts: the input.
        shape: without the batch dimension.
        wire: its elements in the protocol's binary form.
    """

    facts: TensorFacts
    shape: tuple[int, ...]
    wire: bytes


@dataclass(frozen=True, slots=True)
class Step:
    """All inputs of a row.

    Attributes:
        contents: one for each input.
        parameters: that its request gets.
        expected: the outputs that `validation_data` has for it.
        where: it stands in the input data.
    """

    contents: Sequence[Content]
    parameters: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    expected: Sequence[Content] = ()
    where: str = ""


Stream = Sequence[Step]
"""Rows that follow each other in a sequence."""


def read_streams(inputs: Inputs, facts: ModelFacts) -> list[Stream]:
    """The rows that are sent, in streams; without sequences these are one long stream.

    Raises:
        BenchError: they do not fit the model, or a shape has to be told.
    """
    unknown = set(inputs.shapes) - {entry.name for entry in facts.inputs}
    if unknown:
        raise BenchError(
            f"shape of input '{min(unknown)}': model '{facts.name}' has the inputs "
            f"{', '.join(entry.name for entry in facts.inputs)}"
        )
    if inputs.source in ("random", "zero"):
        return [[_made_up(inputs, facts)]]
    sources = inputs.source if isinstance(inputs.source, tuple) else (inputs.source,)
    streams: list[Stream] = []
    for source in map(Path, sources):
        try:
            streams += (
                [[_directory(source, inputs, facts)]] if source.is_dir() else _file(source, inputs, facts)
            )
        except OSError as error:
            raise BenchError(f"input data '{source}': {error.strerror}") from None
    return streams


def join_rows(steps: Sequence[Step], facts: ModelFacts) -> tuple[list[Tensor], dict[str, object]]:
    """Make the tensors of one request of several rows, and its parameters.

    Raises:
        BenchError: rows of one request have different shapes or inputs.
    """
    tensors = []
    first = steps[0]
    for index, content in enumerate(first.contents):
        entry = content.facts
        if not entry.is_batched:
            tensors.append(Tensor(entry.name, entry.datatype, content.shape, content.wire))
            continue
        rows = [step.contents[index] if index < len(step.contents) else None for step in steps]
        if any(row is None or row.facts is not entry or row.shape != content.shape for row in rows):
            raise BenchError(
                f"input '{entry.name}': rows of one request need the same inputs and shapes, "
                f"and those of the data differ; use a batch size of 1"
            )
        wire = b"".join(row.wire for row in rows if row is not None)
        tensors.append(Tensor(entry.name, entry.datatype, (len(steps), *content.shape), wire))
    return tensors, dict(first.parameters)


def expected_outputs(steps: Sequence[Step]) -> list[Expected]:
    """What the response to one request of several rows has to hold.

    Raises:
        BenchError: rows of one request expect different outputs.
    """
    first = steps[0]
    names = [content.facts.name for content in first.expected]
    for step in steps:
        if [content.facts.name for content in step.expected] != names:
            raise BenchError(
                f"{step.where}: 'validation_data' has other outputs than the step before, and both are rows "
                f"of one request; use a batch size of 1"
            )
    return [
        Expected(content.facts.name, content.facts.datatype, _joined(steps, index), first.where)
        for index, content in enumerate(first.expected)
    ]


def _joined(steps: Sequence[Step], index: int) -> bytes:
    """What is expected of all rows, one behind the other; of an output without rows, of the first."""
    is_batched = steps[0].expected[index].facts.is_batched
    return b"".join(step.expected[index].wire for step in (steps if is_batched else steps[:1]))


def _made_up(inputs: Inputs, facts: ModelFacts) -> Step:
    random = np.random.default_rng(inputs.seed)
    return Step(
        [
            Content(entry, shape := _shape(entry, inputs), _elements(entry, shape, inputs, random))
            for entry in facts.inputs
            if not entry.is_optional or entry.name in inputs.shapes
        ]
    )


def _shape(entry: TensorFacts, inputs: Inputs, told: tuple[int, ...] | None = None) -> tuple[int, ...]:
    shape = told or inputs.shapes.get(entry.name) or entry.shape
    fits = len(shape) == len(entry.shape) and all(
        want in (-1, have) for have, want in zip(shape, entry.shape, strict=True)
    )
    if not fits:
        raise BenchError(
            f"input '{entry.name}': got shape {_shown(shape)}, expected {_shown(entry.shape)} "
            f"(without the batch dimension)"
        )
    if -1 in shape:
        raise BenchError(
            f"input '{entry.name}' has a shape of any size, {_shown(shape)}: "
            f"say one with --shape {entry.name}:SIZES, such as --shape "
            f"{entry.name}:{','.join(str(16 if size == -1 else size) for size in shape)}"
        )
    return tuple(shape)


def _elements(
    entry: TensorFacts, shape: tuple[int, ...], inputs: Inputs, random: np.random.Generator
) -> bytes:
    count = prod(shape)
    if entry.datatype == "BYTES":
        if inputs.string is not None:
            texts = [inputs.string.encode()] * count
        elif inputs.source == "zero":
            texts = [b""] * count
        else:
            texts = [random.choice(_LETTERS, inputs.string_length).tobytes() for _ in range(count)]
        return packed(texts)
    dtype = DATATYPES[entry.datatype].numpy
    if inputs.source == "zero":
        return bytes(count * dtype.itemsize)
    if entry.datatype == "BF16":  # the upper half of an FP32
        return (random.random(count, np.float32).view("<u4") >> 16).astype(dtype).tobytes()
    if dtype.kind == "f":
        return random.random(count).astype(dtype).tobytes()
    if dtype.kind == "b":
        return random.integers(0, 2, count).astype(dtype).tobytes()
    most = int(np.iinfo(np.dtype(dtype.str)).max)
    return random.integers(0, most, count, np.dtype(dtype.str), endpoint=True).tobytes()


def _directory(folder: Path, inputs: Inputs, facts: ModelFacts) -> Step:
    """A file for each input, by its name: raw elements, or strings of which each has a line."""
    contents = []
    for entry in facts.inputs:
        path = folder / entry.name
        if not path.exists():
            if entry.is_optional:
                continue
            raise BenchError(f"input data '{folder}': no file '{entry.name}' for that input of the model")
        data = path.read_bytes()
        if entry.datatype == "BYTES":
            lines = data.decode(errors="surrogateescape").split("\n")
            texts = [line.encode(errors="surrogateescape") for line in (lines if lines[-1] else lines[:-1])]
            data, count = packed(texts), len(texts)
        else:
            count = len(data) // DATATYPES[entry.datatype].byte_size
        shape = _shape(entry, inputs)
        if count != prod(shape) or _partial(entry, data):
            raise BenchError(
                f"input data '{path}': got {count} elements in {len(path.read_bytes())} bytes, expected "
                f"{prod(shape)} of {entry.datatype} for shape {_shown(shape)}"
            )
        contents.append(Content(entry, shape, data))
    return Step(contents)


def _partial(entry: TensorFacts, data: bytes) -> bool:
    return entry.datatype != "BYTES" and bool(len(data) % DATATYPES[entry.datatype].byte_size)


def _file(path: Path, inputs: Inputs, facts: ModelFacts) -> list[Stream]:
    try:
        document = json.loads(path.read_bytes())
    except ValueError as error:
        raise BenchError(f"input data '{path}' is not JSON: {error}") from None
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, list) or not data:
        raise BenchError(f"input data '{path}': expected an object with a list 'data' of steps or streams")
    streams = _lists(data, path, "stream")
    wanted = _wanted(document, streams, path)
    read: list[Stream] = []
    for number, stream in enumerate(streams):
        where = f"input data '{path}', stream {number}, step "
        read.append(
            [
                _step(step, wanted[number][index], inputs, facts, f"{where}{index}")
                for index, step in enumerate(stream)
            ]
        )
    return read


def _lists(data: list[Any], path: Path, name: str) -> list[list[JsonObject]]:
    """Streams of objects; without lists in it, the list is one stream."""
    streams = data if isinstance(data[0], list) else [data]
    for number, stream in enumerate(streams):
        if not isinstance(stream, list) or not all(isinstance(step, dict) for step in stream) or not stream:
            raise BenchError(f"input data '{path}': {name} {number} is not a list of objects")
    return streams


def _wanted(document: JsonObject, streams: list[list[JsonObject]], path: Path) -> list[list[JsonObject]]:
    """What `validation_data` has for each step; empty objects where there is no such thing."""
    data = document.get("validation_data")
    if data is None:
        return [[{} for _ in stream] for stream in streams]
    if not isinstance(data, list) or not data:
        raise BenchError(f"input data '{path}': expected a list 'validation_data' of steps or streams")
    wanted = _lists(data, path, "'validation_data', stream")
    if [*map(len, wanted)] != [*map(len, streams)]:
        had, needed = (" and ".join(str(len(stream)) for stream in each) for each in (wanted, streams))
        raise BenchError(
            f"input data '{path}': 'validation_data' has {had} steps, 'data' {needed}: each needs one"
        )
    return wanted


def _step(step: JsonObject, wanted: JsonObject, inputs: Inputs, facts: ModelFacts, where: str) -> Step:
    contents = []
    for entry in facts.inputs:
        if entry.name not in step:
            if entry.is_optional:
                continue
            raise BenchError(f"{where}: input '{entry.name}' is missing")
        contents.append(_value(entry, step[entry.name], inputs, f"{where}, input '{entry.name}'"))
    known = {entry.name for entry in facts.inputs} | {"parameters"}
    if unknown := step.keys() - known:
        raise BenchError(
            f"{where}: '{min(unknown)}' is no input of model '{facts.name}', which has "
            f"{', '.join(entry.name for entry in facts.inputs)}"
        )
    parameters = step.get("parameters", {}) if all(e.name != "parameters" for e in facts.inputs) else {}
    outputs = {entry.name: entry for entry in facts.outputs}
    if unknown := wanted.keys() - outputs.keys():
        raise BenchError(
            f"{where}: '{min(unknown)}' in 'validation_data' is no output of model '{facts.name}', which has "
            f"{', '.join(outputs)}"
        )
    expected = [
        _value(outputs[name], value, Inputs(), f"{where}, output '{name}' of 'validation_data'")
        for name, value in wanted.items()
    ]
    return Step(contents, parameters, expected, where)


def _value(entry: TensorFacts, value: object, inputs: Inputs, where: str) -> Content:
    told = None
    content = value
    if isinstance(value, dict):
        if "shape" in value:
            told = tuple(int(size) for size in value["shape"])
        if "b64" in value:
            return _base64(entry, value["b64"], _shape(entry, inputs, told), where)
        if "content" not in value:
            raise BenchError(f"{where}: expected a list, or an object with 'content' or 'b64'")
        content = value["content"]
    elements = [*flat(content)]
    shape = told or inputs.shapes.get(entry.name) or entry.shape
    if -1 in shape and tuple(shape).count(-1) == 1:  # the number of elements tells it
        known = prod(size for size in shape if size != -1)
        if known and len(elements) % known == 0:
            shape = tuple(len(elements) // known if size == -1 else size for size in shape)
    shape = _shape(entry, inputs, tuple(shape))
    if len(elements) != prod(shape):
        raise BenchError(f"{where}: got {len(elements)} elements, expected {prod(shape)} for {_shown(shape)}")
    return Content(entry, shape, wire_of(entry, elements, where))


def _base64(entry: TensorFacts, text: object, shape: tuple[int, ...], where: str) -> Content:
    try:
        data = base64.b64decode(str(text), validate=True)
    except binascii.Error as error:
        raise BenchError(f"{where}: 'b64' cannot be decoded: {error}") from None
    if entry.datatype == "BYTES":
        # perf_analyzer wants the length before each element; one element alone may come without.
        if _element_count(data) == prod(shape):
            return Content(entry, shape, data)
        if prod(shape) != 1:
            raise BenchError(
                f"{where}: 'b64' has no {prod(shape)} elements, each with its length in four bytes "
                f"before it, for {_shown(shape)}"
            )
        return Content(entry, shape, packed([data]))
    expected = prod(shape) * DATATYPES[entry.datatype].byte_size
    if len(data) != expected:
        raise BenchError(f"{where}: got {len(data)} bytes, expected {expected} for {_shown(shape)}")
    return Content(entry, shape, data)


def _element_count(wire: bytes) -> int:
    """Elements of BYTES in the protocol's binary form; -1 if it is not that."""
    position = count = 0
    while position + 4 <= len(wire):
        position += 4 + int.from_bytes(wire[position : position + 4], "little")
        count += 1
    return count if position == len(wire) else -1


def _shown(shape: Sequence[int]) -> str:
    return f"[{','.join(map(str, shape))}]"
