"""The backend c-xyz: the rules of all backends, without a server and in one, and what it answers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import build_backend
import numpy as np
import pytest
from tritonpy.plugin import InferRequest, InferResponse, InvalidArg, Tensor
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import BackendConformance, BackendDriver, DrivenModel
from tritonpy_sdk.testing.served import ServedBackendConformance

FOLDER = tempfile.TemporaryDirectory(prefix="tritonpy-backend-c-xyz-")
LIBRARY = build_backend.build(Path(FOLDER.name))
MODELS = build_backend.ROOT / "models"


class TestConformance(BackendConformance, backend=LIBRARY, models=MODELS): ...


class TestServed(ServedBackendConformance, backend=LIBRARY, models=MODELS): ...


@pytest.fixture
def fruit() -> Iterator[DrivenModel]:
    with BackendDriver(LIBRARY, MODELS).load("fruit") as model:
        yield model


def ask(*texts: str, **parameters: bool | str) -> InferRequest:
    array = np.array([[text.encode()] for text in texts], object)
    return InferRequest("fruit", {"TEXT": Tensor.from_numpy("TEXT", array)}, parameters=parameters)


def values(response: InferResponse) -> list[object]:
    assert response.error is None
    return [output.numpy().tolist() for output in response.outputs]


def test_words_are_counted_for_each_text_of_each_request(fruit: DrivenModel) -> None:
    first, second = fruit.execute([ask("Apple pear apple", "nothing"), ask("plum\nplums")])

    assert values(first.only) == [[[2, 1, 0], [0, 0, 0]], [[b"apple"], [b""]]]
    assert values(second.only) == [[[0, 0, 1]], [[b"plum"]]]
    assert first.only.parameters == {"total": 3}


def test_a_request_may_say_otherwise_than_the_model(fruit: DrivenModel) -> None:
    (answer,) = fruit.execute([ask("Apple pear", ignore_case=False)])

    assert values(answer.only)[0] == [[0, 1, 0]]


def test_a_wrong_parameter_fails_its_own_request(fruit: DrivenModel) -> None:
    wrong, right = fruit.execute([ask("pear", ignore_case="maybe"), ask("pear")])

    assert wrong.only.error is not None
    assert wrong.only.error.described() == "Invalid argument: ignore_case: expected true or false"
    assert values(right.only)[0] == [[0, 1, 0]]


def test_the_configuration_is_completed_from_the_words(fruit: DrivenModel) -> None:
    assert fruit.config["max_batch_size"] == 64
    assert [output["dims"] for output in fruit.config["output"]] == [[3], [1]]


def test_a_model_without_its_file_says_which(tmp_path: Path) -> None:
    ModelRepository(tmp_path).model("empty", {"backend": "c-xyz"})

    with (
        pytest.raises(InvalidArg, match=r"a word on each line: .*/empty/1/words\.txt"),
        BackendDriver(LIBRARY, tmp_path).load("empty"),
    ):
        pass
