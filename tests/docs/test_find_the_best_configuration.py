"""What the page on the best configuration shows is what `corectl analyze` prints."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy.cli.main import main
from tritonpy_analyze.cases import cases
from tritonpy_analyze.measurement import METRICS
from tritonpy_analyze.overrides import SETTINGS
from tritonpy_analyze.plan import read_plan
from tritonpy_analyze.queueing import ServiceTime, Settings, changes
from tritonpy_sdk.repository import ModelRepository

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/find-the-best-configuration.md").read_text()
[SHOWN] = re.findall(r"^\$ corectl (analyze .*?)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
[CONFIG] = re.findall(r"```protobuf\n# models/wait/config.pbtxt\n(.*?)```", PAGE, re.DOTALL)
[EXPLAIN] = re.findall(r"^\$ corectl (explain .*)$", PAGE, re.MULTILINE)
[EXPLAINED] = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
[PLAN] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_the_command_of_the_page_shows_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    command, shown = SHOWN

    # Servers in this process, and short windows: which point is the best is chance here.
    status = main([*shlex.split(command), "--in-process", "--window=0.1", "--windows=1"])

    out = capsys.readouterr().out
    assert status == 0
    assert out.splitlines()[0].split() == shown.splitlines()[0].split()
    for number in "1234":
        assert out.count(f"\n{number} ") == shown.count(f"\n{number} ") == 1
    [line] = re.findall(r"^16 of 16 [^;]*", shown, re.MULTILINE)
    assert line in out
    assert "\nconfig.pbtxt of digits:\n" in out or "the configuration of now is the best" in out
    assert out.splitlines()[-1] == shown.splitlines()[-1]


def test_the_explanation_of_the_page_is_what_is_explained(
    served: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ModelRepository(tmp_path).model("wait", CONFIG)
    server = served("--model-repository", str(tmp_path))

    status = main([*shlex.split(EXPLAIN), f"--url=http://127.0.0.1:{server.ports['HTTPService']}"])

    out = capsys.readouterr().out
    assert status == 0
    # What is found depends on how busy the machine is.
    facts, _, found = out.partition("Findings")
    assert words(facts) == words(EXPLAINED.partition("Findings")[0])
    assert found.startswith("\n* 100% of the batches were one request each")
    assert "What would change" in found
    assert re.search(
        r"^Clients sent \d+(\.\d+)? requests a second, concurrency 6: mean ", found, re.MULTILINE
    )


def test_the_changes_of_the_page_are_those_that_are_predicted() -> None:
    named = re.findall(r"^((?:instance_group|dynamic_batching|max_).*?) {2,}", EXPLAINED, re.MULTILINE)
    service = ServiceTime(0.0, 5000.0)
    possible = [text for text, _ in changes(Settings(1, 8, 0.0, False), service)]

    assert named
    assert {name.removesuffix(", at best") for name in named} <= set(possible)


def words(text: str) -> list[str]:
    """The lines that are the same on every machine, without their numbers."""
    kept = []
    for line in text.splitlines():
        if not line.startswith("Instances"):  # how busy it is differs
            line = re.sub(r"[\d.]+(e[+-]\d+)?( ms| µs|%)?", "N", line)
            kept.append(" ".join(line.replace("█", "").split()))
    return kept


def test_the_file_of_the_page_is_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)

    assert set(read_plan(path).settings["digits"]) == {
        "instances",
        "max_batch_size",
        "parameters.inter_op_thread_count",
    }


def test_the_page_names_every_setting_metric_and_size_of_a_case() -> None:
    named = set(re.findall(r"^\| `(\w+)[=.]", PAGE, re.MULTILINE))

    assert set(SETTINGS) <= named
    assert ", ".join(str(case.space.size) for case in cases()[:2]) in PAGE
    assert f"and {cases()[2].space.size}\npoints" in PAGE
    for metric in re.findall(r"`((?:latency|gpu|memory|cpu|throughput)\w*)`", PAGE):
        assert metric in METRICS or metric == "latency", metric
