"""`corectl analyze` and `explain` with a real Triton."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest
from tritonpy.cli.main import main
from tritonpy_sdk.repository import ModelRepository

CONFIG = """
    backend: "python"
    max_batch_size: 8
    dynamic_batching { }
    input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 2 ] }
    output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 2 ] }
"""
MODEL = """
    import time
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            time.sleep(0.002)
            tensors = [pb_utils.get_input_tensor_by_name(request, "INPUT0") for request in requests]
            outputs = [pb_utils.Tensor("OUTPUT0", tensor.as_numpy()) for tensor in tensors]
            return [pb_utils.InferenceResponse([output]) for output in outputs]
"""


@pytest.mark.parity
def test_triton_is_given_configurations_and_keeps_its_own_and_is_explained(
    real_triton: Callable[..., dict[str, int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    repository = ModelRepository(tmp_path / "models")
    repository.python("echo", MODEL, CONFIG)
    ports = real_triton(repository.path, "--model-control-mode=explicit", "--load-model=echo")
    url = f"127.0.0.1:{ports['http']}"

    status = main(
        [
            *("analyze", "echo", f"--url={url}", f"--metrics-url=127.0.0.1:{ports['metrics']}", "--json"),
            *("--set=max_batch_size=2,4", "--concurrency=6", "--search=brute", "--window=0.2", "--windows=2"),
        ]
    )
    document = json.loads(capsys.readouterr().out)
    with urlopen(f"http://{url}/v2/models/echo/config", timeout=60) as answer:
        after = json.load(answer)

    assert status == 0
    tried = {trial["choice"]["echo.max_batch_size"]: trial for trial in document["trials"]}
    assert set(tried) == {2, 4, 8}  # 8 is the configuration of now
    assert max(map(int, tried[2]["batch_sizes"])) == 2
    assert all(trial["metrics"]["memory"] for trial in tried.values())
    assert after["max_batch_size"] == 8

    assert main(["explain", "echo", f"--url=http://{url}", "--load=4", "--seconds=0.5"]) == 0
    text = capsys.readouterr().out
    assert "Scheduler   dynamic batching, up to 8 rows" in text
    assert "Rows of a batch" in text
    assert "What would change" in text
