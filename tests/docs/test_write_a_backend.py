"""What the page on backends shows of completing a configuration works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tritonpy import plugin
from tritonpy.plugin import Backend, InferRequest, InvalidArg, Model, ModelInstance, Tensor

PAGE = (Path(__file__).parent.parent.parent / "docs/how-to/write-a-backend.md").read_text()


@pytest.fixture
def complete() -> Any:
    """The page's hook that hands what a model file tells to `complete_config`."""
    (code,) = [
        code
        for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
        if "default_max_batch_size(" in code
    ]
    names: dict[str, Any] = {"__name__": "page"} | {name: getattr(plugin, name) for name in plugin.__all__}
    names["NamedTuple"] = NamedTuple
    exec(code, names)
    return names["model_auto_complete_config"]


def model(settings: dict[str, str] | None = None, **config: object) -> Model:
    return Model("m", 1, {"name": "m", **config}, Path(), Backend("xyz", settings or {}))


def test_what_the_file_tells_is_filled_in(complete: Any) -> None:
    completed = complete(model())

    assert completed["max_batch_size"] == 4
    assert completed["dynamic_batching"] == {}
    assert completed["input"] == [{"name": "X", "data_type": "TYPE_FP32", "dims": [16]}]


def test_the_command_line_says_how_large_a_batch_is(complete: Any) -> None:
    assert complete(model({"default-max-batch-size": "8"}))["max_batch_size"] == 8
    with pytest.raises(InvalidArg, match="--backend-config=xyz,default-max-batch-size: got 'x'"):
        complete(model({"default-max-batch-size": "x"}))


def test_what_is_whole_is_left_alone(complete: Any) -> None:
    assert complete(model(input=[{"name": "X"}], output=[{"name": "Y"}])) is None


def test_a_batch_of_the_page_is_one_call_and_comes_back_in_parts() -> None:
    (code,) = [code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "BatchPlan(" in code]
    names: dict[str, Any] = {"__name__": "page"}
    exec(code, names)
    tensor = {"data_type": "TYPE_FP32", "dims": [1]}
    handle = model(
        max_batch_size=4, input=[{"name": "INPUT0", **tensor}], output=[{"name": "OUTPUT0", **tensor}]
    )
    names["model_initialize"](handle)
    requests = [
        InferRequest("m", {"INPUT0": Tensor.from_numpy("INPUT0", np.array([[value]], np.float32))})
        for value in (1, 2)
    ]

    responses = names["model_instance_execute"](ModelInstance("m_0", 0, "KIND_CPU", 0, handle), requests)

    assert [response.outputs[0].numpy().tolist() for response in responses] == [[[2]], [[4]]]
    assert responses[0].outputs[0].numpy().base is responses[1].outputs[0].numpy().base
