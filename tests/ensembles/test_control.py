"""Loading and unloading ensembles and the models they are made of, on our server and on a real one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from .conftest import Side, Start
from .models import ADD, step, tensor, write_ensemble, write_model

READY, UNLOADED = ("READY", ""), ("UNAVAILABLE", "unloaded")
ALL = {"a", "b", "c", "ab", "bc", "nest"}


@pytest.fixture
def models(tmp_path: Path) -> ModelRepository:
    """`ab` and `bc` are made of two models each, `nest` of `ab` and `c`."""
    models = ModelRepository(tmp_path / "models")
    for number, name in ((1, "a"), (10, "b"), (100, "c")):
        write_model(models, name, number=number)
    for first, second in ("ab", "bc"):
        steps = [step(first, {"X": "IN"}, {"Y": "T"}), step(second, {"X": "T"}, {"Y": "OUT"})]
        write_ensemble(models, first + second, steps)
    nest = [step("ab", {"IN": "IN"}, {"OUT": "T"}), step("c", {"X": "T"}, {"Y": "OUT"})]
    write_ensemble(models, "nest", nest)
    return models


@pytest.fixture
def side(start: Start, models: ModelRepository) -> Side:
    return start(models.path, mode="explicit")


def test_an_ensemble_brings_its_models_and_goes_and_comes_with_each_of_them(side: Side) -> None:
    assert side.load("nest") == (200, "")
    assert side.ready() == ALL - {"bc"}
    assert side.out("nest") == [112]

    side.unload("c")
    assert side.states("c", "nest", "ab") == {"c": UNLOADED, "nest": UNLOADED, "ab": READY}
    assert side.refusal("nest") == (404, "Request for unknown model: 'nest' has no available versions")
    assert side.call("models/nest/ready")[0] == 400
    assert side.out("ab") == [12]

    assert side.load("c") == (200, "")
    assert side.out("nest") == [112]
    side.unload("a")
    assert side.states("a", "ab", "nest", "b") == {
        "a": UNLOADED,
        "ab": UNLOADED,
        "nest": UNLOADED,
        "b": READY,
    }
    assert side.load("a") == (200, "")
    assert side.ready() == ALL - {"bc"}


def test_an_unloaded_ensemble_leaves_its_models_and_does_not_come_back_with_them(side: Side) -> None:
    side.load("nest")

    side.unload("ab")
    assert side.ready() == {"a", "b", "c"}
    side.unload("a")
    side.load("a")

    assert side.ready() == {"a", "b", "c"}
    assert side.load("ab") == (200, "")
    assert side.ready() == ALL - {"bc"}


def test_dependents_are_unloaded_that_nobody_named_or_needs(side: Side) -> None:
    side.load("c")
    side.load("nest")
    side.load("bc")

    side.unload("nest", unload_dependents=True)

    assert side.states() == {
        "nest": UNLOADED,
        "ab": UNLOADED,
        "a": UNLOADED,
        "b": READY,
        "c": READY,
        "bc": READY,
    }
    assert side.out("bc") == [111]
    side.unload("bc", unload_dependents=True)
    assert side.ready() == {"c"}


def test_dependents_of_a_plain_model_are_none(side: Side) -> None:
    side.load("ab")

    side.unload("b", unload_dependents=True)

    assert side.ready() == {"a"}


def test_a_reloaded_model_is_used_at_once(side: Side, models: ModelRepository) -> None:
    side.load("nest")
    assert side.out("nest") == [112]

    write_model(models, "a", number=2)
    assert side.load("a") == (200, "")
    assert side.out("nest") == [113]
    write_model(models, "b", number=20)
    assert side.load("nest") == (200, "")  # its models have changed
    assert side.out("nest") == [123]


def test_a_model_that_fails_to_reload_leaves_all_as_it_was(side: Side, models: ModelRepository) -> None:
    side.load("nest")
    write_model(models, "a", "raise RuntimeError('no')")

    status, _ = side.load("a")

    assert status == 400
    assert side.load("nest") == (200, "")
    assert side.out("nest") == [112]


def test_an_ensemble_that_fits_no_more_is_down_until_it_fits_again(side: Side) -> None:
    side.load("nest")
    config = {
        "backend": "python",
        "parameters": {"number": {"string_value": "1"}, "journal": {"string_value": ""}},
    }

    def typed(data_type: str) -> dict[str, object]:
        return {**config, "input": [tensor("X", (1,), data_type)], "output": [tensor("Y", (1,), data_type)]}

    assert side.load("b", typed("TYPE_FP32")) == (200, "")
    assert side.states("a", "b", "ab", "nest") == {"a": READY, "b": READY, "ab": UNLOADED, "nest": UNLOADED}
    assert side.load("b", typed("TYPE_INT32")) == (200, "")

    assert side.ready() == ALL - {"bc"}
    assert side.out("nest") == [103]


def test_a_load_may_bring_another_graph(side: Side) -> None:
    side.load("ab")
    config = side.call("models/ab/config")[1]
    config["ensemble_scheduling"]["step"] = [step("c", {"X": "IN"}, {"Y": "OUT"})]

    assert side.load("ab", config) == (200, "")

    assert side.ready() == {"a", "b", "c", "ab"}
    assert side.out("ab") == [101]
    side.unload("c")
    assert side.ready() == {"a", "b"}
    side.unload("a")
    side.load("c")
    assert side.out("ab") == [101]  # it needs `a` no more


def test_a_model_may_become_an_ensemble_and_be_one_no_more(
    start_ours: Start, models: ModelRepository
) -> None:
    side = start_ours(models.path, mode="explicit")
    side.load("nest")
    plain = {"inputs": [tensor("IN")], "outputs": [tensor("OUT")]}
    code = ADD.replace('"X"', '"IN"').replace('"Y"', '"OUT"')

    write_model(models, "ab", code, number=5, **plain)
    assert side.load("ab") == (200, "")
    assert side.out("nest") == [106]
    side.unload("a")
    assert side.ready() == {"ab", "b", "c", "nest"}
    write_ensemble(models, "ab", [step("b", {"Q": "IN"}, {"Y": "OUT"})])
    assert side.load("ab")[0] == 400
    assert side.out("nest") == [106]
    write_ensemble(models, "ab", [step("b", {"X": "IN"}, {"Y": "OUT"})])
    assert side.load("ab") == (200, "")

    assert side.out("nest") == [111]


@pytest.fixture
def broken(tmp_path: Path) -> ModelRepository:
    models = ModelRepository(tmp_path / "broken")
    write_model(models, "a")
    write_model(models, "raises", "raise RuntimeError('no')")
    for name, steps in {
        "misses": [step("nowhere", {"X": "IN"}, {"Y": "OUT"})],
        "on_broken": [step("raises", {"X": "IN"}, {"Y": "OUT"})],
        "on_misses": [step("misses", {"IN": "IN"}, {"OUT": "OUT"})],
        "version": [step("a", {"X": "IN"}, {"Y": "OUT"}, version=2)],
        "circle": [step("circle_too", {"IN": "IN"}, {"OUT": "OUT"})],
        "circle_too": [step("circle", {"IN": "IN"}, {"OUT": "OUT"})],
        "itself": [step("itself", {"IN": "IN"}, {"OUT": "OUT"})],
        "input": [step("a", {"Q": "IN"}, {"Y": "OUT"})],
    }.items():
        write_ensemble(models, name, steps)
    steps = [step("a", {"X": "IN"}, {"Y": "OUT"})]
    write_ensemble(models, "type", steps, outputs=[tensor("OUT", (1,), "TYPE_FP32")])
    write_ensemble(models, "shape", steps, inputs=[tensor("IN", (2,))])
    return models


MISSING = "ensemble misses contains models that are not available or ambiguous: nowhere"
REFUSALS = {
    "misses": MISSING,
    "on_misses": f"ensemble 'on_misses' depends on 'misses' which is not valid. Model 'misses' failed with "
    f"error: {MISSING}",
    "version": "ensemble 'version' depends on 'a' whose required version 2 is not loaded.",
    "circle": "circular dependency between ensembles: circle -> ... -> circle_too -> circle",
    "itself": "circular dependency between ensembles: itself -> ... -> itself -> itself",
    "input": "in ensemble input, ensemble tensor IN is mapping to non-existing input Q in model a",
    "type": "in ensemble type, ensemble tensor OUT: inconsistent data type: TYPE_FP32 is inferred from model "
    "type while TYPE_INT32 is inferred from model a",
    "shape": "in ensemble shape, ensemble tensor IN: inconsistent shape: [2] is inferred from model shape "
    "while [1] is inferred from model a",
}


def test_what_is_wrong_with_an_ensemble_is_told(start: Start, broken: ModelRepository) -> None:
    side = start(broken.path, mode="explicit")

    for model, text in REFUSALS.items():
        assert side.load(model) == (400, f"load failed for model '{model}': {text}\n")
    status, text = side.load("on_broken")
    assert status == 400
    assert text.startswith(
        "load failed for model 'on_broken': ensemble 'on_broken' depends on 'raises' which has no loaded "
        "version. Model 'raises' loading failed with error: version 1 is at UNAVAILABLE state: Internal: "
        "RuntimeError: no\n"
    )


def test_a_model_that_comes_later_completes_the_ensembles_that_waited_for_it(
    start: Start, broken: ModelRepository
) -> None:
    side = start(broken.path, mode="explicit")
    side.load("on_misses")
    write_model(broken, "nowhere", ADD, number=5)

    assert side.load("nowhere") == (200, "")

    assert side.ready() >= {"nowhere", "misses", "on_misses"}
    assert side.out("on_misses") == [6]


def test_a_model_can_unload_an_ensemble_with_what_it_is_made_of(
    start_ours: Start, models: ModelRepository
) -> None:
    code = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        pb_utils.unload_model("nest", unload_dependents=True)
        return [pb_utils.InferenceResponse([pb_utils.Tensor(
            "Y", pb_utils.get_input_tensor_by_name(request, "X").as_numpy())]) for request in requests]
"""
    write_model(models, "unloads", code)
    side = start_ours(models.path, mode="explicit")
    for model in ("nest", "unloads", "c"):
        side.load(model)

    side.infer("unloads", {"X": ([1], [1])})

    until(lambda: side.ready() == {"c", "unloads"})


def test_a_model_that_loads_an_ensemble_made_of_itself_waits_for_nobody(
    start_ours: Start, models: ModelRepository
) -> None:
    code = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        try:
            pb_utils.load_model("on_loads")
        except Exception as error:
            self.text = str(error)

    def execute(self, requests):
        raise RuntimeError(self.text)
"""
    write_model(models, "loads", code)
    write_ensemble(models, "on_loads", [step("loads", {"X": "IN"}, {"Y": "OUT"})])
    side = start_ours(models.path, mode="explicit")

    assert side.load("loads") == (200, "")  # not for ever

    assert side.ready() == {"loads", "on_loads"}
    assert "ensemble on_loads contains models that are not available" in side.refusal("on_loads")[1]
    side.unload("on_loads")
    side.unload("loads")
    assert side.load("on_loads")[0] == 200
    assert side.ready() == {"loads", "on_loads"}
    assert "would wait for it: loads -> on_loads -> loads" in side.refusal("on_loads")[1]


def test_all_that_can_be_loaded_is_at_the_start(start: Start, models: ModelRepository) -> None:
    write_ensemble(models, "misses", [step("nowhere", {"X": "IN"}, {"Y": "OUT"})])

    side = start(models.path)

    assert side.ready() == ALL
    assert side.out("nest") == [112]


def test_polling_follows_what_ensembles_are_made_of(start_ours: Start, models: ModelRepository) -> None:
    write_ensemble(models, "misses", [step("nowhere", {"X": "IN"}, {"Y": "OUT"})])
    side = start_ours(models.path, mode="poll")

    def until_ready(*expected: str) -> None:
        until(lambda: side.ready() == set(expected))

    until_ready(*ALL)
    away = models.path.parent / "away"
    (models.path / "a").rename(away)
    until_ready("b", "c", "bc")
    away.rename(models.path / "a")
    until_ready(*ALL)
    write_model(
        models, "b", inputs=[tensor("X", (1,), "TYPE_FP32")], outputs=[tensor("Y", (1,), "TYPE_FP32")]
    )
    until_ready("a", "b", "c")
    write_model(models, "b", number=20)
    until_ready(*ALL)
    assert side.out("nest") == [122]
    write_model(models, "nowhere")
    until_ready(*ALL, "misses", "nowhere")
