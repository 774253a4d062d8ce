"""Models whose `execute` is a coroutine."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest


def ask(server, case: str, *args):
    return server.ask(f"waiting.{case}", *args, model="async_cases")


def test_a_coroutine_is_awaited_for_its_responses(server):
    assert ask(server, "nothing") == "awaited"


def test_a_coroutine_waits_for_several_things_at_once(server):
    assert ask(server, "at_the_same_time") == ["met", "met"]


def test_a_coroutine_may_use_an_executor(server):
    assert ask(server, "in_an_executor") == "ran"


def test_an_exception_in_a_coroutine_fails_the_batch(server):
    answer = server.infer("async_cases", {"CASE": ['["waiting.fails"]']})

    assert answer.status == 500
    assert answer.error.startswith(
        "Failed to process the request(s) for model 'async_cases_0', message: "
        "ValueError: time does not run backwards\n\nAt:\n"
    )
    assert "async_cases/1/waiting.py(" in answer.error
    assert ask(server, "nothing") == "awaited"


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_decoupled_coroutine_sends_any_number_of_responses(server, count):
    sent = server.stream("async_sends", {"SECONDS": [0.0] * count})

    assert [each.outputs for each in sent] == [{"VALUE": [0]}] * count


def test_decoupled_coroutines_of_several_requests_wait_together(server):
    message = server.message("async_sends", {"SECONDS": [0.0, 25.0]})
    slow = server.stub.ModelStreamInfer(iter([message]), timeout=60)
    next(slow)  # it waits for the second of its times

    with ThreadPoolExecutor(3) as pool:
        quick = list(pool.map(lambda _: server.stream("async_sends", {"SECONDS": [0.1]}), range(3)))

    assert slow.is_active()
    assert [len(sent) for sent in quick] == [1] * 3
    slow.cancel()


def test_decoupled_coroutines_call_other_models(server):
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda value: server.stream("async_sends", {"SECONDS": [value]}), range(1001, 1005))

    assert [[each.outputs for each in sent] for sent in found] == [
        [{"VALUE": [2 * value]}] for value in range(1001, 1005)
    ]


@pytest.mark.ours("2.51 never answers")
def test_an_exception_in_a_decoupled_coroutine_is_answered(server):
    first, last = server.stream("async_sends", {"SECONDS": [0.0, -1.0]})

    assert first.outputs == {"VALUE": [0]}
    assert "ValueError: time does not run backwards" in last.error
