"""`corectl analyze` and `explain` with a real Triton."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest
from tritonpy.cli.main import main
from tritonpy_analyze.composing import traced_models
from tritonpy_bench import Load, Stability, measure
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

CONFIG = """
    backend: "python"
    max_batch_size: 8
    dynamic_batching { }
    input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 2 ] }
    output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 2 ] }
"""
CALLER = """
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            responses = []
            for request in requests:
                call = pb_utils.InferenceRequest(
                    model_name="echo",
                    requested_output_names=["OUTPUT0"],
                    inputs=[pb_utils.get_input_tensor_by_name(request, "INPUT0")],
                    trace=request.trace(),
                )
                responses.append(pb_utils.InferenceResponse(call.exec().output_tensors()))
            return responses
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


@pytest.mark.parity
def test_traces_of_triton_say_what_a_model_calls(
    real_triton: Callable[..., dict[str, int]], tmp_path: Path
) -> None:
    repository = ModelRepository(tmp_path / "models")
    repository.python("echo", MODEL, CONFIG)
    repository.python("caller", CALLER, CONFIG)
    # Triton ends a file only when it has so many traces, of which a request to the caller is two.
    words = (f"triton,file={tmp_path / 'traces'}", "triton,log-frequency=2", "level=TIMESTAMPS", "rate=1")
    ports = real_triton(repository.path, *(f"--trace-config={word}" for word in words))
    load = Load(model="caller", url=f"127.0.0.1:{ports['http']}")

    assert measure(load, Stability(request_count=4)).error_count == 0

    until(lambda: (tmp_path / "traces.1").exists())
    assert traced_models([tmp_path / "traces.0"], ["caller"]) == ["echo"]
