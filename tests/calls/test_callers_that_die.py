"""What becomes of requests whose caller, a model in a worker, is gone before they are answered."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, until

from ..servers import local_options

GATE = -7

# Waits for a file when it is told to.
ORDERED = """
import json, os, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.folder = json.loads(args["model_config"])["parameters"]["folder"]["string_value"]

    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            if x.item() == -7:
                open(os.path.join(self.folder, "entered"), "w").close()
                while not os.path.exists(os.path.join(self.folder, "gate")):
                    time.sleep(0.001)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]))
        return responses
"""

CALLER = """
import json, os
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        folder = json.loads(args["model_config"])["parameters"]["folder"]["string_value"]
        with open(os.path.join(folder, "pid"), "w") as file:
            file.write(str(os.getpid()))

    def execute(self, requests):
        call = pb_utils.InferenceRequest(
            model_name="ordered", inputs=requests[0].inputs(), requested_output_names=["Y"]
        )
        answer = call.exec()
        return [pb_utils.InferenceResponse(answer.output_tensors())]
"""


def test_a_caller_that_dies_holds_up_nobody_who_is_kept_in_order(tmp_path: Path) -> None:
    models = ModelRepository(tmp_path / "models")
    config: dict[str, Any] = {
        "backend": "python",
        "max_batch_size": 1,
        "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [1]}],
        "output": [{"name": "Y", "data_type": "TYPE_INT32", "dims": [1]}],
        "instance_group": [{"kind": "KIND_CPU", "count": 1}],
        "parameters": {"folder": {"string_value": str(tmp_path)}},
    }
    models.python("ordered", ORDERED, {**config, "dynamic_batching": {"preserve_ordering": True}})
    models.python("caller", CALLER, config)
    options = local_options(models.path, allow_grpc=False, allow_metrics=False)
    with Server(options) as server, ThreadPoolExecutor(3) as pool:

        def ask(model: str, value: int) -> tuple[int, Any]:
            tensor = {"name": "X", "datatype": "INT32", "shape": [1, 1], "data": [value]}
            url = f"http://127.0.0.1:{server.http_port}/v2/models/{model}/infer"
            body = json.dumps({"inputs": [tensor]}).encode()
            try:
                with urllib.request.urlopen(url, body, timeout=DEADLINE_S) as answer:
                    return answer.status, json.load(answer)["outputs"][0]["data"]
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, json.load(error)["error"]

        called = pool.submit(ask, "caller", GATE)
        until((tmp_path / "entered").exists)
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        status, text = called.result()
        behind = pool.submit(ask, "ordered", 5)
        (tmp_path / "gate").touch()

        assert (status, "not healthy" in text) == (500, True)
        assert behind.result() == (200, [5])
