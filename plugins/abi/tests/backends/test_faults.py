"""Mistakes of a backend that can be told: errors, and nothing that would end the process of these tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonpy.plugin import InferRequest, InferResponse, Internal, Tensor, TritonError, Unavailable
from tritonpy_abi.backends import open_backend
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import Answer, BackendDriver, DrivenModel

from ..conftest import Compiled

TENSOR = {"data_type": "TYPE_INT32", "dims": [-1]}
CONFIG = {
    "backend": "SharedBackend",
    "max_batch_size": 8,
    "input": [{"name": "INPUT0", **TENSOR}],
    "output": [{"name": "OUTPUT0", **TENSOR}],
}
DECOUPLED = {"model_transaction_policy": {"decoupled": True}}
GOOD = [[1, 2]]
ONES = [[0x01010101, 0x01010101]]


class Place:
    """Where models come from; those that stay loaded are so once."""

    def __init__(self, library: Path, root: Path) -> None:
        self._library = library
        self._root = root

    def load(self, fault: str = "", **more: Any) -> DrivenModel:
        parameters = {"FAULT": {"string_value": fault}}
        ModelRepository(self._root).model("m", {**CONFIG, "parameters": parameters, **more})
        return BackendDriver(open_backend(self._library), self._root).load("m")


@pytest.fixture
def place(library: Path, compiled: Compiled, tmp_path: Path) -> Place:
    return Place(compiled("backends/faulty.cc", "-pthread"), tmp_path)


@pytest.fixture(params=[False, True], ids=["once", "decoupled"])
def is_decoupled(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def model(place: Place, is_decoupled: bool) -> Iterator[DrivenModel]:
    with place.load(**DECOUPLED if is_decoupled else {}) as loaded:
        yield loaded


def request(do: str = "") -> InferRequest:
    tensor = Tensor.from_numpy("INPUT0", np.array(GOOD, np.int32))
    return InferRequest("m", {"INPUT0": tensor}, parameters={"do": do} if do else None)


def ask(model: DrivenModel, do: str = "") -> Answer:
    (answer,) = model.execute([request(do)])
    assert answer.final_count == 1
    return answer


def values(response: InferResponse) -> list[Any]:
    assert response.error is None
    return [output.numpy().tolist() for output in response.outputs]


REFUSED = {
    "no datatype": ("output 'OUTPUT0' has no datatype: 77", GOOD),
    "negative dims": ("output 'OUTPUT0' has a dimension of -1, and expected is 0 or more", GOOD),
    "two buffers": ("allocated buffer for output 'OUTPUT0' already exists", ONES),
    "too much memory": ("cannot allocate 18446744073709551615 bytes for output 'OUTPUT0'", ONES),
    "release twice": ("TRITONBACKEND_RequestRelease: the request is not being executed, or was rel", GOOD),
    "respond after release": ("TRITONBACKEND_ResponseNew: the request is not being executed, or was", GOOD),
}


def test_what_is_refused_to_a_backend_leaves_its_answer_as_it_is(model: DrivenModel) -> None:
    for do, (text, output) in REFUSED.items():
        response = ask(model, do).only

        assert values(response) == [output], do
        assert response.parameters["refused"].startswith(text), do


def test_a_buffer_that_is_not_its_shape_fails_its_request_with_the_models_name(model: DrivenModel) -> None:
    sizes = {
        "huge dims": (4, f"{4 * (2**63 - 1) ** 2} for INT32 of shape [{2**63 - 1}, {2**63 - 1}]"),
        "dims that overflow to nothing": (0, f"{2**66} for INT32 of shape [{2**32}, {2**32}]"),
        "too short": (7, "8 for INT32 of shape [1, 2]"),
        "too long": (9, "8 for INT32 of shape [1, 2]"),
        "no buffer": (0, "8 for INT32 of shape [1, 2]"),
    }
    for do, (got, expected) in sizes.items():
        error = ask(model, do).only.error

        text = f"model 'm': output 'OUTPUT0' has a buffer of {got} bytes, expected {expected}"
        assert isinstance(error, Internal), do
        assert error.message == f"[request id: <id_unknown>] {text}"


def test_outputs_that_are_not_configured_reach_the_server_as_they_are(model: DrivenModel) -> None:
    shapes = {
        "unknown output": ("NOT_CONFIGURED", "INT32", (1, 2)),
        "wrong datatype": ("OUTPUT0", "FP32", (1, 2)),
        "wrong rank": ("OUTPUT0", "INT32", (1, 2, 1)),
        "no rank": ("OUTPUT0", "INT32", ()),
        "wrong rows": ("OUTPUT0", "INT32", (2, 2)),
        "strings that lie": ("OUTPUT0", "BYTES", (1, 2)),
        "bad name": ("\ufffd\ufffd", "INT32", (1, 2)),
    }
    for do, shape in shapes.items():
        (output,) = ask(model, do).only.outputs
        assert (output.name, output.datatype, output.shape) == shape
    assert values(ask(model, "same output twice").only) == [GOOD, GOOD]
    assert ask(model, "no output").only.outputs == []
    parameters = ask(model, "bad parameters").only.parameters
    assert (parameters["\ufffd"], parameters[""]) == ("\ufffd", "")


def test_nothing_follows_what_was_final(model: DrivenModel) -> None:
    for do in ("response after final", "two finals", "unknown flags", "never releases", "leaks errors"):
        assert values(ask(model, do).only) == [GOOD]


def test_answers_that_are_not_one(model: DrivenModel, is_decoupled: bool) -> None:
    two, none = ask(model, "two responses").responses, ask(model, "final alone").responses

    if is_decoupled:
        assert [values(response) for response in two] == [[GOOD], [GOOD]]
        assert none == []
    else:
        texts = [str(response.error).partition("] ")[2] for response in (*two, *none)]
        assert texts == [
            "model 'm': expected a single response, got 2",
            "model 'm' is not decoupled, and its backend sent the final flag without a response",
        ]


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("error", "had no wish to"),
        ("exception", "TRITONBACKEND_{0} threw a C++ exception: thrown by {0}"),
        ("throw", "TRITONBACKEND_{0} threw a C++ exception that is no std::exception"),
        ("another version", "triton backend API version does not support this backend"),
    ],
)
@pytest.mark.parametrize("where", ["ModelInitialize", "ModelInstanceInitialize", "ModelInstanceExecute"])
def test_what_a_function_returns_or_throws_is_an_error(
    place: Place, where: str, fault: str, text: str
) -> None:
    with pytest.raises(TritonError) as failure, place.load(f"{where} {fault}") as model:
        ask(model)

    assert text.format(where) in failure.value.message


@pytest.mark.parametrize("where", ["ModelInstanceFinalize", "ModelFinalize"])
@pytest.mark.parametrize("fault", ["error", "exception", "throw"])
def test_what_goes_wrong_at_the_end_is_an_error_of_the_end(place: Place, where: str, fault: str) -> None:
    with pytest.raises(TritonError, match=where), place.load(f"{where} {fault}") as model:
        assert values(ask(model).only) == [GOOD]

    with place.load() as model:
        assert values(ask(model).only) == [GOOD]


def test_an_execution_that_fails_leaves_nothing_behind_and_hears_nothing_more(
    place: Place, model: DrivenModel, is_decoupled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    for do in ("answers and fails", "releases and fails"):
        with pytest.raises(Unavailable, match="fails all the same"):
            ask(model, do)
    with pytest.raises(Unavailable, match="haunted all the same"):
        ask(model, "haunts")

    assert values(ask(model).only) == [GOOD]
    model.close()  # the thread goes on

    with place.load(**DECOUPLED if is_decoupled else {}) as again:
        assert values(ask(again).only) == [GOOD]
    assert [line for line in caplog.records if line.levelno >= logging.ERROR] == []


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("no json", "has set a configuration that is no JSON: "),
        ("a number", "has set a configuration that is no JSON object"),
        ("half", "has set a configuration that is no JSON: "),
        ("nothing", "has set a configuration that is no JSON: "),
        ("deep", "has set a configuration that is no JSON"),
        ("wrong type", "max_batch_size"),
    ],
)
def test_a_configuration_that_is_none_is_refused(place: Place, config: str, words: str) -> None:
    with pytest.raises(TritonError) as failure, place.load(f"sets {config}"):
        pass

    assert words in failure.value.message


@pytest.mark.parametrize("config", ["bad bytes", "another name", "unknown field"])
def test_a_backend_sets_no_more_than_is_its_own(place: Place, config: str) -> None:
    with place.load(f"sets {config}") as model:
        assert model.config["name"] == "m"
        assert "no_such_field" not in model.config
