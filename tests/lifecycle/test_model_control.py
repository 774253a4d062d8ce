"""Models that load and unload others and themselves: nothing waits for itself."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

CONFIG = {
    "backend": "python",
    "input": [{"name": "CODE", "data_type": "TYPE_STRING", "dims": [1]}],
    "output": [{"name": "RESULT", "data_type": "TYPE_STRING", "dims": [1]}],
}


def telling(name: str, *, initialize: str = "None", finalize: str = "None", complete: str = "None") -> str:
    """A model that evaluates what it is sent, or given for its other methods, and tells the result."""
    return f"""
import time
import numpy as np
import triton_python_backend_utils as pb_utils


def evaluate(code):
    try:
        return repr(eval(code))
    except Exception as exc:
        return f"{{type(exc).__name__}}: {{exc}}"


def call(model, code):
    request = pb_utils.InferenceRequest(
        model_name=model,
        inputs=[pb_utils.Tensor("CODE", np.array([code], object))],
        requested_output_names=["RESULT"],
    )
    response = request.exec()
    if response.has_error():
        return response.error().message()
    return response.output_tensors()[0].as_numpy()[0].decode()


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        pb_utils.Logger.log_info("complete {name}: " + evaluate({complete!r}))
        return config

    def initialize(self, args):
        self.told = evaluate({initialize!r})
        pb_utils.Logger.log_info("initialize {name}: " + self.told)

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("RESULT", np.array([
                evaluate(pb_utils.get_input_tensor_by_name(request, "CODE").as_numpy()[0].decode())
            ], object))])
            for request in requests
        ]

    def finalize(self):
        pb_utils.Logger.log_info("finalize {name}: " + evaluate({finalize!r}))
"""


class Client:
    """Asks a server over HTTP."""

    def __init__(self, server: Any) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.ports["HTTPService"], timeout=30)

    def post(self, path: str, document: object = None) -> Any:  # Any: JSON
        """The answer, None when it has no body."""
        self._connection.request("POST", path, json.dumps(document) if document is not None else None)
        body = self._connection.getresponse().read()
        return json.loads(body) if body else None

    def ask(self, model: str, code: str) -> str:
        """What a model's code gives, or the error."""
        tensor = {"name": "CODE", "datatype": "BYTES", "shape": [1], "data": [code]}
        answer = self.post(f"/v2/models/{model}/infer", {"inputs": [tensor]})
        return str(answer["error"] if "error" in answer else answer["outputs"][0]["data"][0])

    def state(self, model: str) -> tuple[str, str]:
        """State and reason of a model's version 1."""
        entry = next(entry for entry in self.post("/v2/repository/index") if entry["name"] == model)
        return entry.get("state", ""), entry.get("reason", "")

    def wait_for(self, model: str, *state: str) -> None:
        """Until a model's version 1 has a state and reason."""
        until(lambda: self.state(model) == state, lambda: self.state(model))

    def close(self) -> None:
        self._connection.close()


UNLOADED = ("UNAVAILABLE", "unloaded")


def wait_for_line(server: Any, text: str) -> None:
    until(lambda: text in server.log, lambda: f"{text}\n{server.log}")


def test_a_model_unloads_and_reloads_itself_and_whoever_waits_for_it(
    served: Callable[..., Any], tmp_path: Path
) -> None:
    models = ModelRepository(tmp_path)
    models.python("self", telling("self"), CONFIG)
    models.python("caller", telling("caller"), CONFIG)
    server = served(f"--model-repository={tmp_path}", "--model-control-mode=explicit", "--load-model=*")
    client = Client(server)

    # A model that loads itself anew: the one that asks finishes its request, the next goes to the new one.
    models.python("self", telling("self").replace("import time", "import time\nNEW = 1"))
    assert client.ask("self", "(pb_utils.load_model('self'), 'NEW' in globals())") == "(None, False)"
    assert client.ask("self", "'NEW' in globals()") == "True"
    wait_for_line(server, "finalize self: None")

    # A model that unloads itself, and answers nevertheless.
    code = "(pb_utils.unload_model('self'), pb_utils.is_model_ready('self'), time.sleep(0.1))"
    assert client.ask("self", code) == "(None, False, None)"
    client.wait_for("self", *UNLOADED)

    # A model that unloads the one which waits for its answer.
    assert client.post("/v2/repository/models/self/load") is None
    code = "call('self', 'pb_utils.unload_model(\"caller\")')"
    assert client.ask("caller", code) == "'None'"
    client.wait_for("caller", *UNLOADED)
    assert client.state("self") == ("READY", "")
    client.close()


def test_models_may_load_others_in_initialize_but_not_wait_for_each_other(
    served: Callable[..., Any], tmp_path: Path
) -> None:
    models = ModelRepository(tmp_path)
    models.python("leader", telling("leader", initialize="pb_utils.load_model('follower')"), CONFIG)
    models.python("follower", telling("follower"), CONFIG)
    models.python("egg", telling("egg", initialize="pb_utils.load_model('hen')"), CONFIG)
    models.python("hen", telling("hen", initialize="pb_utils.load_model('egg')"), CONFIG)
    server = served(f"--model-repository={tmp_path}", "--model-control-mode=explicit")
    client = Client(server)

    assert client.post("/v2/repository/models/leader/load") is None
    assert client.state("follower") == ("READY", "")
    assert client.post("/v2/repository/models/egg/load") is None

    wait_for_line(server, "initialize egg: None")
    wait_for_line(server, "initialize hen: TritonModelException: Failed to load model: ")
    wait_for_line(server, "would wait for it: hen -> egg -> hen")
    client.close()


def test_a_model_is_told_where_and_when_it_may_not_ask(served: Callable[..., Any], tmp_path: Path) -> None:
    asks = "pb_utils.load_model('other')"
    models = ModelRepository(tmp_path)
    source = telling("asker", complete=asks, initialize=asks, finalize=asks.replace("load", "unload"))
    models.python("asker", source, CONFIG)
    models.python("other", telling("other"), CONFIG)
    server = served(f"--model-repository={tmp_path}", "--model-control-mode=explicit", "--load-model=asker")
    client = Client(server)

    refused = "TritonModelException: load_model cannot be called in auto_complete_config; call it in"
    wait_for_line(server, f"complete asker: {refused}")
    failed = "TritonModelException: Failed to load model: Failed to process the request for"
    wait_for_line(server, f"initialize asker: {failed}")
    wait_for_line(server, "message: Server not ready")
    assert client.post("/v2/repository/models/asker/unload") is None
    wait_for_line(server, "finalize asker: TritonModelException: unload_model cannot be called in finalize")
    assert client.state("other") == ("", "")
    client.close()


@pytest.mark.parametrize("call", ["load_model('other')", "unload_model('other')"])
def test_without_explicit_mode_a_model_is_told_in_tritons_words(
    served: Callable[..., Any], tmp_path: Path, call: str
) -> None:
    models = ModelRepository(tmp_path)
    models.python("asker", telling("asker"), CONFIG)
    server = served(f"--model-repository={tmp_path}")
    client = Client(server)

    assert client.ask("asker", f"pb_utils.{call}") == (
        f"TritonModelException: Failed to {call.split('_')[0]} model: Failed to process the request for "
        f"model 'asker_0', message: explicit model load / unload is not allowed if polling is enabled"
    )
    client.close()
