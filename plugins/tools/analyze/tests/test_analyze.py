"""`corectl analyze` with servers of its own: what it prints, writes, applies and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy.cli.main import main
from tritonpy.errors import InvalidArg, Unavailable
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_analyze.models import model_of
from tritonpy_analyze.servers import RemoteServer
from tritonpy_analyze.workload import Workload
from tritonpy_sdk.repository import ModelRepository

Run = Callable[..., tuple[int, str, str]]

TENSORS = {
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [2]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [2]}],
}
IDENTITY = {"backend": "identity", "max_batch_size": 4, **TENSORS}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelRepository:
    monkeypatch.chdir(tmp_path)
    return ModelRepository(tmp_path / "models")


@pytest.fixture
def run(repository: ModelRepository, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `corectl analyze` with short windows; returns status, output and errors."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        short = ("--window=0.1", "--windows=1", f"--model-repository={repository.path}")
        status = main(["analyze", *short, *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def test_each_configuration_is_tried_and_the_best_one_is_applied_on_request(
    run: Run, repository: ModelRepository, tmp_path: Path
) -> None:
    slow = {**IDENTITY, "parameters": {"execute_delay_ms": {"string_value": "20"}}}
    path = repository.model("wait", slow) / "config.pbtxt"
    before = path.read_text()
    tried = ("wait", "--set=instances=1,2", "--concurrency=2", "--search=brute")

    status, out, err = run(*tried, "--in-process")

    assert (status, err) == (0, "")
    assert path.read_text() == before
    assert out.splitlines()[0].split()[:3] == ["rank", "instances", "throughput"]
    assert "2 of 2 points tried for throughput" in out
    assert "against the configuration of now: throughput" in out
    assert "config.pbtxt of wait:\n" in out
    assert "count: 2" in out
    assert "wrote analysis/report.html" in out
    assert (tmp_path / "analysis/report.html").read_text().count("<circle") == 2

    status, out, _ = run(*tried, "--in-process", "--apply")

    assert status == 0
    assert "2 of them before" in out
    assert f"wrote {path}, kept the old one as config.pbtxt.bak" in out
    assert path.with_name("config.pbtxt.bak").read_text() == before
    assert "count: 2" in path.read_text()

    status, _, err = run(*tried, "--in-process")

    assert status == 1
    assert "of another search: models differ. Give another folder" in err


def test_a_server_of_its_own_tells_memory_processor_and_batch_sizes(
    run: Run, repository: ModelRepository
) -> None:
    repository.model("copy", IDENTITY)

    status, out, err = run("copy", "--set=max_batch_size=4", "--concurrency=3", "--json")

    document = json.loads(out)
    assert status == 0
    assert err == "wrote analysis/report.html\n"
    [trial] = [each for each in document["trials"] if not each["is_now"]]
    assert trial["choice"] == {"copy.max_batch_size": 4, "concurrency": 3}
    assert trial["metrics"]["memory"] > 10
    assert trial["metrics"]["cpu"] > 0
    assert trial["metrics"]["gpu_memory"] is None
    assert sum(trial["batch_sizes"].values()) > 0
    assert "dynamic_batching" in document["configurations"]["copy"] or document["best"]["is_now"]


def test_a_configuration_that_a_server_refuses_is_told_and_the_others_are_ranked(
    run: Run, repository: ModelRepository
) -> None:
    repository.model("copy", IDENTITY)

    status, out, _ = run(
        "copy", "--set=config.version_policy.latest.num_versions=1,0", "--concurrency=1", "--search=brute"
    )

    assert status == 0
    assert "1 could not be served" in out
    assert "not served: the server ended with status 1: " in out


def test_nothing_is_written_where_no_point_keeps_the_constraints(
    run: Run, repository: ModelRepository
) -> None:
    path = repository.model("copy", IDENTITY) / "config.pbtxt"
    before = path.read_text()

    status, out, err = run(
        "copy",
        *("--set=instances=1,2", "--concurrency=1", "--search=brute", "--in-process"),
        *("--max=latency_p99=1us", "--apply"),
    )

    assert status == 1
    assert "misses latency_p99" in out
    assert "no point keeps the constraints" in err
    assert path.read_text() == before


def test_the_steps_of_an_ensemble_are_searched_together(run: Run, repository: ModelRepository) -> None:
    repository.model("first", IDENTITY)
    repository.model("second", IDENTITY)
    steps = [
        {
            "model_name": "first",
            "model_version": -1,
            "input_map": {"INPUT0": "IN"},
            "output_map": {"OUTPUT0": "between"},
        },
        {
            "model_name": "second",
            "model_version": -1,
            "input_map": {"INPUT0": "between"},
            "output_map": {"OUTPUT0": "OUT"},
        },
    ]
    repository.model(
        "both",
        {
            "platform": "ensemble",
            "max_batch_size": 4,
            "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [2]}],
            "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [2]}],
            "ensemble_scheduling": {"step": steps},
        },
    )

    status, out, err = run(
        "both",
        *("--set=first.max_batch_size=2,4", "--set=second.instances=1,2", "--concurrency=2"),
        *("--search=brute", "--in-process", "--json"),
    )

    assert status == 0, err
    document = json.loads(out)
    assert document["points"] == 4
    assert len(document["trials"]) in (4, 5)  # and the configuration of now
    assert all(trial["metrics"]["throughput"] for trial in document["trials"])
    best = document["best"]["choice"]
    assert document["configurations"]["both"]["max_batch_size"] == best["first.max_batch_size"]


def test_models_that_a_python_model_calls_are_found_and_searched_with_it(
    run: Run, repository: ModelRepository
) -> None:
    repository.python(
        "caller",
        """
        import triton_python_backend_utils as pb_utils

        class TritonPythonModel:
            def execute(self, requests):
                responses = []
                for request in requests:
                    tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0")
                    call = pb_utils.InferenceRequest(
                        model_name="called", requested_output_names=["OUTPUT0"], inputs=[tensor],
                        trace=request.trace(),
                    )
                    responses.append(pb_utils.InferenceResponse(call.exec().output_tensors()))
                return responses
        """,
        {"backend": "python", "max_batch_size": 4, **TENSORS},
    )
    repository.model("called", IDENTITY)
    repository.model("idle", IDENTITY)
    (repository.model("broken", IDENTITY) / "config.pbtxt").write_text("max_batch_size: what")

    status, out, err = run(
        "caller", "--set=max_batch_size=4", "--set=called.instances=2", "--concurrency=1", "--json"
    )

    assert status == 0, err
    document = json.loads(out)
    assert set(document["configurations"]) == {"caller", "called"}
    assert "model 'called' is searched, too: caller called it" in err
    # The second one is the configuration of now.
    assert sorted(trial["choice"]["called.instances"] for trial in document["trials"]) == [1, 2]


def test_a_decoupled_model_is_asked_over_streams_and_its_first_response_counts(
    run: Run, repository: ModelRepository
) -> None:
    repository.python(
        "counts",
        """
        import numpy as np
        import triton_python_backend_utils as pb_utils

        class TritonPythonModel:
            def execute(self, requests):
                for request in requests:
                    sender = request.get_response_sender()
                    for number in range(4):
                        tensor = pb_utils.Tensor("OUTPUT0", np.array([[number, 0]], np.float32))
                        sender.send(pb_utils.InferenceResponse([tensor]))
                    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        """,
        {
            "backend": "python",
            "max_batch_size": 4,
            "model_transaction_policy": {"decoupled": True},
            **TENSORS,
        },
    )

    status, out, err = run(
        *("counts", "--set=instances=1", "--concurrency=2", "--in-process", "--json"),
        "--objective=responses,first_response_p99",
    )

    assert status == 0, err
    metrics = json.loads(out)["best"]["metrics"]
    assert metrics["first_response_p50"] <= metrics["latency_p50"]
    assert metrics["between_responses_avg"] > 0
    assert metrics["responses"] > 2 * metrics["throughput"]


def test_requests_come_at_a_rate(run: Run, repository: ModelRepository) -> None:
    repository.model("copy", IDENTITY)

    status, out, err = run("copy", "--set=instances=1", "--rate=100,200", "--in-process", "--search=brute")

    assert status == 0, err
    assert "2 of 2 points tried" in out
    assert out.splitlines()[0].split()[1] == "rate"
    assert run("copy", "--rate=5", "--concurrency=5")[0] == 1


def test_a_rate_that_is_not_kept_is_told_and_ranked_behind_one_that_is(
    run: Run, repository: ModelRepository
) -> None:
    waits = {"execute_delay_ms": {"string_value": "5"}}  # 200 in a second
    repository.model("wait", {**IDENTITY, "max_batch_size": 0, "parameters": waits})

    status, out, err = run(
        *("wait", "--set=instances=1", "--rate=50,800", "--in-process", "--search=brute", "--json"),
        "--window=0.2",
    )

    assert status == 0, err
    kept, missed = json.loads(out)["trials"]
    assert (kept["choice"]["rate"], kept["keeps_constraints"], kept["metrics"]["unanswered"]) == (50, True, 0)
    assert (missed["choice"]["rate"], missed["keeps_constraints"]) == (800, False)
    assert 0.5 < missed["metrics"]["unanswered"] < 1
    assert missed["metrics"]["failed"] == 0


def test_several_models_are_asked_at_the_same_time(run: Run, repository: ModelRepository) -> None:
    repository.model("one", IDENTITY)
    repository.model("two", IDENTITY)

    status, out, _ = run(
        *("one", "two", "--set=instances=1", "--concurrency=2", "--in-process", "--max=memory=90GiB"),
    )

    assert status == 0
    assert "one.throughput" in out
    assert "two.throughput" in out
    assert "the configuration of now is the best" not in out


def test_a_running_server_is_given_each_configuration_and_its_own_at_the_end(
    repository: ModelRepository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.model("copy", IDENTITY)
    options = ServerOptions(
        (str(repository.path),),
        http_address="127.0.0.1",
        http_port=0,
        allow_grpc=False,
        metrics_address="127.0.0.1",
        metrics_port=0,
        model_control_mode="explicit",
    )
    with Server(options) as server:
        url = f"127.0.0.1:{server.http_port}"
        common = ["analyze", "copy", f"--url={url}", "--window=0.2", "--windows=1", "--concurrency=2"]

        status = main(
            [
                *common,
                *("--set=max_batch_size=2,3", "--search=brute", "--json"),
                f"--metrics-url=127.0.0.1:{server.metrics_port}",
            ]
        )
        document = json.loads(capsys.readouterr().out)
        after = server.runtime.dataplane.find("copy").config["max_batch_size"]
        refused = main([*common, "--apply"])

    assert (status, after, refused) == (0, 4, 1)
    # 4 is what it has now.
    assert sorted(trial["choice"]["copy.max_batch_size"] for trial in document["trials"]) == [2, 3, 4]
    assert all(trial["metrics"]["memory"] for trial in document["trials"])
    assert "--apply writes into a local repository" in capsys.readouterr().err


def test_each_model_of_a_running_server_is_restored_though_others_fail() -> None:
    asked: list[tuple[str, str]] = []

    class Refuses(RemoteServer):
        def _ask(self, name: str, action: str, body: dict[str, Any]) -> None:
            asked.append((name, action))
            if name == "one":
                raise InvalidArg(f"no {action}")

    models = {name: model_of({"name": name}, "identity") for name in ("one", "two")}
    server = Refuses("127.0.0.1:1", Workload(("one",)), models=models)

    with pytest.raises(Unavailable, match="models are not as they were: no unload; no load"):
        server.restore()

    assert asked == [("two", "unload"), ("one", "unload"), ("one", "load"), ("two", "load")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "model 'nothing' is in no repository; looked in"),
        (("copy", "copy"), "a model is named twice"),
        (("copy", "--set=instances"), "expected SETTING=VALUES"),
        (("copy", "--set=speed=1"), "there is no setting 'speed'"),
        (("copy", "--objective=speed"), "'speed' is no metric"),
        (("copy", "--max=latency_p99=fast"), "got 'fast', expected a number"),
        (("copy", "--shape=INPUT0"), "expected INPUT:DIMS"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_started(
    run: Run, repository: ModelRepository, arguments: tuple[str, ...], message: str
) -> None:
    repository.model("copy", IDENTITY)

    status, out, err = run(*arguments)

    assert (status, out) == (1, "")
    assert message in err
