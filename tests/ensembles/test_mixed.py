"""Ensembles of models of different backends, of sequences, and of models that call ensembles."""

from __future__ import annotations

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as httpclient
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from .conftest import Start
from .models import SUM, step, tensor, write_ensemble, write_model

FLOATS = "TYPE_FP32"

# Asks the ensemble that is named, and passes its answer on.
CALLER = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.Tensor("IN", pb_utils.get_input_tensor_by_name(request, "X").as_numpy())
            answer = pb_utils.InferenceRequest(
                model_name={target!r}, inputs=[x], requested_output_names=["OUT"], request_id="called"
            ).exec()
            if answer.has_error():
                responses.append(pb_utils.InferenceResponse(error=answer.error()))
            else:
                y = pb_utils.get_output_tensor_by_name(answer, "OUT").as_numpy()
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)]))
        return responses
"""


def doubling() -> bytes:
    onnx = pytest.importorskip("onnx")
    helper, float_type = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Add", ["X", "X"], ["Y"])],
        "doubling",
        [helper.make_tensor_value_info("X", float_type, ["batch", 2])],
        [helper.make_tensor_value_info("Y", float_type, ["batch", 2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def test_onnx_between_python_models_that_prepare_and_finish(start_ours: Start, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    models = ModelRepository(tmp_path)
    floats = {"inputs": [tensor("X", [2], FLOATS)], "outputs": [tensor("Y", [2], FLOATS)]}
    for name, number in (("before", 1), ("after", 100)):
        write_model(models, name, number=number, max_batch_size=8, **floats)
    models.onnx("double", doubling())
    write_ensemble(
        models,
        "e",
        [
            step("before", {"X": "IN"}, {"Y": "T"}),
            step("double", {"X": "T"}, {"Y": "U"}),
            step("after", {"X": "U"}, {"Y": "OUT"}),
        ],
        inputs=[tensor("IN", [2], FLOATS)],
        outputs=[tensor("OUT", [2], FLOATS)],
        max_batch_size=4,
    )
    side = start_ours(tmp_path)

    assert side.outputs("e", {"IN": ([2, 2], [0, 1, 2, 3], "FP32")}) == {
        "OUT": ([2, 2], [102.0, 104.0, 106.0, 108.0])
    }
    assert side.statistics("e")["inference_count"] == side.statistics("double")["inference_count"] == 2


def test_requests_of_several_clients_are_batched_by_the_models(start_ours: Start, tmp_path: Path) -> None:
    models = ModelRepository(tmp_path)
    pair = {"inputs": [tensor("X", [1])], "outputs": [tensor("Y", [1])]}
    write_model(models, "first", max_batch_size=1, **pair)
    batching = {"preferred_batch_size": [4], "max_queue_delay_microseconds": 10_000_000}
    write_model(models, "second", max_batch_size=4, dynamic_batching=batching, **pair)
    steps = [step("first", {"X": "IN"}, {"Y": "T"}), step("second", {"X": "T"}, {"Y": "OUT"})]
    write_ensemble(models, "e", steps, max_batch_size=1)
    side = start_ours(tmp_path)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda value: side.out("e", {"IN": ([1, 1], [value])}), range(4)))

    assert answers == [[value + 2] for value in range(4)]
    assert side.statistics("second")["execution_count"] == 1
    assert [batch["batch_size"] for batch in side.statistics("e")["batch_stats"]] == [1]


def test_models_can_call_ensembles(start_ours: Start, tmp_path: Path) -> None:
    models = ModelRepository(tmp_path)
    write_model(models, "one")
    write_model(models, "caller", CALLER.format(target="inner"))
    write_ensemble(models, "inner", [step("one", {"X": "IN"}, {"Y": "OUT"})])
    write_ensemble(models, "e", [step("caller", {"X": "IN"}, {"Y": "OUT"})])
    side = start_ours(tmp_path)

    assert side.out("e", 1) == [2]


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_call_of_an_ensemble_that_needs_the_caller_is_told_at_once(
    start_ours: Start, tmp_path: Path, is_nested: bool
) -> None:
    models = ModelRepository(tmp_path)
    write_model(models, "caller", CALLER.format(target="outer" if is_nested else "inner"))
    write_ensemble(models, "inner", [step("caller", {"X": "IN"}, {"Y": "OUT"})])
    if is_nested:
        write_ensemble(models, "outer", [step("inner", {"IN": "IN"}, {"OUT": "OUT"})])
    side = start_ours(tmp_path)

    status, text = side.refusal("inner", 1)

    assert status == 500
    assert "step 0 cannot be run by model 'caller': the call of the ensemble would wait for itself" in text
    assert "'caller_0_0', which waits for the ensemble" in text


def test_a_call_that_waits_through_an_ensemble_for_its_caller_is_told_at_once(
    start_ours: Start, tmp_path: Path
) -> None:
    models = ModelRepository(tmp_path)
    write_model(models, "first", CALLER.format(target="to_second"))
    write_model(models, "second", CALLER.format(target="to_first"))
    write_ensemble(models, "to_first", [step("first", {"X": "IN"}, {"Y": "OUT"})])
    write_ensemble(models, "to_second", [step("second", {"X": "IN"}, {"Y": "OUT"})])
    side = start_ours(tmp_path)

    status, text = side.refusal("to_first", 1)

    assert status == 500
    assert "would wait for itself for ever" in text


def test_large_tensors_pass_through_steps_in_other_processes(start_ours: Start, tmp_path: Path) -> None:
    models = ModelRepository(tmp_path)
    big = {"outputs": [tensor("Y", [-1])]}
    write_model(models, "one", inputs=[tensor("X", [-1])], **big)
    write_model(models, "sum", SUM, inputs=[tensor("A", [-1]), tensor("B", [-1])], **big)
    write_ensemble(
        models,
        "e",
        [
            step("one", {"X": "IN"}, {"Y": "T"}),
            step("one", {"X": "T"}, {"Y": "U"}),
            step("sum", {"A": "T", "B": "U"}, {"Y": "OUT"}),
        ],
        inputs=[tensor("IN", [-1])],
        outputs=[tensor("OUT", [-1])],
    )
    side = start_ours(tmp_path)
    values = np.arange(1_000_000, dtype=np.int32)
    given = httpclient.InferInput("IN", values.shape, "INT32")
    given.set_data_from_numpy(values)

    with httpclient.InferenceServerClient(f"127.0.0.1:{side.http_port}") as client:
        for _ in range(3):
            result = client.infer("e", [given]).as_numpy("OUT")
            assert result is not None
            np.testing.assert_array_equal(result, 2 * values + 3)


def test_a_client_that_hangs_up_ends_the_steps(start_ours: Start, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    watching = f"""
import os, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        open({str(journal)!r}, "w").close()
        deadline = time.monotonic() + 30
        while not requests[0].is_cancelled() and time.monotonic() < deadline:
            time.sleep(0.002)
        with open({str(journal)!r}, "w") as file:
            file.write("cancelled" if requests[0].is_cancelled() else "not")
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError("gone"))]
"""
    models = ModelRepository(tmp_path / "models")
    write_model(models, "watches", watching)
    write_model(models, "one")
    steps = [step("watches", {"X": "IN"}, {"Y": "T"}), step("one", {"X": "T"}, {"Y": "OUT"})]
    write_ensemble(models, "e", steps)
    side = start_ours(models.path)
    connection = http.client.HTTPConnection("127.0.0.1", side.http_port)
    document = {"inputs": [{"name": "IN", "shape": [1], "datatype": "INT32", "data": [1]}]}
    connection.request("POST", "/v2/models/e/infer", json.dumps(document))
    until(journal.exists)
    connection.close()

    until(lambda: journal.read_text() == "cancelled")
    until(lambda: side.failures("e") == {"CANCELED": 1})
    assert side.statistics("one")["inference_count"] == 0
