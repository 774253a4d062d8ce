"""What `corectl explain` says of the trials of an analysis."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tritonpy.cli.main import main
from tritonpy.errors import InvalidArg
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_analyze.analysis import Trial
from tritonpy_analyze.checkpoint import Checkpoint
from tritonpy_analyze.goal import WORST
from tritonpy_analyze.histogram import Histogram
from tritonpy_analyze.measured import CHECKPOINT, measured_findings, measured_text, read_measured
from tritonpy_analyze.measurement import Window
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S

CONFIG: dict[str, Any] = {
    "name": "m",
    "backend": "identity",
    "max_batch_size": 8,
    "instance_group": [{"count": 1}],
    "dynamic_batching": {},
}


def trial(choice: Mapping[str, Any], rate: int, latency_us: float, **more: Any) -> Trial:
    window = Window(
        1.0,
        rate,
        latency=Histogram.weighted([(latency_us, rate)], latency_us * rate),
        memory_byte_size=64 << 20,
    )
    return Trial(choice, () if more.get("error") else (window,), WORST, **more)


def analysis(
    folder: Path,
    *trials: Trial,
    models: tuple[str, ...] = ("m",),
    settled: dict[str, Any] | None = None,
) -> Path:
    subject = {"models": dict.fromkeys(models, CONFIG), "settled": settled or {}, "asked": list(models)}
    checkpoint = Checkpoint(folder / CHECKPOINT, subject)
    for each in trials:
        checkpoint.add({**each.json(), "goal": ""})
    checkpoint.close()
    return folder


def point(instances: int, rows: int, concurrency: int) -> dict[str, int]:
    return {"m.instances": instances, "m.max_batch_size": rows, "concurrency": concurrency}


TRIALS = (
    trial(point(1, 8, 4), 100, 9000),
    trial(point(2, 8, 4), 180, 5000),
    trial(point(2, 16, 4), 170, 5500),
    trial(point(1, 16, 4), 90, 3000),
    trial(point(1, 8, 32), 120, 50_000),
    trial(point(2, 8, 32), 300, 70_000),
    trial(point(3, 8, 32), 1000, 1, error="no room"),
)


def test_changes_stand_beside_what_is_served_now_under_the_load_that_it_has(tmp_path: Path) -> None:
    folder = analysis(tmp_path, *TRIALS)

    found = read_measured(folder, "m", lambda model: CONFIG, clients=4)

    assert found is not None
    assert (found.load, found.trial_count) == ("concurrency=4", 6)
    assert found.now is not None
    assert found.now.metric("throughput") == 100
    assert [text for text, _ in found.others] == [
        "instances=2",
        "instances=2 max_batch_size=16",
        "max_batch_size=16",
    ]
    lines = measured_text(found).splitlines()
    assert "of m at concurrency=4, 6 trials in all, " in lines[0]
    assert lines[2].split()[:4] == ["as", "it", "is", "100"]
    assert lines[3].split() == ["instances=2", "180", "(+80%)", "5", "ms", "5", "ms", "(-44%)", "64", "MiB"]
    [finding] = measured_findings(found)
    assert finding["finding"].startswith(
        "corectl analyze measured 180 inferences a second and a p99 of 5 ms with instances=2, instead of 100 "
    )
    assert json.loads(json.dumps(found.json()))["changes"][0]["metrics"]["throughput"] == 180


def test_of_two_measurements_that_of_the_model_as_it_was_loaded_counts(tmp_path: Path) -> None:
    loaded = trial(point(1, 8, 4), 110, 8000, is_now=True)

    found = read_measured(analysis(tmp_path, *TRIALS, loaded), "m", lambda model: CONFIG, clients=4)

    assert found is not None
    assert found.now is not None
    assert found.now.metric("throughput") == 110


def test_without_a_known_load_it_is_that_where_what_is_served_does_most(tmp_path: Path) -> None:
    found = read_measured(analysis(tmp_path, *TRIALS), "m", lambda model: CONFIG)

    assert found is not None
    assert found.load == "concurrency=32"
    [finding] = measured_findings(found)  # 300 a second, but slower
    assert finding["finding"].startswith(
        "Of 2 trials of corectl analyze at concurrency=32, none did over 5% more"
    )


def test_what_is_served_may_not_have_been_tried(tmp_path: Path) -> None:
    other = {**CONFIG, "instance_group": [{"count": 7}]}

    found = read_measured(analysis(tmp_path, *TRIALS), "m", lambda model: other)

    assert found is not None
    assert found.now is None
    assert measured_findings(found) == []
    text = measured_text(found)
    assert text.endswith("What is served now was not tried under this load.")
    assert "%" not in text


def test_an_analysis_of_other_models_or_without_a_measurement_says_nothing(tmp_path: Path) -> None:
    others = analysis(tmp_path / "others", *TRIALS, models=("other",))
    nothing = analysis(tmp_path / "nothing", TRIALS[-1])

    assert read_measured(others, "m", lambda model: CONFIG) is None
    assert read_measured(nothing, "m", lambda model: CONFIG) is None


def test_a_line_that_is_cut_off_is_left_out(tmp_path: Path) -> None:
    folder = analysis(tmp_path, *TRIALS[:2])
    path = folder / CHECKPOINT
    os.truncate(path, path.stat().st_size - 9)

    found = read_measured(folder, "m", lambda model: CONFIG)

    assert found is not None
    assert found.trial_count == 1


@pytest.mark.parametrize("content", ["what\n", "[]\n", '{"models": ["m"]}\n'])
def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / CHECKPOINT).write_text(content)

    with pytest.raises(InvalidArg, match="is no checkpoint of corectl analyze"):
        read_measured(tmp_path, "m", lambda model: CONFIG)


def test_a_better_one_is_found_though_many_do_more(tmp_path: Path) -> None:
    trials = (
        trial(point(1, 8, 4), 100, 10_000),
        trial(point(2, 4, 4), 130, 8000),
        *(trial(point(instances, 4, 4), 120 + 10 * instances, 90_000) for instances in (3, 4, 5)),
        trial(point(2, 2, 4), 90, 7000),
        *(trial(point(instances, 8, 4), 150 + instances, 90_000) for instances in range(2, 12)),
    )

    found = read_measured(analysis(tmp_path, *trials), "m", lambda model: CONFIG)

    assert found is not None
    assert "instances=2 max_batch_size=4" in dict(found.others)
    [finding] = measured_findings(found)
    assert (
        "measured 130 inferences a second and a p99 of 7.98 ms with instances=2 max_batch_size=4,"
        in finding["finding"]
    )
    assert finding["advice"] == "Serve it with instances=2 max_batch_size=4."


@pytest.mark.parametrize(
    ("setting", "value", "config"),
    [
        (
            "config.dynamic_batching.preserve_ordering",
            True,
            {**CONFIG, "dynamic_batching": {"preserve_ordering": True}},
        ),
        ("instances", 2, {**CONFIG, "instance_group": [{"name": "m_0", "count": 2}]}),
        ("preferred_batch_size", None, {**CONFIG, "dynamic_batching": {"preferred_batch_size": [8]}}),
        ("parameters.alpha", 0.5, {**CONFIG, "parameters": {"alpha": {"string_value": "0.5"}}}),
    ],
)
def test_what_is_served_is_recognized_by_its_whole_configuration(
    tmp_path: Path, setting: str, value: Any, config: dict[str, Any]
) -> None:
    trials = (
        trial({f"m.{setting}": value, "concurrency": 4}, 200, 9000),
        trial({f"m.{setting}": 3, "m.instances": 4, "concurrency": 4}, 100, 9000),
    )

    folder = analysis(tmp_path, *trials, settled={"m": CONFIG})
    found = read_measured(folder, "m", lambda model: config)

    assert found is not None
    assert found.now is not None
    assert found.now.metric("throughput") == 200


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (
            {**CONFIG, "backend": "repeat"},
            "What is served now differs from what was analyzed, in m.backend, and was not tried.",
        ),
        ({}, "m is not loaded now."),
    ],
)
def test_numbers_of_something_else_are_not_of_what_is_served(
    tmp_path: Path, config: dict[str, Any], why: str
) -> None:
    folder = analysis(tmp_path, *TRIALS)

    found = read_measured(folder, "m", lambda model: config)

    assert found is not None
    assert found.now is None
    assert measured_findings(found) == []
    assert measured_text(found).endswith(why)


def test_a_checkpoint_that_was_only_begun_says_nothing(tmp_path: Path) -> None:
    (tmp_path / CHECKPOINT).write_text("")

    assert read_measured(tmp_path, "m", lambda model: CONFIG) is None


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    repository = ModelRepository(tmp_path_factory.mktemp("models"))
    tensor = {"data_type": "TYPE_FP32", "dims": [2]}
    repository.model(
        "m",
        {
            **CONFIG,
            "input": [{"name": "INPUT0", **tensor}],
            "output": [{"name": "OUTPUT0", **tensor}],
        },
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


def test_explain_reads_the_analysis_that_is_there(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["explain", "m", f"--url={url}"]) == 0
    assert "analyze" not in capsys.readouterr().out

    with urlopen(f"{url}/v2/models/m/config", timeout=DEADLINE_S) as answer:
        served = {"m": json.load(answer)}
    analysis(tmp_path / "analysis", *TRIALS[:4], settled=served)
    assert main(["explain", "m", f"--url={url}"]) == 0
    out = capsys.readouterr().out
    assert "* corectl analyze measured 180 inferences a second" in out
    assert f"4 trials in all, {time.strftime('%Y-')}" in out

    (tmp_path / "analysis").rename(tmp_path / "elsewhere")
    assert main(["explain", "m", f"--url={url}", "--analysis=elsewhere", "--json"]) == 0
    [facts] = json.loads(capsys.readouterr().out)
    assert facts["analysis"]["now"]["throughput"] == 100

    assert main(["explain", "m", f"--url={url}", "--analysis=analysis"]) == 1
    assert "--analysis 'analysis': checkpoint.jsonl: No such file" in capsys.readouterr().err

    (tmp_path / "analysis").mkdir()
    (tmp_path / "analysis" / CHECKPOINT).write_text("what\n")
    assert main(["explain", "m", f"--url={url}"]) == 0  # nobody asked for it
    out, err = capsys.readouterr()
    assert "Instances" in out
    assert "checkpoint.jsonl' is no checkpoint of corectl analyze" in err
    assert main(["explain", "m", f"--url={url}", "--load=2", "--analysis=analysis"]) == 1
    assert "--analysis 'analysis': 'analysis/checkpoint.jsonl' is no checkpoint" in capsys.readouterr().err
