"""What warmup samples are made of, and what is said of those that do not fit."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonpy.datatypes import DATATYPES
from tritonpy.errors import Internal, InvalidArg, TritonError
from tritonpy.model.execution import Execution
from tritonpy.model.signature import Signature
from tritonpy.model.warmup import Warmup, WarmupSample, read_warmup
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.stats import ModelStats

FP32 = {"data_type": "TYPE_FP32", "dims": [2]}


def read(
    directory: Path,
    *samples: dict[str, Any],
    max_batch_size: int = 8,
    inputs: list[dict[str, Any]] | None = None,
) -> tuple[WarmupSample, ...]:
    config = {
        "name": "m",
        "max_batch_size": max_batch_size,
        "input": inputs or [{"name": "X", **FP32}],
        "model_warmup": list(samples),
    }
    return read_warmup(config, Signature(config), directory)


def sample(batch_size: int = 1, **inputs: dict[str, Any]) -> dict[str, Any]:
    return {"name": "s", "batch_size": batch_size, "inputs": inputs}


def strings(*texts: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


@pytest.mark.parametrize("kind", ["zero_data", "random_data"])
@pytest.mark.parametrize("datatype", DATATYPES.values(), ids=lambda datatype: datatype.name)
def test_every_datatype_has_zeros_and_random_data_of_its_size(
    tmp_path: Path, datatype: Any, kind: str
) -> None:
    tensor = {"data_type": datatype.config_name, "dims": [64, 2]}
    (made,) = read(tmp_path, sample(X={**tensor, kind: True}), inputs=[{"name": "X", **tensor}])

    array = made.inputs["X"].numpy()
    assert made.inputs["X"].shape == array.shape == (1, 64, 2)
    assert array.dtype == datatype.numpy
    if datatype.name == "BYTES":
        assert set(array.flat) == {b""}  # Triton has no random strings either
    elif kind == "zero_data":
        assert not array.any()
    else:
        assert len(np.unique(array)) > 1
        if array.dtype.kind == "f":
            assert np.abs(array).max() <= 1


@pytest.mark.parametrize("kind", ["zero_data", "random_data"])
def test_data_that_is_said_not_to_be_zero_or_random_is_so_as_in_triton(tmp_path: Path, kind: str) -> None:
    (made,) = read(tmp_path, sample(X={**FP32, kind: False}))
    assert made.inputs["X"].numpy().any() == (kind == "random_data")


def test_a_model_that_does_not_batch_has_inputs_without_a_batch_dimension(tmp_path: Path) -> None:
    (made,) = read(tmp_path, sample(X={**FP32, "zero_data": True}), max_batch_size=0)
    assert made.inputs["X"].shape == (2,)


def test_a_count_of_none_is_one_and_a_batch_of_none_is_no_sample(tmp_path: Path) -> None:
    given = sample(3, X={**FP32, "zero_data": True})
    once, often = read(tmp_path, given, {**given, "batch_size": 0}, {**given, "count": 5})
    assert (once.count, once.batch_size, often.count) == (1, 3, 5)


def test_files_have_the_bytes_of_one_request(tmp_path: Path) -> None:
    (tmp_path / "warmup" / "below").mkdir(parents=True)
    array = np.array([1.5, -2], np.float32)
    (tmp_path / "warmup" / "x").write_bytes(array.tobytes() + b"what follows is not read")
    (tmp_path / "warmup" / "below" / "s").write_bytes(strings(b"hello", b""))
    (made,) = read(
        tmp_path,
        sample(
            X={**FP32, "input_data_file": "x"},
            S={"data_type": "TYPE_STRING", "dims": [2], "input_data_file": "below/s"},
        ),
        inputs=[{"name": "X", **FP32}, {"name": "S", "data_type": "TYPE_STRING", "dims": [-1]}],
    )

    assert made.inputs["X"].numpy().tolist() == [[1.5, -2]]
    assert made.inputs["S"].numpy().tolist() == [[b"hello", b""]]


def test_inputs_that_the_configuration_does_not_have_are_given_as_they_are(tmp_path: Path) -> None:
    """They are what a sequence batcher would add."""
    start = {"data_type": "TYPE_INT32", "dims": [1], "zero_data": True}
    (made,) = read(tmp_path, sample(X={**FP32, "zero_data": True}, START=start))
    assert made.inputs["START"].numpy().tolist() == [[0]]


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({}, InvalidArg, "[request id: <id_unknown>] expected 1 inputs but got 0 inputs for model 'm'."),
        (
            {"X": {**FP32, "data_type": "TYPE_INT32", "zero_data": True}},
            InvalidArg,
            "[request id: <id_unknown>] inference input 'X' data-type is 'INT32', but model 'm' expects "
            "'FP32'",
        ),
        (
            {"X": {**FP32, "data_type": "TYPE_INVALID", "zero_data": True}},
            InvalidArg,
            "[request id: <id_unknown>] inference input 'X' data-type is '<invalid>', but model 'm' expects "
            "'FP32'",
        ),
        (
            {"X": {**FP32, "dims": [3], "zero_data": True}},
            InvalidArg,
            "[request id: <id_unknown>] unexpected shape for input 'X' for model 'm'. Expected [-1,2], got "
            "[1,3].",
        ),
        (
            {"X": {**FP32, "dims": [2**62, 2**40], "zero_data": True}},
            InvalidArg,
            "warmup setting expects input 'X' to fit into memory",
        ),
        (
            {"X": {**FP32, "input_data_file": "short"}},
            InvalidArg,
            "[request id: <id_unknown>] warmup setting expects 8 bytes, but the data provided from short "
            "only has 5 bytes",
        ),
        ({"X": {**FP32, "input_data_file": "none"}}, Internal, "failed to open text file for read "),
        ({"X": {**FP32, "input_data_file": "dir"}}, Internal, "failed to open text file for read "),
    ],
)
def test_a_sample_that_does_not_fit_is_refused_in_tritons_words(
    tmp_path: Path, given: dict[str, Any], error: type[TritonError], text: str
) -> None:
    (tmp_path / "warmup" / "dir").mkdir(parents=True)
    (tmp_path / "warmup" / "short").write_bytes(b"12345")
    with pytest.raises(error) as refusal:
        read(tmp_path, sample(**given))
    assert str(refusal.value).startswith(text)


def test_strings_in_a_file_are_as_many_as_the_dimensions_say(tmp_path: Path) -> None:
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "s").write_bytes(strings(b"a", b"b"))
    tensor = {"data_type": "TYPE_STRING", "dims": [1]}
    with pytest.raises(InvalidArg, match="unexpected number of string elements 2 for inference input 'S'"):
        read(tmp_path, sample(S={**tensor, "input_data_file": "s"}), inputs=[{"name": "S", **tensor}])


@pytest.mark.parametrize("name", ["../1/model.py", "/etc/passwd", "a/../../b", "", ".", "a\0b"])
def test_files_outside_of_the_warmup_directory_are_not_opened(tmp_path: Path, name: str) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.py").write_bytes(b"12345678")
    with pytest.raises(InvalidArg, match="expects 'input_data_file' to name a file below"):
        read(tmp_path, sample(X={**FP32, "input_data_file": name}))


# Running them.


class FakeInstance:
    """Answers each batch at once, with what `answer` makes of each request."""

    name = "m_0"

    def __init__(self, answer: Any) -> None:
        self.batches: list[list[InferRequest]] = []
        self._answer = answer

    def submit(self, execution: Execution) -> None:
        self.batches.append(list(execution.requests))
        execution.finish((1, 2, 3, 4), [self._answer(request) for request in execution.requests])


def warmup(samples: tuple[WarmupSample, ...], stats: ModelStats | None = None) -> Warmup:
    return Warmup(samples, "m", "3", 8, stats or ModelStats())


async def test_samples_run_in_their_order_as_batches_of_equal_requests_and_are_counted(
    tmp_path: Path,
) -> None:
    x = {**FP32, "zero_data": True}
    samples = read(tmp_path, {**sample(3, X=x), "count": 2}, sample(1, X=x))
    instance: Any = FakeInstance(lambda request: InferResponse())
    stats = ModelStats()

    await warmup(samples, stats).run(instance)

    assert [len(batch) for batch in instance.batches] == [3, 3, 1]
    assert (stats.inference_count, stats.execution_count, stats.success_count) == (7, 3, 7)
    assert {size: batch.count for size, batch in stats.batch_stats.items()} == {3: 2, 1: 1}
    first = instance.batches[0][0]
    assert (first.model_name, first.model_version, first.id, first.batch_size) == ("m", "3", "", 1)


async def test_what_fails_is_told_once_and_nothing_runs_after_it(tmp_path: Path) -> None:
    x = {**FP32, "zero_data": True}
    samples = read(tmp_path, {**sample(2, X=x), "count": 3}, sample(1, X=x))
    instance: Any = FakeInstance(lambda request: InferResponse(error=Internal("no thanks")))

    with pytest.raises(InvalidArg, match=r"^failed to run warmup sample 's': no thanks$"):
        await warmup(samples).run(instance)

    assert len(instance.batches) == 1


async def test_a_batch_that_the_model_does_not_take_is_not_tried(tmp_path: Path) -> None:
    samples = read(tmp_path, sample(9, X={**FP32, "zero_data": True}))
    instance: Any = FakeInstance(lambda request: InferResponse())

    with pytest.raises(InvalidArg, match=r"'s': batch size 9 for 'm_0', max allowed is 8$"):
        await warmup(samples).run(instance)
    assert not instance.batches


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    """A pipe would hold the load up for ever, and a device never ends."""
    warmup = tmp_path / "warmup"
    warmup.mkdir()
    (warmup / "device").symlink_to("/dev/zero")
    os.mkfifo(warmup / "pipe")
    pipe = os.open(warmup / "pipe", os.O_RDWR)
    try:
        os.write(pipe, bytes(8))
        for name in ("device", "pipe"):
            with pytest.raises(Internal, match="it is no regular file"):
                read(tmp_path, sample(X={**FP32, "input_data_file": name}))
    finally:
        os.close(pipe)
