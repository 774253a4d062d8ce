"""Models that call other models."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

SUM_AND_DIFFERENCE = {"SUM": [[4, 6]], "DIFFERENCE": [[2, 2]]}
ID = "[request id: <id_unknown>] "
NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended "
    "to each input shape. If you want to specify the full shape including the batch dim in your input dims "
    "config, try setting max_batch_size to zero. See the model configuration docs for more info on "
    "max_batch_size."
)
USE_DECOUPLED = (
    "Model sends is using the decoupled. The current BLS request call doesn't support models using the "
    "decoupled transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls "
    "for decoupled models."
)
INTERNAL, NOT_FOUND, INVALID_ARG = 1, 2, 3
CODES = ["UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG"]
CODES += ["UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED"]


def answered(**outputs: Any) -> dict[str, Any]:
    return {"has_error": False, "error": None, "code": None, "outputs": outputs}


def refused(text: str, code: int) -> dict[str, Any]:
    return {"has_error": True, "error": text, "code": code, "outputs": {}}


def assert_refused(server: Any, response: dict[str, Any], text: str, code: int, model: str = "add") -> None:
    """The text and, from ours, the code; the real server says more and knows only INTERNAL."""
    if server.is_ours:
        assert response == refused(text, code)
    else:
        assert response == refused(f"Model {model} - Error when running inference: {text}", INTERNAL)


def test_a_call_returns_all_outputs_as_arrays(server):
    assert server.ask("bls.call") == answered(**SUM_AND_DIFFERENCE)


def test_outputs_are_found_by_name(server):
    assert server.ask("bls.read_by_name") == ["SUM", [[4, 6]], [1, 2], True, None]


def test_outputs_of_one_call_are_inputs_of_the_next(server):
    assert server.ask("bls.chained") == answered(SUM=[[6, 8]], DIFFERENCE=[[2, 4]])


def test_only_requested_outputs_come_back(server):
    assert server.ask("bls.one_output") == answered(DIFFERENCE=[[2, 2]])


def test_no_requested_outputs_means_all(server):
    assert server.ask("bls.no_outputs") == answered(**SUM_AND_DIFFERENCE)


def test_a_request_can_be_sent_twice(server):
    assert server.ask("bls.same_request_twice") == [answered(**SUM_AND_DIFFERENCE)] * 2


@pytest.mark.parametrize(("asked", "answers"), [(None, 3), (-1, 3), (1, 1), (3, 3)])
def test_the_newest_version_is_called_unless_one_is_named(server, asked, answers):
    assert server.ask("bls.version", asked)["version"] == answers


@pytest.mark.parametrize(
    ("case", "model", "text"),
    [
        (["unknown_model"], "nope", "Request for unknown model: 'nope' is not found"),
        (["version", 2], "mirror", "Request for unknown model: 'mirror' version 2 is not found"),
        (
            ["broken_model"],
            "raises_in_initialize",
            "Request for unknown model: 'raises_in_initialize' has no available versions",
        ),
    ],
)
def test_a_model_that_is_not_there_is_an_error_in_the_response(server, case, model, text):
    response = server.ask(f"bls.{case[0]}", *case[1:])

    theirs = f"Failed for execute the inference request. Model '{model}' is not ready."
    assert_refused(server, response, text if server.is_ours else theirs, NOT_FOUND, model)


@pytest.mark.not_nvidia("the server finds out after the call, and the backend adds nothing to its words")
@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("unknown_output", "unexpected inference output 'NOPE' for model 'add'"),
        (
            "missing_input",
            f"{ID}expected 2 inputs but got 1 inputs for model 'add'. Got input(s) ['A'], "
            "but missing required input(s) ['B']. Please provide all required input(s).",
        ),
        (
            "bad_shape",
            f"{ID}unexpected shape for input 'A' for model 'add'. Expected [-1,2], got [1,3]. {NOTE}",
        ),
        ("bad_datatype", f"{ID}inference input 'A' data-type is 'INT32', but model 'add' expects 'FP32'"),
        ("batch_too_large", f"{ID}inference request batch-size must be <= 4 for 'add'"),
    ],
)
def test_a_request_that_does_not_fit_is_an_error_in_the_response(server, case, text):
    assert_refused(server, server.ask(f"bls.{case}"), text, INVALID_ARG)


def test_an_input_too_many_is_an_error_in_the_response(server):
    response = server.ask("bls.unknown_input")

    assert response["has_error"]
    assert "expected 2 inputs but got 3 inputs for model 'add'" in response["error"]


@pytest.mark.parametrize("code", range(8), ids=CODES)
def test_an_error_of_the_called_model_arrives_with_its_text(server, code):
    response = server.ask("bls.failing", CODES[code])

    assert response == refused(f"{CODES[code]}!", code if server.is_ours else INTERNAL)


def test_an_exception_in_the_called_model_arrives_with_its_place(server):
    response = server.ask("bls.failing", "value_error")

    assert response["code"] == INTERNAL
    assert response["error"].startswith(
        "Failed to process the request(s) for model 'fails_0', message: ValueError: boom\n\nAt:\n"
    )


def test_an_answer_without_outputs_is_no_error(server):
    assert server.ask("bls.failing", "no_output") == answered()


@pytest.mark.parametrize(
    "field",
    [
        {"request_id": "abc"},
        {"correlation_id": 7},
        {"correlation_id": "seven"},
        {"correlation_id": 2**40},
        {"flags": 3, "correlation_id": 1},
        {"timeout": 1_000_000},
        {"parameters": {"number": 1, "text": "two", "flag": True}},
        {"parameters": {"priority": 1, "timeout": 1, "triton_x": 1}},
        {"parameters": {}},
        {"requested_output_names": ["SEEN", "OTHER"]},
    ],
    ids=str,
)
def test_fields_of_a_request_reach_the_called_model(server, field):
    seen = {"version": 3, "id": "", "correlation_id": 0, "flags": 0, "timeout": 0, "parameters": {}}
    seen["inputs"] = ["ANY"]
    names = {"request_id": "id", "requested_output_names": "requested"}
    changed = {names.get(name, name): value for name, value in field.items()}
    changed["requested"] = sorted(changed.get("requested", ["SEEN"]))

    assert server.ask("bls.passed_on", field) == {**seen, **changed}


def test_flags_can_be_set_after_a_request_is_made(server):
    assert server.ask("bls.flags_set_later") == 1


def test_a_trace_is_passed_on(server):
    assert server.ask("bls.with_trace") == answered(**SUM_AND_DIFFERENCE)


def test_outputs_are_in_the_memory_that_is_preferred(server):
    assert server.ask("bls.with_preferred_memory") == [answered(**SUM_AND_DIFFERENCE), [True, True]]


def test_threads_of_a_model_may_call(server):
    assert server.ask("bls.from_a_thread") == [answered(**SUM_AND_DIFFERENCE)] * 4


def test_large_tensors_go_both_ways(server):
    assert server.ask("bls.large", 2_000_000) is True


@pytest.mark.parametrize("texts", [["", "a", "é", "x" * 1000], []], ids=["some", "none"])
def test_strings_go_both_ways(server, texts):
    assert server.ask("bls.texts", *texts) == texts


def test_many_strings_go_both_ways(server):
    assert server.ask("bls.large_texts", 20_000) is True


def test_a_model_hands_its_own_input_on(server):
    assert server.ask("bls.own_input") == '["bls.own_input"]'


def test_bf16_goes_both_ways_by_dlpack(server):
    assert server.ask("tensors.brain_floats_to_another_model") == [4, 16, 1, [0x3F80, 0x4000]]


def test_an_ensemble_is_called_like_any_model(server):
    assert server.ask("bls.ensemble") == answered(DOUBLE=[[6, 8]])


def test_called_models_count_the_request_as_a_client_s(server):
    before = server.settled_statistics("add")["inference_stats"]["success"]["count"]
    server.ask("bls.call")
    after = server.wait_for(
        lambda: (count := server.statistics("add")["inference_stats"]["success"]["count"]) > before and count
    )

    assert after == before + 1


class TestDecoupled:
    def test_a_decoupled_model_must_be_called_as_one(self, server):
        response = server.ask("bls.without_saying_decoupled")

        theirs = f"{USE_DECOUPLED}'"
        assert_refused(server, response, USE_DECOUPLED if server.is_ours else theirs, INTERNAL, "sends")

    @pytest.mark.parametrize("values", [[], [1], [1, 2, 3]], ids=["none", "one", "three"])
    def test_responses_come_one_by_one_and_the_lone_final_flag_as_an_empty_one(self, server, values):
        expected = [answered(VALUE=[value]) for value in values]

        assert server.ask("bls.responses", *values) == [*expected, answered()]

    def test_the_last_response_may_carry_the_flag(self, server):
        responses = server.ask("bls.last_response_has_the_flag")

        assert responses == [answered(VALUE=[1]), answered(VALUE=[2])]

    def test_an_error_among_the_responses_ends_nothing(self, server):
        responses = server.ask("bls.responses", 1, -2, 3)

        # 2.51 drops the error.
        error = [refused("-2 is negative", INVALID_ARG)] if server.is_ours else []
        assert responses == [answered(VALUE=[1]), *error, answered(VALUE=[3]), answered()]

    def test_a_model_with_one_response_can_be_called_the_same_way(self, server):
        assert server.ask("bls.responses_of_a_plain_model") == [answered(**SUM_AND_DIFFERENCE)]

    def test_a_model_that_is_not_there_is_the_one_response(self, server):
        [response] = server.ask("bls.responses_of_an_unknown_model")

        ours = "Request for unknown model: 'nope' is not found"
        theirs = "Failed for execute the inference request. Model 'nope' is not ready."
        assert_refused(server, response, ours if server.is_ours else theirs, NOT_FOUND, "nope")

    def test_next_works_on_the_iterator(self, server):
        assert server.ask("bls.next_by_hand") == [{"VALUE": [7]}, {}]

    def test_responses_are_iterated_once(self, server):
        first, second = server.ask("bls.iterated_twice")

        assert first == [{"VALUE": [1]}, {"VALUE": [2]}, {}]
        assert second == ([] if server.is_ours else first)  # 2.51 keeps them all

    def test_responses_may_be_left_unread(self, server):
        assert server.ask("bls.half_read") == [{"VALUE": [1]}, SUM_AND_DIFFERENCE]

    @pytest.mark.ours("2.51 has no cancel()")
    def test_a_call_is_cancelled_between_its_responses(self, server):
        assert 3 <= server.ask("bls.cancelled") < 1000


class TestAsync:
    def ask(self, server: Any, case: str, *args: Any) -> Any:
        return server.ask(f"bls.{case}", *args, model="async_cases")

    def test_a_call_is_awaited(self, server):
        assert self.ask(server, "call") == {"error": None, "outputs": {"SUM": [[3, 3]]}}

    def test_async_exec_gives_an_awaitable(self, server):
        assert self.ask(server, "without_await") == [True, {"error": None, "outputs": {"SUM": [[3, 3]]}}]

    def test_gathered_calls_keep_their_order(self, server):
        assert self.ask(server, "gathered", 10) == [100 + index for index in range(10)]

    def test_gathered_calls_run_at_the_same_time(self, server, tmp_path):
        answers = self.ask(server, "at_the_same_time", str(tmp_path))

        assert answers == [{"VALUE": [2]}] * 2

    def test_one_of_two_calls_may_fail(self, server):
        good, bad = self.ask(server, "good_and_bad")

        assert good == {"error": None, "outputs": {"SUM": [[3, 3]]}}
        assert "'nope'" in bad["error"]

    def test_a_coroutine_may_call_and_block(self, server):
        assert self.ask(server, "blocking") == {"error": None, "outputs": {"SUM": [[3, 3]]}}

    def test_a_task_of_the_model_may_call(self, server):
        assert self.ask(server, "on_another_task") == {"error": None, "outputs": {"SUM": [[5, 5]]}}

    @pytest.mark.parametrize("values", [[], [1, 2]], ids=["none", "two"])
    def test_a_decoupled_call_is_awaited_and_then_iterated(self, server, values):
        expected = [{"error": None, "outputs": {"VALUE": [value]}} for value in values]

        assert self.ask(server, "decoupled", *values) == [*expected, {"error": None, "outputs": {}}]

    def test_decoupled_calls_are_gathered(self, server):
        assert self.ask(server, "two_decoupled") == [[[1], [2]], [[3]]]

    def test_a_decoupled_model_must_be_called_as_one(self, server):
        assert USE_DECOUPLED in self.ask(server, "to_a_decoupled_model")["error"]

    @pytest.mark.ours("2.51 can only iterate and block")
    def test_responses_are_iterated_asynchronously(self, server):
        assert self.ask(server, "async_for", 1, 2) == [{"VALUE": [1]}, {"VALUE": [2]}, {}]

    @pytest.mark.ours("2.51 raises what the called model raised, and no more")
    def test_a_call_that_takes_too_long_is_left(self, server):
        assert self.ask(server, "with_a_timeout") == ["TimeoutError", [[3, 3]]]


class TestFromADecoupledModel:
    def test_a_thread_calls_after_execute_has_returned(self, server):
        assert server.ask_stream("bls.call") == {"error": None, "outputs": {"SUM": [[2, 4]]}}

    def test_a_thread_calls_on_an_event_loop_of_its_own(self, server):
        assert server.ask_stream("bls.call_on_a_loop") == {"error": None, "outputs": {"SUM": [[2, 4]]}}

    def test_a_thread_reads_decoupled_responses(self, server):
        expected = [{"error": None, "outputs": outputs} for outputs in ({"VALUE": [1]}, {"VALUE": [2]}, {})]

        assert server.ask_stream("bls.responses", 1, 2) == expected


@pytest.mark.theirs("ours answers, when the other model is there already")
def test_a_model_cannot_call_while_it_is_loaded(server):
    text = "BLS is only supported during the 'execute' function."

    seen = json.loads(server.infer("early", {}).outputs["SEEN"][0])

    assert seen["called"] == ["TritonModelException", text]
    assert text in server.wait_for_log(r"called in auto_complete_config: .*")[0]


@pytest.mark.parametrize(
    "what",
    [
        "no arguments",
        "no model",
        "no outputs",
        "no inputs",
        "inputs are arrays",
        "inputs are no list",
        "model is a number",
        "outputs are numbers",
        "version is text",
        "timeout is text",
        "flags are text",
        "id is a number",
        "trace is text",
        "preferred memory is a number",
        "an unknown argument",
    ],
)
def test_a_request_of_wrong_types_cannot_be_made(server, what):
    kind, _ = server.ask("bls.refusals", what)

    assert kind == "TypeError"


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("correlation id is a float", "Correlation ID must be integer or string"),
        (
            "a parameter's name is a number",
            "Expect parameters keys to have type str, found type <class 'int'>",
        ),
        ("a parameter is a list", "Expect parameters values to have type .*, found type <class 'list'>"),
        ("a parameter is None", "Expect parameters values to have type .*, found type <class 'NoneType'>"),
        ("parameters are a list", "Expect .*, (got|found type) <class 'list'>"),
        ("inputs hold None", "Input tensor for request with id '' and model name 'add' should not be empty."),
    ],
)
def test_a_request_that_cannot_travel_is_refused_with_the_reason(server, what, text):
    kind, found = server.ask("bls.refusals", what)

    assert kind == "TritonModelException"
    assert re.fullmatch(text, found), found
