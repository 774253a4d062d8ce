"""Backends in C++ that are written by `backend.hpp`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonpy.plugin import DATATYPES, InferRequest, InferResponse, InvalidArg, Tensor, TritonError
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import BackendDriver, DrivenModel

from .. import clang
from ..conftest import Compiled

WARNINGS = ("-std=c++17", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror")
TYPES = ("UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP32", "FP64")


@pytest.fixture
def driver(library: Path, compiled: Compiled, tmp_path: Path) -> BackendDriver:
    repository = ModelRepository(tmp_path)
    repository.model("empty", {"backend": "typed", "dynamic_batching": {"max_queue_delay_microseconds": 7}})
    for datatype in DATATYPES:
        tensor = {"data_type": f"TYPE_{'STRING' if datatype == 'BYTES' else datatype}", "dims": [-1]}
        repository.model(
            datatype.lower(),
            {
                "backend": "typed",
                "input": [{"name": "IN", **tensor}],
                "output": [{"name": "OUT", **tensor}],
            },
        )
    return BackendDriver(compiled("backends/typed.cc", *WARNINGS), tmp_path)


def ask(driver: BackendDriver, tensor: Tensor, do: str) -> InferResponse:
    with driver.load(tensor.datatype.lower()) as model:
        return ask_model(model, tensor, do)


def ask_model(model: DrivenModel, tensor: Tensor, do: str) -> InferResponse:
    (answer,) = model.execute([InferRequest(model.handle.name, {"IN": tensor}, parameters={"do": do})])
    return answer.only


def values(response: InferResponse) -> Any:
    assert response.error is None
    (output,) = response.outputs
    return output.numpy().tolist()


def failure(response: InferResponse) -> TritonError:
    assert response.error is not None
    return response.error


@pytest.mark.parametrize("datatype", TYPES)
def test_numbers_have_the_type_of_their_datatype_and_no_other(driver: BackendDriver, datatype: str) -> None:
    array = np.array([0, 1, 77], datatype.lower().replace("fp", "float"))

    with driver.load(datatype.lower()) as model:
        for count in (0, 3):
            tensor = Tensor.from_numpy("IN", array[:count])
            assert values(ask_model(model, tensor, datatype)) == array[:count].tolist()
        refusals = {
            failure(ask_model(model, tensor, other)).described() for other in TYPES if other != datatype
        }

    assert refusals == {f"Invalid argument: input 'IN' ({datatype}) has another datatype than expected"}


def test_texts_lose_nothing(driver: BackendDriver) -> None:
    texts = [b"", "é".encode(), b"a\0b", b"x" * 1000]
    tensor = Tensor.from_numpy("IN", np.array(texts, object))

    assert values(ask(driver, tensor, "texts")) == texts


@pytest.mark.parametrize("wire", [b"\3\0\0\0ab", b"\0\0", b"\0\0\0\0\xff\xff\xff\xffa"])
def test_texts_that_end_inside_an_element_are_refused(driver: BackendDriver, wire: bytes) -> None:
    tensor = Tensor("IN", "BYTES", [1], wire)

    refused = failure(ask(driver, tensor, "texts"))

    assert refused.described() == "Invalid argument: input 'IN' (BYTES) ends inside an element"


def test_what_has_no_type_is_passed_as_bytes(driver: BackendDriver) -> None:
    tensor = Tensor.from_numpy("IN", np.array([True, False]))

    assert values(ask(driver, tensor, "bytes")) == [True, False]


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("an error", "Not found: it is not there"),
        ("an exception", "Internal: something else"),
        ("a number", "Internal: an exception of an unknown type"),
    ],
)
def test_what_is_thrown_is_the_error_of_its_request(driver: BackendDriver, what: str, text: str) -> None:
    tensor = Tensor.from_numpy("IN", np.array([1], np.int32))

    assert failure(ask(driver, tensor, f"throw {what}")).described() == text


def test_an_input_that_is_not_there_is_the_error_of_its_request(driver: BackendDriver) -> None:
    with driver.load("int32") as model:
        (answer,) = model.execute([InferRequest("int32", {})])

    assert isinstance(failure(answer.only), InvalidArg)


def test_the_state_of_a_model_reaches_its_instances(driver: BackendDriver, tmp_path: Path) -> None:
    tensor = Tensor.from_numpy("IN", np.array([b"x"], object))

    assert values(ask(driver, tensor, "where")) == [str(tmp_path / "bytes/1").encode()]


def test_a_configuration_that_names_no_inputs_is_completed(driver: BackendDriver) -> None:
    with driver.load("empty") as model:
        assert model.config["max_batch_size"] == 8
        assert model.config["dynamic_batching"]["max_queue_delay_microseconds"] == 7
    with driver.load("fp32") as model:
        assert (model.config["max_batch_size"], model.config["input"][0]["data_type"]) == (0, "TYPE_FP32")


@pytest.mark.toolchain
def test_clang_has_nothing_to_say(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", clang.find())

    compiled("backends/typed.cc", *WARNINGS, "-DBY_CLANG")
