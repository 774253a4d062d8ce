from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from tritonpy.errors import ErrorCode, TritonError
from tritonpy.metrics.custom import CustomMetrics
from tritonpy.metrics.exposition import render
from tritonpy.metrics.models import ModelMetrics
from tritonpy.metrics.server import ServerMetrics

COUNTER, GAUGE, HISTOGRAM = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Worker:
    instance: str


class Kept:
    """Custom metrics beside the server's own, and short forms of what workers ask."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ServerMetrics(self.registry)
        ModelMetrics(self.registry, list)
        self.metrics = CustomMetrics(self.registry)

    async def hold(
        self, worker: Worker, name: str = "tokens", kind: int = COUNTER, description: str = "Tokens"
    ) -> int:
        number, instance = await self.metrics.ask(worker, "hold", (name, description, kind))
        assert instance == worker.instance
        return number  # type: ignore[no-any-return]

    async def series(
        self, worker: Worker, hold: int, buckets: list[float] | None = None, **labels: str
    ) -> int:
        number, _ = await self.metrics.ask(worker, "series", (hold, labels, buckets))
        return number  # type: ignore[no-any-return]

    def change(self, worker: Worker, *changes: tuple[int, Any, float]) -> None:
        self.metrics.tell(worker, "change", (list(changes),))

    async def value(self, worker: Worker, series: int) -> float:
        return await self.metrics.ask(worker, "value", (series,))  # type: ignore[no-any-return]

    def text(self) -> str:
        self.metrics.take()
        families = render(self.registry).decode().split("# HELP ")
        return "".join(
            family for family in families if family and not family.startswith(("tritonpy_", "nv_"))
        )

    async def refusal(self, worker: Worker, what: str, *args: Any) -> TritonError:
        with pytest.raises(TritonError) as refused:
            await self.metrics.ask(worker, what, args)
        return refused.value


@pytest.fixture
def kept() -> Kept:
    return Kept()


ONE, OTHER = Worker("net_0_0"), Worker("net_0_1")


async def test_counter_and_gauge_are_written_under_their_own_names(kept: Kept) -> None:
    tokens = await kept.series(ONE, await kept.hold(ONE), user="a")
    load = await kept.series(ONE, await kept.hold(ONE, "load", GAUGE, "Load"))
    kept.change(ONE, (tokens, False, 2.0), (load, True, 0.5))
    kept.change(ONE, (tokens, False, 1.5), (load, False, -1.0))

    assert kept.text() == (
        'tokens Tokens\n# TYPE tokens counter\ntokens{user="a"} 3.5\n'
        "load Load\n# TYPE load gauge\nload -0.5\n"
    )
    assert await kept.value(ONE, tokens) == 3.5


async def test_histogram_has_rising_buckets_a_count_and_a_sum(kept: Kept) -> None:
    hold = await kept.hold(ONE, "seconds", HISTOGRAM, "Seconds")
    series = await kept.series(ONE, hold, [0.1, 1.0, float("inf")], step="x")
    kept.change(ONE, (series, [2, 0, 0], 0.1))
    kept.change(ONE, (series, [0, 1, 1], 10.5))

    (family,) = text_string_to_metric_families(f"# HELP {kept.text()}")
    assert family.type == "histogram"
    assert [(sample.name, sample.labels.get("le"), sample.value) for sample in family.samples] == [
        ("seconds_count", None, 4),
        ("seconds_sum", None, 10.6),
        ("seconds_bucket", "0.1", 2),
        ("seconds_bucket", "1", 3),
        ("seconds_bucket", "+Inf", 4),
    ]


async def test_workers_share_series_and_the_first_ones_description_and_buckets(kept: Kept) -> None:
    hold = await kept.hold(ONE, "seconds", HISTOGRAM, "First")
    series = await kept.series(ONE, hold, [1.0], step="x")

    other = await kept.hold(OTHER, "seconds", HISTOGRAM, "Second")
    again, bounds = await kept.metrics.ask(OTHER, "series", (other, {"step": "x"}, [2.0, 3.0]))

    assert (again, bounds) == (series, [1.0])
    assert "seconds First\n" in kept.text()


async def test_series_and_families_go_with_their_last_holder(kept: Kept) -> None:
    hold, other = await kept.hold(ONE), await kept.hold(OTHER)
    shared = await kept.series(ONE, hold, kind="shared")
    await kept.series(ONE, hold, kind="own")
    await kept.series(OTHER, other, kind="shared")
    kept.change(ONE, (shared, False, 1.0))
    kept.change(OTHER, (shared, False, 2.0))

    kept.metrics.caller_gone(ONE)
    assert kept.text() == 'tokens Tokens\n# TYPE tokens counter\ntokens{kind="shared"} 3\n'

    kept.metrics.tell(OTHER, "release", (other,))
    assert kept.text() == ""
    assert await kept.hold(OTHER, kind=GAUGE)  # the name is free, for another kind too


async def test_a_worker_that_comes_back_counts_from_zero(kept: Kept) -> None:
    series = await kept.series(ONE, await kept.hold(ONE))
    kept.change(ONE, (series, False, 7.0))
    kept.metrics.caller_gone(ONE)

    successor = Worker(ONE.instance)
    again = await kept.series(successor, await kept.hold(successor))

    assert await kept.value(successor, again) == 0


async def test_a_worker_that_held_nothing_may_go(kept: Kept) -> None:
    kept.metrics.caller_gone(ONE)

    assert kept.text() == ""


@pytest.mark.parametrize("name", ["", "1x", "bad-name", "bad name", "ä", "__x", "x\n"])
async def test_impossible_family_names_are_refused(kept: Kept, name: str) -> None:
    error = await kept.refusal(ONE, "hold", name, "", COUNTER)

    assert error.message.startswith(
        f"Failed to process the request for model 'net_0_0', message: Invalid metric name: '{name}'"
    )


@pytest.mark.parametrize("name", ["", "1x", "bad-name", "__x", "x\n", "le"])
async def test_impossible_label_names_are_refused(kept: Kept, name: str) -> None:
    hold = await kept.hold(ONE, "seconds", HISTOGRAM)

    error = await kept.refusal(ONE, "series", hold, {name: "x"}, [1.0])

    assert f"Invalid label name: '{name}'" in error.message


@pytest.mark.parametrize("buckets", [[2.0, 1.0], [1.0, 1.0], [float("nan")], [float("inf"), 1.0]])
async def test_buckets_that_do_not_rise_are_refused(kept: Kept, buckets: list[float]) -> None:
    hold = await kept.hold(ONE, "seconds", HISTOGRAM)

    error = await kept.refusal(ONE, "series", hold, {}, buckets)

    assert "Bucket Boundaries must be strictly sorted" in error.message


async def test_a_family_of_another_kind_is_refused(kept: Kept) -> None:
    await kept.hold(ONE)

    error = await kept.refusal(OTHER, "hold", "tokens", "Tokens", GAUGE)

    assert "Family name already exists with different type: 'tokens' is a counter" in error.message


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nv_inference_count", COUNTER),
        ("nv_inference_pending_request_count", GAUGE),
        ("tritonpy_worker_restarts_total", COUNTER),
        ("tritonpy_event_loop_lag_seconds", HISTOGRAM),
        ("tritonpy_event_loop_lag_seconds_bucket", GAUGE),
    ],
)
async def test_names_of_the_server_are_refused(kept: Kept, name: str, kind: int) -> None:
    error = await kept.refusal(ONE, "hold", name, "", kind)

    assert error.code is ErrorCode.ALREADY_EXISTS
    assert f"'{name}' or a name made from it is used by the server itself" in error.message


async def test_a_name_that_a_histogram_of_a_model_makes_is_refused(kept: Kept) -> None:
    await kept.hold(ONE, "seconds", HISTOGRAM)

    error = await kept.refusal(OTHER, "hold", "seconds_sum", "", COUNTER)

    assert "is used by family 'seconds' of a model" in error.message


async def test_names_beside_those_of_the_server_are_free(kept: Kept) -> None:
    assert await kept.hold(ONE, "nv_trt_llm_request_metrics", GAUGE)
    assert await kept.hold(ONE, "tokens", COUNTER)
    assert await kept.hold(ONE, "tokens_total", COUNTER)
    assert await kept.hold(ONE, "vllm:tokens", COUNTER)


async def test_text_that_is_no_utf8_does_not_spoil_the_page(kept: Kept) -> None:
    hold = await kept.hold(ONE, "files", GAUGE, "odd \udc80 name")
    await kept.series(ONE, hold, name="\udc80")

    assert 'files{name="\\\\udc80"} 0' in kept.text()


async def test_a_family_without_description_has_no_help_line(kept: Kept) -> None:
    await kept.series(ONE, await kept.hold(ONE, description=""))
    kept.metrics.take()

    assert render(kept.registry).decode().startswith("# TYPE tokens counter\ntokens 0\n")
    assert "# HELP tokens" not in render(kept.registry).decode()


@pytest.mark.parametrize(
    "told",
    [
        ("change", ([(99, False, 1.0)],)),
        ("change", ([(1, [1], 1.0)],)),
        ("change", (5,)),
        ("release", (99,)),
        ("nonsense", ()),
    ],
)
async def test_what_makes_no_sense_is_logged_and_does_no_harm(
    kept: Kept, told: tuple[str, tuple[Any, ...]], caplog: pytest.LogCaptureFixture
) -> None:
    await kept.series(ONE, await kept.hold(ONE, "seconds", HISTOGRAM), [1.0])

    with caplog.at_level(logging.WARNING, "tritonpy.metrics"):
        kept.metrics.tell(ONE, *told)

    assert f"instance 'net_0_0' told of 'metrics.{told[0]}' in vain" in caplog.text


async def test_a_worker_cannot_release_what_another_holds(kept: Kept) -> None:
    await kept.series(ONE, hold := await kept.hold(ONE))

    kept.metrics.tell(OTHER, "release", (hold,))

    assert "tokens 0" in kept.text()


@pytest.mark.parametrize("asked", [("value", (99,)), ("series", (99, {}, None)), ("nonsense", ())])
async def test_questions_that_make_no_sense_are_refused(
    kept: Kept, asked: tuple[str, tuple[Any, ...]]
) -> None:
    error = await kept.refusal(ONE, asked[0], *asked[1])

    assert error.code is ErrorCode.INTERNAL
    assert f"metrics.{asked[0]}" in error.message


async def test_a_scrape_sees_the_values_of_its_moment(kept: Kept) -> None:
    series = await kept.series(ONE, await kept.hold(ONE))
    kept.metrics.take()
    kept.change(ONE, (series, False, 1.0))

    assert "\ntokens 0\n" in render(kept.registry).decode()
    kept.metrics.take()
    assert "\ntokens 1\n" in render(kept.registry).decode()
