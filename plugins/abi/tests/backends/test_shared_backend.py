"""A backend in C, driven by its hooks: its threads, its errors, and what it must not do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonpy.plugin import (
    InferRequest,
    InferResponse,
    InvalidArg,
    NotFound,
    Tensor,
    TritonError,
    Unavailable,
)
from tritonpy_abi.backends import open_backend
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import Answer, BackendDriver, DrivenModel

from ..conftest import Compiled

INPUT = {"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}
OUTPUT = {"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}
BATCHING = {"max_batch_size": 8, "input": [INPUT], "output": [OUTPUT]}
DECOUPLED = {
    "input": [INPUT],
    "output": [OUTPUT],
    "model_transaction_policy": {"decoupled": True},
}
TEXTS = {
    "input": [{**INPUT, "data_type": "TYPE_STRING"}],
    "output": [{**OUTPUT, "data_type": "TYPE_STRING"}],
}
MODELS: dict[str, dict[str, Any]] = {
    "copies": {**BATCHING, "instance_group": [{"count": 2, "kind": "KIND_CPU"}]},
    "pairs": {
        **BATCHING,
        "input": [INPUT, {**INPUT, "name": "INPUT1"}],
        "output": [OUTPUT, {**OUTPUT, "name": "OUTPUT1"}],
    },
    "counts": DECOUPLED,
    "texts": TEXTS,
    "empty": {},
    "refused": {**BATCHING, "parameters": {"why": {"string_value": "refuse model"}}},
}


@pytest.fixture
def copying(library: Path, compiled: Compiled) -> Path:
    return compiled("backends/copying.c", "-pthread")


@pytest.fixture
def driver(copying: Path, tmp_path: Path) -> BackendDriver:
    repository = ModelRepository(tmp_path)
    for name, config in MODELS.items():
        repository.model(name, {"backend": "SharedBackend", **config})
    return BackendDriver(open_backend(copying), tmp_path)


@pytest.fixture
def copies(driver: BackendDriver) -> Iterator[DrivenModel]:
    with driver.load("copies") as model:
        yield model


def request(*numbers: int, do: str = "", **attributes: Any) -> InferRequest:
    array = np.array([numbers], np.int32)
    tensor = Tensor.from_numpy("INPUT0", array)
    return InferRequest("copies", {"INPUT0": tensor}, parameters={"do": do} if do else None, **attributes)


def numbers(answer: Answer) -> list[Any]:
    (response,) = answer.responses
    assert response.error is None
    (output,) = response.outputs
    assert output.name == "OUTPUT0"
    return output.numpy().tolist()


def failure(answer: Answer) -> TritonError:
    (response,) = answer.responses
    assert response.error is not None
    assert response.outputs == []
    return response.error


def test_a_batch_is_answered_in_its_order(copies: DrivenModel) -> None:
    answers = copies.execute([request(1, 2), request(3), request(4, 5, 6)])

    assert [numbers(answer) for answer in answers] == [[[1, 2]], [[3]], [[4, 5, 6]]]


def test_outputs_of_all_sizes_come_back_beside_errors_and_parameters(driver: BackendDriver) -> None:
    def pair(first: int, second: int, do: str = "") -> InferRequest:
        inputs = {
            name: Tensor.from_numpy(name, np.arange(size, dtype=np.int32).reshape(1, size))
            for name, size in (("INPUT0", first), ("INPUT1", second))
        }
        return InferRequest("pairs", inputs, parameters={"do": do} if do else None)

    with driver.load("pairs") as model:
        answers = model.execute(
            [pair(3, 70_000), pair(4096, 4097), pair(1, 1, "error"), pair(0, 2), pair(70_000, 5, "describe")]
        )

    outputs = [answer.responses[0].outputs for answer in answers]
    assert [[output.name for output in each] for each in outputs] == [
        ["OUTPUT0", "OUTPUT1"] if index != 2 else [] for index in range(5)
    ]
    sizes = [[output.shape for output in each] for each in outputs]
    assert sizes[0] + sizes[1] == [(1, 3), (1, 70_000), (1, 4096), (1, 4097)]
    assert sizes[3] + sizes[4] == [(1, 0), (1, 2), (1, 70_000), (1, 5)]
    for output in (output for each in outputs for output in each):
        np.testing.assert_array_equal(output.numpy(), [np.arange(output.shape[1])])


def test_more_shapes_than_are_remembered(copies: DrivenModel) -> None:
    for size in (*range(1, 1100), 1, 2):
        (answer,) = copies.execute([request(*range(size))])
        assert numbers(answer) == [list(range(size))]


def test_each_instance_has_a_state_of_its_own(copies: DrivenModel) -> None:
    parameters = [
        copies.execute([request(1, do="describe")], index)[0].responses[0].parameters for index in (0, 1)
    ]

    assert [each["instance"] for each in parameters] == ["copies_0_0", "copies_0_1"]
    assert {name: value for name, value in parameters[0].items() if name != "instance"} == {
        "whole": -(2**40),
        "truth": True,
        "part": 0.5,
    }
    assert type(parameters[0]["truth"]) is bool


def test_an_error_reaches_the_request_it_was_sent_for(copies: DrivenModel) -> None:
    first, second = copies.execute([request(1, do="error"), request(2)])

    assert failure(first).described() == "Not found: the request was told to fail"
    assert numbers(second) == [[2]]


def test_an_error_of_execute_is_that_of_the_batch(copies: DrivenModel) -> None:
    with pytest.raises(Unavailable, match="the batch was told to fail"):
        copies.execute([request(1), request(2, do="refuse")])

    assert numbers(copies.execute([request(3)])[0]) == [[3]]


def test_threads_of_the_backend_answer_after_execute_has_returned(copies: DrivenModel) -> None:
    answers = copies.execute([request(1, do="later"), request(2), request(3, do="later")])

    assert [numbers(answer) for answer in answers] == [[[1]], [[2]], [[3]]]


def test_a_request_that_is_forgotten_is_answered_all_the_same(copies: DrivenModel) -> None:
    forgotten = request(1, do="forget")
    answers: list[InferResponse | None] = []

    class Outbox:
        def post(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
            answers.append(response)

    forgotten.ticket.outbox = Outbox()
    instance = copies.instances[0]
    returned = instance.model.state.execute(instance, [forgotten])
    del forgotten

    assert returned is None
    (answer,) = answers
    assert answer is not None
    assert answer.error is not None
    assert "dropped the request without a final response" in answer.error.message


def test_a_buffer_of_the_wrong_size_fails_its_request(copies: DrivenModel) -> None:
    (answer,) = copies.execute([request(1, 2, do="shorten")])

    assert failure(answer).message == (
        "[request id: <id_unknown>] model 'copies': output 'OUTPUT0' has a buffer of 7 bytes, expected 8 for "
        "INT32 of shape [1, 2]"
    )


def test_nothing_follows_the_final_response(copies: DrivenModel) -> None:
    assert numbers(copies.execute([request(7, do="twice")])[0]) == [[7]]


def test_no_output_is_made_that_nobody_asks_for(copies: DrivenModel) -> None:
    (answer,) = copies.execute([request(1, requested_outputs=())])

    assert answer.responses[0].outputs == []


def test_times_of_the_execution_are_those_that_the_backend_reports(copies: DrivenModel) -> None:
    copies.execute([request(1)])

    instance = copies.instances[0]
    assert instance.compute_start_ns > 0
    assert instance.compute_end_ns - instance.compute_start_ns == 1


@pytest.mark.parametrize("number", [0, 1, 1000])
def test_a_decoupled_model_answers_as_often_as_its_backend_does(driver: BackendDriver, number: int) -> None:
    with driver.load("counts") as model:
        asked = InferRequest("counts", {"INPUT0": Tensor.from_numpy("INPUT0", np.array([number], np.int32))})
        (answer,) = model.execute([asked])

    assert [response.outputs[0].numpy().tolist() for response in answer.responses] == [
        [index] for index in range(number)
    ]
    assert answer.final_count == 1


def test_strings_pass_in_their_wire_form(driver: BackendDriver) -> None:
    texts = np.array([b"", "é".encode(), b"a\0b"], object)
    with driver.load("texts") as model:
        (answer,) = model.execute([InferRequest("texts", {"INPUT0": Tensor.from_numpy("INPUT0", texts)})])

    assert numbers(answer) == texts.tolist()


def test_the_backend_completes_the_configuration_as_it_initialises_the_model(driver: BackendDriver) -> None:
    with driver.load("empty") as model:
        assert [tensor["name"] for tensor in model.config["input"]] == ["INPUT0"]
        asked = InferRequest("empty", {"INPUT0": Tensor.from_numpy("INPUT0", np.array([5], np.int32))})
        assert numbers(model.execute([asked])[0]) == [5]


def test_a_model_that_the_backend_refuses_fails_with_its_words(driver: BackendDriver) -> None:
    with pytest.raises(InvalidArg, match=r"^the model was told to refuse$"), driver.load("refused"):
        pass


def test_a_backend_that_refuses_fails_its_models(copying: Path, tmp_path: Path) -> None:
    ModelRepository(tmp_path).model("copies", {"backend": "SharedBackend", **BATCHING})
    driver = BackendDriver(open_backend(copying), tmp_path, {"refuse": "backend"})

    with pytest.raises(Unavailable, match=r"^the backend was told to refuse$"), driver.load("copies"):
        pass


def test_a_backend_may_be_given_as_the_path_of_its_library(copying: Path, tmp_path: Path) -> None:
    ModelRepository(tmp_path).model("copies", {"backend": copying.stem, **BATCHING})

    with BackendDriver(copying, tmp_path).load("copies") as model:
        assert numbers(model.execute([request(1)])[0]) == [[1]]


def test_a_library_without_execute_is_no_backend(library: Path, compiled: Compiled, tmp_path: Path) -> None:
    ModelRepository(tmp_path).model("copies", {"backend": "SharedBackend", **BATCHING})
    driver = BackendDriver(open_backend(compiled("strategies/volume.c")), tmp_path)

    with (
        pytest.raises(NotFound, match="required entrypoint 'TRITONBACKEND_ModelInstanceExecute' in shared"),
        driver.load("copies"),
    ):
        pass
