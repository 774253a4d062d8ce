"""Calls that could only wait for themselves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from .models import CALLER, infer, write_caller, write_model


def test_a_model_with_one_instance_that_calls_itself_is_told_at_once(serve, tmp_path):
    write_caller(tmp_path, "a", "a")
    server = serve(tmp_path)

    with pytest.raises(
        RuntimeError, match="cannot call 'a': the call would wait for itself for ever"
    ) as error:
        infer(server.http_port, "a", [1])

    assert "'a_0_0' waits for 'a_0_0'" in str(error.value)
    assert infer(server.http_port, "a", [0]) == [0]


def test_a_model_may_call_itself_as_deep_as_it_has_instances(serve, tmp_path):
    write_caller(tmp_path, "a", "a", count=3)
    server = serve(tmp_path)

    assert infer(server.http_port, "a", [2]) == [0]
    with pytest.raises(RuntimeError, match=r"would wait for itself for ever \('a_0_\d' waits for"):
        infer(server.http_port, "a", [3])


def test_a_cycle_over_two_models_is_named(serve, tmp_path):
    write_caller(tmp_path, "a", "b")
    write_caller(tmp_path, "b", "a")
    server = serve(tmp_path)

    with pytest.raises(RuntimeError, match=r"model 'b' cannot call 'a'.*'b_0_0' waits for 'a_0_0'"):
        infer(server.http_port, "a", [5])


def test_two_clients_whose_requests_block_each_other_both_get_an_answer(serve, tmp_path):
    # Each of the models executes, then calls the other one: no request waits for itself, yet none can go on.
    meet = tmp_path / "meet"
    meet.mkdir()
    code = CALLER.replace(
        "        response = pb_utils.InferenceRequest(",
        f"""        open(os.path.join({str(meet)!r}, {{name!r}}), "w").close()
        deadline = time.monotonic() + 25
        while len(os.listdir({str(meet)!r})) < 2 and time.monotonic() < deadline:
            time.sleep(0.002)
        response = pb_utils.InferenceRequest(""",
    )
    models = tmp_path / "models"
    for name, target in (("a", "b"), ("b", "a")):
        write_model(models, name, code.format(name=name, targets=[target]))
    server = serve(models)

    def outcome(model: str) -> str:
        try:
            return str(infer(server.http_port, model, [1]))
        except RuntimeError as error:
            return str(error)

    with ThreadPoolExecutor() as pool:
        outcomes = list(pool.map(outcome, "ab"))

    assert sum("would wait for itself for ever" in text for text in outcomes) == 1
    assert sum(text == "[0.0]" for text in outcomes) == 1
