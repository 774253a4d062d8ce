"""`corectl explain` says what would change, of our servers and of those that have statistics only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tritonpy.cli.explain_findings import mean_us
from tritonpy.cli.http_client import Answer, HttpClient
from tritonpy.cli.main import main
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_analyze.facts import facts_of_statistics, look
from tritonpy_analyze.outlook import further_findings, outlook, outlook_text
from tritonpy_sdk.repository import ModelRepository

TENSORS = {
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [2]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [2]}],
}
REPEAT = {
    "model_transaction_policy": {"decoupled": True},
    "input": [
        {"name": "IN", "data_type": "TYPE_INT32", "dims": [-1]},
        {"name": "DELAY", "data_type": "TYPE_UINT32", "dims": [-1]},
        {"name": "WAIT", "data_type": "TYPE_UINT32", "dims": [1]},
    ],
    "output": [
        {"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]},
        {"name": "IDX", "data_type": "TYPE_UINT32", "dims": [1]},
    ],
}
PHASES = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")
STEPS = [
    {"model_name": name, "model_version": -1, "input_map": {"INPUT0": a}, "output_map": {"OUTPUT0": b}}
    for name, a, b in (("quick", "INPUT0", "between"), ("slow", "between", "OUTPUT0"))
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    repository = ModelRepository(tmp_path_factory.mktemp("models"))
    batched = {"backend": "identity", "max_batch_size": 4, "dynamic_batching": {}, **TENSORS}
    repository.model("quick", batched)
    repository.model("slow", {**batched, "parameters": {"execute_delay_ms": {"string_value": "5"}}})
    repository.model("counts", {"backend": "repeat", **REPEAT})
    repository.model(
        "both",
        {"platform": "ensemble", "max_batch_size": 4, **TENSORS, "ensemble_scheduling": {"step": STEPS}},
    )
    options = ServerOptions(
        (str(repository.path),),
        http_address="127.0.0.1",
        http_port=0,
        allow_grpc=False,
        allow_metrics=False,
    )
    with Server(options) as server:
        yield f"http://127.0.0.1:{server.http_port}"


def explained(url: str, *arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["explain", *arguments, f"--url={url}"]) == 0
    return capsys.readouterr().out


def test_a_load_is_brought_and_predictions_are_made_of_it(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = explained(url, "slow", "--load=6", "--seconds=0.6", capsys=capsys)

    assert "Why batches left" in text
    assert "What would change" in text
    assert "Clients sent " in text

    [facts] = json.loads(explained(url, "slow", "--json", capsys=capsys))
    assert "config" not in facts
    assert facts["outlook"]["now"]["rows"] > 1
    two = next(
        each for each in facts["outlook"]["changes"] if each["change"] == "instance_group { count: 2 }"
    )
    assert two["most_rows_per_s"] == pytest.approx(2 * facts["outlook"]["now"]["most_rows_per_s"])


def test_an_ensemble_is_explained_by_its_steps(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = explained(url, "both", "--load=2", "--seconds=0.2", capsys=capsys)

    assert "Where its steps spend their time" in text
    assert text.index("\nslow ") < text.index("\nquick ")
    assert "The longest is 'slow': corectl explain slow" in text
    assert "What would change" not in text


def test_a_model_that_nobody_asked_gets_no_predictions(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "nothing", f"--url={url}"]) == 1
    assert "nothing" in capsys.readouterr().err
    assert main(["explain", "slow", f"--url={url}", "--model-version=7"]) == 1
    assert main(["explain", "counts", f"--url={url}", "--load=2"]) == 1
    assert "bring a load with corectl bench --streaming" in capsys.readouterr().err


class StatisticsOnly(HttpClient):
    """A server without the call that only ours has."""

    def send(self, method: str, path: str, *rest: Any, **named: Any) -> Answer:
        if path.endswith("/explain"):
            return Answer(404, {}, b'{"error":"Not Found"}', self.url)
        return super().send(method, path, *rest, **named)


def test_statistics_alone_tell_the_same_numbers(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    explained(url, "slow", "--load=3", "--seconds=0.2", capsys=capsys)
    with_explain, without = HttpClient(url, 30), StatisticsOnly(url, 30)

    [ours], [theirs] = look(with_explain, "slow", ""), look(without, "slow", "")
    with_explain.close()
    without.close()

    for key in ("name", "version", "scheduler", "max_batch_size", "batch_sizes", "inferences", "executions"):
        assert theirs[key] == ours[key], key
    assert len(theirs["instances"]) == len(ours["instances"])
    assert theirs["seconds"] is None
    for phase in ("queue", "compute_infer", "success"):
        assert mean_us(theirs, phase) == pytest.approx(mean_us(ours, phase))


def facts(**changed: Any) -> dict[str, Any]:
    """A model at 90 % of what one instance can do."""
    plain = {
        "name": "m",
        "version": "1",
        "scheduler": {"kind": "default", "settings": {}},
        "max_batch_size": 8,
        "strategy": None,
        "seconds": 10.0,
        "closed": {},
        "batch_sizes": {"1": {"count": 900, "ns": 900 * 10_000_000}},
        "requests": dict.fromkeys(
            ("success", "queue", "compute_input", "compute_infer", "compute_output"), 900
        )
        | {"fail": 0},
        "durations_ns": {
            "success": 900 * 60_000_000,
            "fail": 0,
            "queue": 900 * 50_000_000,
            "compute_input": 900 * 4_000_000,
            "compute_infer": 900 * 5_000_000,
            "compute_output": 900 * 1_000_000,
        },
        "inferences": 900,
        "executions": 900,
        "failures": {},
        "cache": {"hits": 0, "misses": 0},
        "pending": 0,
        "instances": [{"name": "m_0", "is_ready": True, "executing": 1}],
        "config": {},
    }
    return plain | changed


def test_findings_have_numbers() -> None:
    limited = {"instance_group": [{"rate_limiter": {"resources": [{"name": "R1", "count": 1}]}}]}
    slow = facts(cache={"hits": 1, "misses": 899}, config=limited, seconds=20.0)

    found = list(further_findings(slow, outlook(slow)))

    texts = [each["finding"] for each in found]
    assert texts[0] == "Of 10 ms of computing, 5 ms bring tensors in and out."
    assert texts[1].startswith("The cache had the answer of 1 of 900 requests")
    assert texts[2] == (
        "Requests wait 50 ms though instances are busy only 45% of the time, and they need the resources R1."
    )
    assert "by the queueing model below" in texts[3]


def test_of_one_batch_size_larger_ones_are_told_at_best() -> None:
    found = outlook(facts())

    assert found is not None
    assert found.traffic.requests_per_s == 90
    named = dict(found.others)
    assert "dynamic_batching { }, at best" in named
    assert named["dynamic_batching { }, at best"].most_rows_per_s == pytest.approx(800)
    assert "Only batches of 1 row were seen" in outlook_text(found)


def test_clients_that_wait_for_answers_keep_the_most_a_second_busy() -> None:
    """Two instances do 200 in a second, so that six requests at once take 30 ms, however seldom they come."""
    asked, known = outlook(facts()), outlook(facts(), 6)

    assert asked is not None
    assert known is not None
    change = "instance_group { count: 2 }"
    assert dict(asked.others)[change].latency_us < 30_000
    assert dict(known.others)[change].latency_us == pytest.approx(30_000)
    assert known.others[0][1].latency_us == min(each.latency_us for _, each in known.others)
    assert "With 6 requests always under way" in outlook_text(known)
    assert outlook(facts(cache={"hits": 1, "misses": 899}), 6) == outlook(
        facts(cache={"hits": 1, "misses": 899})
    )


def test_where_the_model_of_queues_does_not_describe_what_was_measured_it_says_so() -> None:
    """Full batches though instances are idle: clients that send together."""
    sizes = {str(size): {"count": count, "ns": count * 1_000_000} for size, count in ((1, 10), (8, 112))}
    batched = {"kind": "dynamic_batching", "settings": {}}
    together = facts(batch_sizes=sizes, scheduler=batched, executions=122)

    found = outlook(together)

    assert found is not None
    assert not found.fits
    assert "cannot be told" in outlook_text(found)
    assert not [each for each in further_findings(together, found) if "queueing model" in each["finding"]]


@pytest.mark.parametrize(
    "changed",
    [
        {"scheduler": {"kind": "sequence_batching", "settings": {}}},
        {"instances": []},
        {"seconds": 0.0},
        {"batch_sizes": {}},
        {"requests": dict.fromkeys(facts()["requests"], 3)},
    ],
)
def test_where_the_model_of_queues_does_not_hold_nothing_is_predicted(changed: dict[str, Any]) -> None:
    assert outlook(facts(**changed)) is None


def test_what_triton_leaves_out_is_empty() -> None:
    found = facts_of_statistics(
        {"name": "m", "version": "3", "inference_stats": {}},
        {"instance_group": [{"name": "g", "count": 2, "gpus": [0, 1]}]},
    )

    assert (found["version"], found["executions"], found["closed"]) == ("3", 0, {})
    assert len(found["instances"]) == 4
    assert found["scheduler"]["kind"] == "default"
    assert outlook(found) is None


def test_explain_is_as_before_where_this_distribution_is_not_installed(tmp_path: Path) -> None:
    from tritonpy.cli import main as command_line

    group = command_line.LazyGroup("corectl")
    group._asked_plugins = True  # none is there
    command = group.get_command(None, "explain")  # type: ignore[arg-type]

    assert command is not None
    assert "--load" not in [option for each in command.params for option in each.opts]
