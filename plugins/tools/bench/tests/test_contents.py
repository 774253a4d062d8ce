"""Contents of inputs: made up, from directories and from JSON."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from tritonpy.datatypes import DATATYPES
from tritonpy.tensor import Tensor
from tritonpy_bench import BenchError, Inputs, Load
from tritonpy_bench.contents import Step, join_rows, read_streams
from tritonpy_bench.requests import prepare
from tritonpy_bench.target import ModelFacts, TensorFacts


def facts(*inputs: TensorFacts, max_batch_size: int = 8) -> ModelFacts:
    return ModelFacts("m", "1", inputs, (), max_batch_size, False, False)


def values(step: Step) -> dict[str, list[object]]:
    tensors, _ = join_rows([step], facts())
    return {tensor.name: tensor.numpy()[0].tolist() for tensor in tensors}


NUMBERS = TensorFacts("NUMBERS", "INT32", (2,))
TEXTS = TensorFacts("TEXTS", "BYTES", (-1,))
LENGTHS = b"\2\0\0\0ab\1\0\0\0c"
EXTRA = TensorFacts("EXTRA", "FP32", (1,), is_optional=True)


def read(tmp_path: Path, document: object, *inputs: TensorFacts) -> list[list[dict[str, list[object]]]]:
    path = tmp_path / "data.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return [[values(step) for step in stream] for stream in read_streams(Inputs(path), facts(*inputs))]


@pytest.mark.parametrize("datatype", DATATYPES)
@pytest.mark.parametrize("source", ["random", "zero"])
def test_contents_of_each_datatype_are_made_up(datatype: str, source: str) -> None:
    entry = TensorFacts("X", datatype, (3, -1))

    [[step]] = read_streams(Inputs(source, {"X": (3, 2)}, string_length=5), facts(entry))

    [content] = step.contents
    array = Tensor("X", datatype, content.shape, content.wire).numpy()
    assert array.shape == (3, 2)
    if source == "zero":
        assert not any(array.reshape(-1))
    elif datatype == "BYTES":
        assert all(len(text) == 5 for text in array.reshape(-1))
        assert len({*array.reshape(-1)}) == 6
    elif datatype != "BOOL":
        assert len({*array.reshape(-1).tolist()}) > 1


def test_made_up_contents_are_the_same_for_a_seed_and_leave_out_optional_inputs() -> None:
    one, same, other = (read_streams(Inputs(seed=seed), facts(NUMBERS, EXTRA))[0][0] for seed in (1, 1, 2))

    assert one == same != other
    assert [content.facts.name for content in one.contents] == ["NUMBERS"]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ({"NUMBERS": [1, 2], "TEXTS": ["a", "bc"]}, {"NUMBERS": [1, 2], "TEXTS": [b"a", b"bc"]}),
        ({"NUMBERS": [[1], [2]], "TEXTS": "é"}, {"NUMBERS": [1, 2], "TEXTS": ["é".encode()]}),
        (
            {"NUMBERS": {"content": [3, 4]}, "TEXTS": {"content": ["a", "b"], "shape": [2]}, "EXTRA": [0.5]},
            {"NUMBERS": [3, 4], "TEXTS": [b"a", b"b"], "EXTRA": [0.5]},
        ),
        (
            {
                "NUMBERS": {"b64": base64.b64encode(np.array([5, 6], "<i4").tobytes()).decode()},
                "TEXTS": {"b64": base64.b64encode(b"\xff\0").decode(), "shape": [1]},
            },
            {"NUMBERS": [5, 6], "TEXTS": [b"\xff\0"]},
        ),
        (
            {"NUMBERS": [1, 2], "TEXTS": {"b64": base64.b64encode(LENGTHS).decode(), "shape": [2]}},
            {"NUMBERS": [1, 2], "TEXTS": [b"ab", b"c"]},
        ),
    ],
)
def test_steps_of_json(tmp_path: Path, step: object, expected: object) -> None:
    assert read(tmp_path, {"data": [step]}, NUMBERS, TEXTS, EXTRA) == [[expected]]


def test_elements_in_base64_have_their_lengths_before_them(tmp_path: Path) -> None:
    step = {"TEXTS": {"b64": base64.b64encode(b"abc").decode(), "shape": [2]}}

    with pytest.raises(
        BenchError, match="'b64' has no 2 elements, each with its length in four bytes before it"
    ):
        read(tmp_path, {"data": [step]}, TEXTS)


def test_json_has_steps_or_streams_of_steps(tmp_path: Path) -> None:
    one, two, three = ({"NUMBERS": [number, number]} for number in range(3))

    assert read(tmp_path, {"data": [one, two]}, NUMBERS) == [[one, two]]
    assert read(tmp_path, {"data": [[one, two], [three]]}, NUMBERS) == [[one, two], [three]]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("{", "data.json' is not JSON"),
        ([], "expected an object with a list 'data'"),
        ({"data": []}, "expected an object with a list 'data'"),
        ({"data": [[1]]}, "stream 0 is not a list of objects"),
        ({"data": [{}]}, "stream 0, step 0: input 'NUMBERS' is missing"),
        (
            {"data": [{"NUMBERS": [1, 2]}, {"NUMBERS": [1]}]},
            r"step 1, input 'NUMBERS': got 1 elements, expected 2",
        ),
        ({"data": [{"NUMBERS": [1, 2], "X": [1]}]}, "'X' is no input of model 'm', which has NUMBERS"),
        ({"data": [{"NUMBERS": [1, 2.5]}]}, "expected INT32"),
        ({"data": [{"NUMBERS": ["a", "b"]}]}, "expected INT32"),
        ({"data": [{"NUMBERS": {"content": [1, 2, 3], "shape": [3]}}]}, r"got shape \[3\], expected \[2\]"),
        ({"data": [{"NUMBERS": {}}]}, "expected a list, or an object with 'content' or 'b64'"),
        ({"data": [{"NUMBERS": {"b64": "AAAA"}}]}, "got 3 bytes, expected 8"),
        ({"data": [{"NUMBERS": {"b64": "?"}}]}, "'b64' cannot be decoded"),
    ],
    ids=str,
)
def test_json_that_does_not_fit_is_refused(tmp_path: Path, document: object, words: str) -> None:
    with pytest.raises(BenchError, match=words):
        read(tmp_path, document, NUMBERS)


def test_a_directory_has_a_file_for_each_input(tmp_path: Path) -> None:
    (tmp_path / "NUMBERS").write_bytes(np.array([7, 8], "<i4").tobytes())
    (tmp_path / "TEXTS").write_text("one\ntwo\n")

    [[step]] = read_streams(Inputs(tmp_path, {"TEXTS": (2,)}), facts(NUMBERS, TEXTS, EXTRA))

    assert values(step) == {"NUMBERS": [7, 8], "TEXTS": [b"one", b"two"]}


def test_several_sources_are_several_streams(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "NUMBERS").write_bytes(bytes(8))

    assert len(read_streams(Inputs((tmp_path / "one", tmp_path / "two")), facts(NUMBERS))) == 2


@pytest.mark.parametrize(
    ("data", "words"), [(b"123", "got 0 elements in 3 bytes, expected 2"), (None, "no file 'NUMBERS'")]
)
def test_directories_that_do_not_fit_are_refused(tmp_path: Path, data: bytes | None, words: str) -> None:
    if data is not None:
        (tmp_path / "NUMBERS").write_bytes(data)

    with pytest.raises(BenchError, match=words):
        read_streams(Inputs(tmp_path), facts(NUMBERS))


def test_a_path_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"absent': No such file"):
        read_streams(Inputs(tmp_path / "absent"), facts(NUMBERS))


@pytest.mark.parametrize(("rows", "size", "count"), [(1, 1, 1), (3, 1, 3), (3, 2, 3), (4, 2, 2), (2, 4, 1)])
def test_rows_are_sent_in_their_order_until_they_begin_again(
    tmp_path: Path, rows: int, size: int, count: int
) -> None:
    path = tmp_path / "data.json"
    path.write_text(json.dumps({"data": [{"NUMBERS": [number, number]} for number in range(rows)]}))
    model = facts(NUMBERS)

    requests = prepare(Load(model="m", batch_size=size), model, read_streams(Inputs(path), model))

    sent = [np.frombuffer(request.plain()[-8 * size :], "<i4")[::2].tolist() for request in requests]
    assert len(requests) == count
    assert [row for request in sent for row in request] == [number % rows for number in range(count * size)]


def test_rows_of_one_request_must_have_one_shape(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_text(json.dumps({"data": [{"TEXTS": ["a"]}, {"TEXTS": ["a", "b"]}]}))
    model = facts(TEXTS)

    with pytest.raises(BenchError, match="rows of one request need the same inputs and shapes"):
        prepare(Load(model="m", batch_size=2), model, read_streams(Inputs(path), model))


def test_parameters_of_a_step_are_those_of_its_request(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_text(json.dumps({"data": [{"NUMBERS": [1, 2], "parameters": {"depth": 3}}]}))
    model = facts(NUMBERS)

    [request] = prepare(Load(model="m"), model, read_streams(Inputs(path), model))

    assert b'"depth":3' in request.plain()
