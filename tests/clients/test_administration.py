"""Everything but inference, by every client of tritonclient."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException
from tritonpy_sdk.testing import until

from .conftest import AnyClient


def ask_scores(client: AnyClient, model: str = "scores") -> list[list[float]]:
    tensor = client.input("INPUT0", np.array([[1, 2, 3, 4]], np.float32))
    return client.infer(model, [tensor]).as_numpy("OUTPUT0").tolist()


def refused(error: InferenceServerException) -> tuple[str, str]:
    return str(error.status()), error.message()


def test_the_server_is_live_and_ready(client):
    assert client.is_server_live() is True
    assert client.is_server_ready() is True


def test_models_are_ready_or_not(client):
    assert client.is_model_ready("scores") is True
    assert client.is_model_ready("scores", "1") is True
    assert client.is_model_ready("scores", "2") is False
    assert client.is_model_ready("nope") is False


def test_the_server_says_what_it_can_do(client):
    metadata = client.get_server_metadata(**client.as_json)

    assert metadata["name"] == "triton"
    assert metadata["version"]
    assert {"classification", "statistics", "binary_tensor_data", "parameters"} <= set(metadata["extensions"])


def test_a_model_says_what_it_takes_and_gives(client):
    metadata = client.get_model_metadata("texts", **client.as_json)

    assert (metadata["name"], metadata["versions"], metadata["platform"]) == ("texts", ["1"], "identity")
    for part, name in (("inputs", "INPUT0"), ("outputs", "OUTPUT0")):
        [tensor] = metadata[part]
        assert (tensor["name"], tensor["datatype"]) == (name, "BYTES")
        assert list(map(int, tensor["shape"])) == [-1, 1]


def test_a_model_shows_its_configuration(client):
    config = client.get_model_config("scores", "1", **client.as_json)
    config = config if client.is_http else config["config"]

    assert (config["name"], config["backend"], config["max_batch_size"]) == ("scores", "identity", 8)
    [output] = config["output"]
    assert (output["name"], output["data_type"], output["label_filename"]) == (
        "OUTPUT0",
        "TYPE_FP32",
        "labels.txt",
    )


def test_statistics_count_what_a_client_does(client):
    def counts() -> dict[str, int]:
        [stats] = client.get_inference_statistics("scores", "1", **client.as_json)["model_stats"]
        success = stats["inference_stats"]["success"]
        return {
            "inferences": int(stats["inference_count"]),
            "executions": int(stats["execution_count"]),
            "successes": int(success["count"]),
            "ns": int(success["ns"]),
        }

    ask_scores(client)
    before = counts()
    for _ in range(3):
        ask_scores(client)
    after = counts()

    assert {name: after[name] - before[name] for name in ("inferences", "executions", "successes")} == {
        "inferences": 3,
        "executions": 3,
        "successes": 3,
    }
    assert after["ns"] > before["ns"]


def test_statistics_without_a_name_are_of_all_models(client):
    found = client.get_inference_statistics(**client.as_json)["model_stats"]

    assert {"echo", "scores", "texts", "counts"} <= {stats["name"] for stats in found}


def test_a_model_is_unloaded_and_loaded_again(client):
    def state() -> Any:
        index = client.get_model_repository_index(**client.as_json)
        rows = index if client.is_http else index["models"]
        [row] = [row for row in rows if row["name"] == "spare"]
        return row["state"], row.get("reason", "")

    client.load_model("spare")
    assert state() == ("READY", "")
    client.unload_model("spare")
    assert client.is_model_ready("spare") is False
    until(lambda: state() == ("UNAVAILABLE", "unloaded"), state)  # it says when it has begun
    with pytest.raises(InferenceServerException) as gone:
        ask_scores(client, "spare")

    client.load_model("spare")

    assert refused(gone.value) == (
        "404" if client.is_http else "StatusCode.NOT_FOUND",
        "Request for unknown model: 'spare' has no available versions",
    )
    assert state() == ("READY", "")
    assert ask_scores(client, "spare") == [[1, 2, 3, 4]]


def test_a_model_is_loaded_with_another_configuration(client):
    config = {
        "backend": "identity",
        "max_batch_size": 3,
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [4]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [4]}],
    }
    client.load_model("spare", config=json.dumps(config))
    changed = client.get_model_config("spare", **client.as_json)
    client.unload_model("spare")
    client.load_model("spare")

    changed = changed if client.is_http else changed["config"]
    assert changed["max_batch_size"] == 3


def test_a_model_is_loaded_from_sent_files(client):
    source = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        output = pb_utils.Tensor("OUT", np.array([42], np.int32))
        return [pb_utils.InferenceResponse([output]) for _ in requests]
"""
    config = {
        "backend": "python",
        "output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]}],
    }
    client.load_model("sent", config=json.dumps(config), files={"file:1/model.py": source.encode()})
    answer = client.infer("sent", []).as_numpy("OUT").tolist()
    client.unload_model("sent")

    assert answer == [42]


def test_a_load_that_fails_says_why(client):
    with pytest.raises(InferenceServerException) as failed:
        client.load_model("nope")

    status, text = refused(failed.value)
    assert status in ("400", "StatusCode.INTERNAL", "500", "StatusCode.INVALID_ARGUMENT")
    assert text.startswith("failed to load 'nope', failed to poll from model repository")


def test_log_settings_are_read_and_changed(client):
    def settings() -> dict[str, Any]:
        found = client.get_log_settings(**client.as_json)
        if client.is_http:
            return found
        values = {name: next(iter(each.values()), "") for name, each in found["settings"].items()}
        return values

    assert settings()["log_info"] is True
    client.update_log_settings({"log_info": False, "log_verbose_level": 1})
    changed = settings()
    client.update_log_settings({"log_info": True, "log_verbose_level": 0})

    assert (changed["log_info"], int(changed["log_verbose_level"])) == (False, 1)
    assert settings()["log_info"] is True
    with pytest.raises(InferenceServerException) as failed:
        client.update_log_settings({"log_format": "none"})
    assert failed.value.message()


@pytest.mark.parametrize(
    ("ask", "http", "grpc", "text"),
    [
        (
            lambda client: client.get_model_metadata("nope"),
            "404",
            "NOT_FOUND",
            "Request for unknown model: 'nope' is not found",
        ),
        (
            lambda client: client.get_model_config("scores", "9"),
            "404",
            "NOT_FOUND",
            "Request for unknown model: 'scores' version 9 is not found",
        ),
        (
            lambda client: client.get_inference_statistics("nope"),
            "400",
            "INVALID_ARGUMENT",
            "requested model 'nope' is not available",
        ),
        (
            lambda client: client.get_system_shared_memory_status("nope"),
            "404",
            "NOT_FOUND",
            "Unable to find system shared memory region: 'nope'",
        ),
    ],
    ids=["metadata", "config", "statistics", "shared memory"],
)
def test_what_is_not_there_is_an_exception_with_status_and_text(client, ask, http, grpc, text):
    with pytest.raises(InferenceServerException) as failed:
        ask(client)

    assert refused(failed.value) == (http if client.is_http else f"StatusCode.{grpc}", text)
