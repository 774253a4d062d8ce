"""Models that answer through response senders: any number of times, or once."""

from __future__ import annotations

import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

numbers = itertools.count()
CLOSED = ["TritonModelException", "Unable to send response. Response sender has been closed."]
NO_RESPONSE = [
    "TritonModelException",
    "Inference Response object must be provided when the response flags is set to zero.",
]
BAD_FLAG = ["TritonModelException", "Unable to send response. Unsupported flag provided."]
ONLY_ONE = [
    "TritonModelException",
    "Unable to send response. Non-decoupled model cannot send more than one response.",
]
FLAG_FIRST = [
    "TritonModelException",
    "Unable to send response. Non-decoupled model cannot send complete final before sending a response.",
]

Sent = tuple[str, dict[str, Any], bool | None]


def value(number: float, final: bool = False) -> Sent:
    return "", {"VALUE": [number]}, final


def run(server, model: str, *steps: list[Any], **options: Any) -> tuple[list[Sent], list[Any]]:
    """Have a model take steps with its sender; returns what came, and what the steps gave."""
    id = f"steps-{next(numbers)}"
    sent = server.stream(model, {"STEPS": [json.dumps(steps)]}, id=id, **options)
    found = server.wait_for_log(rf"sent {id} (\[.*\]) end")
    return [(each.error, each.outputs, each.final) for each in sent], json.loads(found[1].replace('\\"', '"'))


def answers(server, model: str, *steps: list[Any], **options: Any) -> list[Sent]:
    """The same of a model that does not get as far as to say how it went."""
    sent = server.stream(model, {"STEPS": [json.dumps(steps)]}, **options)
    return [(each.error, each.outputs, each.final) for each in sent]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([["final"]], []),
        ([["value", 1], ["final"]], [value(1)]),
        ([["last_value", 1]], [value(1, True)]),
        ([["value", 1], ["value", 2], ["last_value", 3]], [value(1), value(2), value(3, True)]),
        ([["both", 1], ["final"]], [("", {"VALUE": [1], "OTHER": [-1]}, False)]),
        ([["empty"], ["final"]], [("", {}, False)]),
        ([["unknown"], ["final"]], [("", {}, False)]),
        ([["error", "bad"], ["final"]], [("bad", {}, False)]),
        ([["error", "bad"], ["value", 1], ["final"]], [("bad", {}, False), value(1)]),
        ([["last_error", "bad"]], [("bad", {}, True)]),
        ([["later"], ["pause", 0.1], ["value", 1], ["final"]], [value(1)]),
        ([["is_cancelled"], ["final"]], []),
    ],
    ids=str,
)
def test_responses_come_as_they_are_sent(server, steps, expected):
    sent, outcomes = run(server, "sends", *steps)

    assert sent == expected
    assert outcomes in ([None] * len(outcomes), [[False, False], None])


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([["final"]], [("", {}, True)]),
        ([["value", 1], ["final"]], [value(1), ("", {}, True)]),
        ([["last_value", 1]], [value(1, True)]),
    ],
    ids=str,
)
def test_the_lone_final_flag_comes_to_who_wants_it(server, steps, expected):
    sent, _ = run(server, "sends", *steps, wants_final=True)

    assert sent == expected


@pytest.mark.parametrize(
    ("steps", "outcomes", "expected"),
    [
        ([["final"], ["value", 1]], [None, CLOSED], []),
        ([["final"], ["final"]], [None, CLOSED], []),
        ([["last_value", 1], ["final"]], [None, CLOSED], [value(1, True)]),
        ([["nothing"], ["final"]], [NO_RESPONSE, None], []),
        ([["flags", 2], ["final"]], [BAD_FLAG, None], []),
        ([["flags", 3], ["final"]], [BAD_FLAG, None], []),
    ],
    ids=str,
)
def test_what_cannot_be_sent_is_refused_and_the_rest_comes(server, steps, outcomes, expected):
    assert run(server, "sends", *steps) == (expected, outcomes)


def test_only_responses_are_sent(server):
    sent, [refused, _] = run(server, "sends", ["a_string"], ["final"])

    assert sent == []
    assert refused[0] == "TypeError"


def test_an_exception_ends_a_request_that_has_had_no_response(server):
    [(error, outputs, final)] = answers(server, "sends", ["raise"])

    assert error.startswith(
        "Failed to process the request(s) for model 'sends_0', message: ValueError: boom\n\nAt:\n"
    )
    assert (outputs, final) == ({}, True)


@pytest.mark.ours("2.51 says so in its log only")
def test_a_decoupled_model_that_returns_responses_is_told_so(server):
    assert answers(server, "sends", ["return"]) == []
    server.wait_for_log("is using the decoupled mode and the execute function must return None")


@pytest.mark.ours("2.51 never answers")
def test_a_request_whose_sender_is_dropped_is_answered_with_an_error(server):
    assert answers(server, "sends", ["value", 1], id="dropped") == [
        value(1),
        (
            "[request id: dropped] model 'sends' dropped the request without a final response",
            {},
            True,
        ),
    ]


def test_http_does_not_serve_decoupled_models(server):
    answer = server.infer("sends", {"STEPS": ['[["last_value", 1]]']})

    assert (answer.status, answer.error) == (
        501,
        "HTTP end point doesn't support models with decoupled transaction policy",
    )


def test_unary_grpc_does_not_serve_decoupled_models(server):
    with pytest.raises(grpc.RpcError) as refused:
        server.grpc_infer("sends", {"STEPS": ['[["last_value", 1]]']})

    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert (
        refused.value.details() == "ModelInfer RPC doesn't support models with decoupled transaction policy"
    )


def test_requests_are_answered_in_the_order_their_threads_choose(server, tmp_path):
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    begun.mkdir()
    steps = ["later"], ["come", str(begun)], ["until", str(gate)], ["last_value", 1]
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(answers, server, "sends", *steps, id="slow")
        server.wait_for((begun / "slow").exists)
        quick = answers(server, "sends", ["later"], ["last_value", 2])
        is_over = slow.done()
        gate.touch()

        assert slow.result() == [value(1, True)]
    assert quick == [value(2, True)]
    assert not is_over


def test_many_responses_keep_their_order(server):
    sent, _ = run(server, "sends", *(["value", number] for number in range(200)), ["final"])

    assert [outputs["VALUE"][0] for _, outputs, _ in sent] == list(range(200))


def test_one_request_may_be_answered_while_the_next_is_executed(server, tmp_path):
    def meet(number: int) -> list[Sent]:
        return answers(server, "sends", ["later"], ["meet", str(tmp_path), 4], id=f"meet-{number}")

    with ThreadPoolExecutor(4) as pool:
        sent = list(pool.map(meet, range(4)))

    assert sent == [[value(4, True)]] * 4


class TestOnce:
    """A model that is not decoupled, and answers through its sender all the same."""

    @pytest.mark.parametrize(
        ("steps", "expected", "outcomes"),
        [
            ([["last_value", 1]], [value(1, True)], [None]),
            ([["later"], ["pause", 0.1], ["last_value", 1]], [value(1, True)], [None, None]),
            ([["last_error", "bad"]], [("bad", {}, True)], [None]),
            ([["final"], ["last_value", 1]], [value(1, True)], [FLAG_FIRST, None]),
            ([["nothing"], ["last_value", 1]], [value(1, True)], [NO_RESPONSE, None]),
            ([["last_value", 1], ["value", 1]], [value(1, True)], [None, ONLY_ONE]),
            ([["last_value", 1], ["final"]], [value(1, True)], [None, CLOSED]),
            ([["return_none"], ["last_value", 1]], [value(1, True)], [None]),
        ],
        ids=str,
    )
    def test_one_response_is_sent(self, server, steps, expected, outcomes):
        assert run(server, "sends_once", *steps) == (expected, outcomes)

    @pytest.mark.parametrize(
        ("steps", "error", "outputs"),
        [
            ([["value", 1], ["final"]], "", {"VALUE": [1]}),
            ([["error", "bad"], ["final"]], "bad", {}),
            ([["empty"], ["final"]], "", {}),
            ([["value", 1], ["value", 2], ["final"]], "", {"VALUE": [1]}),
        ],
        ids=str,
    )
    def test_the_flag_may_come_after_it(self, server, steps, error, outputs):
        [(found_error, found_outputs, _)], outcomes = run(server, "sends_once", *steps)

        assert (found_error, found_outputs) == (error, outputs)
        assert outcomes == [
            ONLY_ONE if index == 1 and step[0] == "value" else None for index, step in enumerate(steps)
        ]

    @pytest.mark.ours("2.51 waits for the flag for ever")
    def test_the_flag_may_be_left_out(self, server):
        assert run(server, "sends_once", ["value", 1]) == ([value(1, True)], [None])

    def test_a_response_may_be_returned_instead(self, server):
        assert answers(server, "sends_once", ["return", 5]) == [value(5, True)]

    @pytest.mark.not_nvidia("two responses of a model that is not decoupled are an error")
    def test_what_is_sent_first_counts(self, server):
        [(error, outputs, _)] = answers(server, "sends_once", ["send_and_return", 1, 2])

        assert (error, outputs) == ("", {"VALUE": [1]})

    def test_http_clients_are_answered_too(self, server):
        good = server.infer("sends_once", {"STEPS": ['[["last_value", 1]]']})
        bad = server.infer("sends_once", {"STEPS": ['[["last_error", "bad", "NOT_FOUND"]]']})
        chosen = server.infer(
            "sends_once", {"STEPS": ['[["both", 1], ["final"]]']}, outputs=[{"name": "OTHER"}]
        )

        assert good.outputs == {"VALUE": [1]}
        assert (bad.status, bad.error) == (404, "bad")
        assert chosen.outputs == {"OTHER": [-1]}
