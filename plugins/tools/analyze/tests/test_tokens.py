"""Elements of an output as metrics of a search."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from tritonpy.cli.main import main
from tritonpy_analyze.histogram import Histogram
from tritonpy_analyze.measurement import Window, together, window_of
from tritonpy_sdk.repository import ModelRepository

GAPS = Histogram.weighted([(500.0, 3)], 1500.0)


def test_tokens_are_a_rate_and_the_times_between_them() -> None:
    one, two = (Window(2.0, 1, tokens=tokens, between_tokens=GAPS) for tokens in (10, 30))

    both = together([one, two])

    assert (both.metric("tokens"), both.between_tokens.count) == (10.0, 6)
    assert both.metric("between_tokens_avg") == pytest.approx(500)
    assert math.isnan(Window(1.0, 1).metric("tokens"))


def test_windows_of_earlier_checkpoints_have_none() -> None:
    window = Window(2.0, 1, tokens=10, between_tokens=GAPS)
    found = json.loads(json.dumps(window.json()).replace("NaN", "null"))
    earlier = {key: value for key, value in found.items() if "tokens" not in key}

    assert window_of(found).metric("tokens") == 5
    assert window_of(found).between_tokens.count == 3
    assert math.isnan(window_of(earlier).metric("tokens"))


def test_a_search_for_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tensor = {"data_type": "TYPE_INT32", "dims": [1]}
    ModelRepository(tmp_path / "models").model(
        "square",
        {
            "backend": "square",
            "model_transaction_policy": {"decoupled": True},
            "input": [{"name": "IN", **tensor}],
            "output": [{"name": "OUT", **tensor}],
        },
    )
    Path("data.json").write_text('{"data": [{"IN": [5]}]}')
    words = ["analyze", "square", "--model-repository=models", "--input-data=data.json", "--in-process"]
    words += ["--set=instances=1", "--concurrency=2", "--window=0.2", "--windows=1", "--json"]

    status = main([*words, "--tokens=OUT", "--objective=tokens,between_tokens_p99"])

    out, err = capsys.readouterr()
    assert status == 0, err
    metrics = json.loads(out)["best"]["metrics"]
    assert metrics["tokens"] == pytest.approx(metrics["responses"])
    assert metrics["between_tokens_avg"] >= 0  # of responses that come together it is 0, of none it is null

    assert main([*words, "--objective=tokens", "--fresh"]) == 1
    assert "objective 'tokens': nothing was measured of it" in capsys.readouterr().err

    assert main([*words, "--tokens=OUTT", "--objective=tokens", "--fresh"]) == 1
    err = capsys.readouterr().err
    assert err.strip().endswith("--tokens 'OUTT': model 'square' has the outputs OUT"), err
