"""Models that other models call, as traces tell of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tritonpy.cli.main import main
from tritonpy.errors import InvalidArg
from tritonpy.tracing.summary import read_trace
from tritonpy_analyze.composing import called_by, calls_in, trace_options, traced_models
from tritonpy_bench import Load, Stability, measure
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import ServerProcess

TENSORS = {
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [2]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [2]}],
}
CALLER = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0")
            call = pb_utils.InferenceRequest(
                model_name="called",
                requested_output_names=["OUTPUT0"],
                inputs=[tensor],
                trace=request.trace(),
            )
            responses.append(pb_utils.InferenceResponse(call.exec().output_tensors()))
        return responses
"""


def traces(path: Path, *requests: tuple[int, str, int]) -> Path:
    """A file with requests of a number, a model and the number of the parent."""
    entries = [{"id": number, "model_name": model, "parent_id": parent} for number, model, parent in requests]
    path.write_text(json.dumps(entries))
    return path


def test_calls_are_followed_from_those_that_are_asked(tmp_path: Path) -> None:
    path = traces(
        tmp_path / "traces.json",
        (1, "front", 0),
        (2, "crop", 1),
        (3, "read", 2),
        (4, "front", 0),
        (5, "read", 4),
        (6, "other", 0),
        (7, "hidden", 6),
        (8, "lost", 99),
    )

    calls = calls_in(read_trace(path.read_text(), "traces"))

    assert calls == {"front": {"crop", "read"}, "crop": {"read"}, "other": {"hidden"}}
    assert called_by(["front"], calls) == ["crop", "read"]
    assert called_by(["front", "crop"], calls) == ["read"]
    assert called_by(["read"], calls) == []
    assert called_by(["a"], {"a": {"b"}, "b": {"a"}}) == ["b"]


def test_several_files_are_one(tmp_path: Path) -> None:
    one = traces(tmp_path / "0.json", (1, "front", 0), (2, "crop", 1))
    two = traces(tmp_path / "1.json", (1, "front", 0), (2, "read", 1), (3, "late", 9))
    three = traces(tmp_path / "2.json", (9, "read", 0))

    assert traced_models([one, two], ["front"]) == ["crop", "read"]
    assert traced_models([one, two, three], ["front"]) == ["crop", "late", "read"]
    assert traced_models([], ["front"]) == []
    with pytest.raises(
        InvalidArg, match=r"--trace-file '.*0.json': it has no request to model 'x', but to crop, f"
    ):
        traced_models([one], ["x"])


def test_what_a_traced_model_calls_is_searched_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = ModelRepository(tmp_path / "models")
    repository.python("caller", CALLER, {"backend": "python", **TENSORS})
    repository.model("called", {"backend": "identity", **TENSORS})
    repository.model("idle", {"backend": "identity", **TENSORS})
    file = tmp_path / "traces.json"
    with ServerProcess("--model-repository", repository.path, *trace_options(file)) as server:
        load = Load(model="caller", url=f"127.0.0.1:{server.http_port}")
        assert measure(load, Stability(request_count=2)).error_count == 0

    status = main(
        [
            *("analyze", "caller", f"--model-repository={repository.path}", f"--trace-file={file}"),
            *(
                "--set=instances=1",
                "--concurrency=1",
                "--window=0.1",
                "--windows=1",
                "--in-process",
                "--json",
            ),
            f"--work-dir={tmp_path / 'analysis'}",
        ]
    )

    out, err = capsys.readouterr()
    assert status == 0, err
    assert set(json.loads(out)["configurations"]) == {"caller", "called"}
