"""The same requests to the real server and to ours get the same answers, but for what is listed."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from . import (
    grpc_calls,
    grpc_infer,
    grpc_regions,
    http_calls,
    http_extensions,
    http_generate,
    http_infer,
    http_regions,
    http_values,
)
from .answers import comparable
from .comparison import Case, Pair
from .differences import DIFFERENCES, Difference
from .fatal import ANSWERS
from .generated import grpc_requests, http_requests, http_texts
from .servers import Request, Server

TABLE = [
    *http_calls.CASES,
    *http_infer.CASES,
    *http_values.CASES,
    *http_extensions.CASES,
    *http_regions.CASES,
    *http_generate.CASES,
    *grpc_infer.CASES,
    *grpc_calls.CASES,
    *grpc_regions.CASES,
]
generated = settings(
    max_examples=300,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=(HealthCheck.filter_too_much, HealthCheck.too_slow),
)
pytestmark = [pytest.mark.parity, pytest.mark.timeout(180)]  # both servers start within the first test


def test_no_two_cases_have_the_same_name() -> None:
    names = [case.name for case in (*TABLE, *(case for case, _, _ in ANSWERS))]

    assert sorted({name for name in names if names.count(name) > 1}) == []


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
def test_both_servers_answer_alike(pair: Pair, case: Case) -> None:
    left = pair.divergences(case)

    assert not left, "\n".join(map(str, left))


def _assert_alike(pair: Pair, request: Request) -> None:
    left = pair.compare(request)
    assert left is None, str(left)


@generated
@given(request_=http_requests())
def test_both_answer_alike_to_changed_requests_over_http(pair: Pair, request_: Request) -> None:
    _assert_alike(pair, request_)


@generated
@given(request_=http_texts())
def test_both_answer_alike_to_broken_json(pair: Pair, request_: Request) -> None:
    _assert_alike(pair, request_)


@generated
@given(request_=grpc_requests())
def test_both_answer_alike_to_changed_requests_over_grpc(pair: Pair, request_: Request) -> None:
    _assert_alike(pair, request_)


@pytest.mark.parametrize(("case", "status", "text"), ANSWERS, ids=lambda value: getattr(value, "name", ""))
def test_what_ends_the_real_server_is_refused(ours: Server, case: Case, status: object, text: str) -> None:
    for step in case.steps:
        answer = comparable(step, ours.ask(step))

        assert answer["status"] == status, answer
        assert text in answer.get("error", "")


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.name)
def test_every_listed_difference_still_occurs(pair: Pair, difference: Difference) -> None:
    for case in TABLE:
        if difference in pair.met:
            break
        pair.divergences(case)

    assert difference.name in {met.name for met in pair.met}
