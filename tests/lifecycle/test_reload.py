"""Models are reloaded while clients keep asking: nobody notices but by the answers."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import tritonclient.grpc as grpcclient
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

CONFIG = {
    "backend": "python",
    "max_batch_size": 4,
    "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [1]}],
    "output": [{"name": "Y", "data_type": "TYPE_INT32", "dims": [1]}],
}
BODY = json.dumps({"inputs": [{"name": "X", "datatype": "INT32", "shape": [1, 1], "data": [0]}]}).encode()
RELOADS = 8  # `tests/stress` has 500
BROKEN = "class TritonPythonModel:\n    def initialize(self, args):\n        raise ValueError('half done')\n"


def adding(number: int, wait: str = "time.sleep(0.005)") -> str:
    """A model that adds a number; another number is another model."""
    return f"""
import os, time
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        {wait}
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor(
                "Y", pb_utils.get_input_tensor_by_name(request, "X").as_numpy() + {number}
            )])
            for request in requests
        ]
"""


class HttpClient:
    """Asks over one connection."""

    def __init__(self, server: Any) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.ports["HTTPService"], timeout=30)

    def infer(self) -> int | str:
        """What the model adds, or the error."""
        self._connection.request("POST", "/v2/models/changing/infer", BODY)
        answer = json.loads(self._connection.getresponse().read())
        return answer["error"] if "error" in answer else answer["outputs"][0]["data"][0]  # type: ignore[no-any-return]

    def load(self) -> None:
        """Load the model."""
        self._connection.request("POST", "/v2/repository/models/changing/load")
        response = self._connection.getresponse()
        text = response.read().decode()
        assert response.status == 200, text

    def unload(self) -> int:
        """Unload the model; the status."""
        self._connection.request("POST", "/v2/repository/models/changing/unload")
        response = self._connection.getresponse()
        response.read()
        return response.status

    def close(self) -> None:
        self._connection.close()


class GrpcClient:
    """Asks over one channel."""

    def __init__(self, server: Any) -> None:
        self._client = grpcclient.InferenceServerClient(f"127.0.0.1:{server.ports['GRPCInferenceService']}")
        self._input = grpcclient.InferInput("X", [1, 1], "INT32")
        self._input.set_data_from_numpy(np.zeros((1, 1), np.int32))

    def infer(self) -> int | str:
        """What the model adds, or the error."""
        try:
            answer = self._client.infer("changing", [self._input], client_timeout=30)
        except grpcclient.InferenceServerException as exc:
            return str(exc)
        return int(answer.as_numpy("Y")[0, 0])

    def load(self) -> None:
        """Load the model."""
        self._client.load_model("changing")

    def close(self) -> None:
        self._client.close()


class Traffic:
    """Clients that ask one request after the other until told to stop.

    Attributes:
        answers: of each client, in order.
    """

    def __init__(self, clients: list[Any]) -> None:
        self._clients = clients
        self.answers: list[list[int | str]] = [[] for _ in clients]
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(client, answers))
            for client, answers in zip(clients, self.answers, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def wait_for(self, answer: int) -> None:
        """Until each client has had an answer; or has lost its connection, which its answers tell."""
        until(
            lambda: all(answer in answers or "lost" in str(answers[-1:]) for answers in self.answers),
            f"each was answered {answer}",
        )

    def stop(self) -> None:
        """Let each client finish its last request."""
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
        for client in self._clients:
            client.close()

    def _ask(self, client: Any, answers: list[int | str]) -> None:
        while not self._stop.is_set():
            try:
                answers.append(client.infer())
            except Exception as exc:
                answers.append(f"lost: {exc!r}")
                return


def test_reloads_under_constant_traffic_fail_no_request(corectl: Callable[..., Any], tmp_path: Path) -> None:
    models = ModelRepository(tmp_path)
    models.python("changing", adding(0), CONFIG)
    server = corectl(
        f"--model-repository={tmp_path}", "--model-control-mode=explicit", "--load-model=changing"
    )
    traffic = Traffic([HttpClient(server), HttpClient(server), GrpcClient(server), GrpcClient(server)])
    loaders = [HttpClient(server), GrpcClient(server)]
    after: list[int | str] = []
    traffic.wait_for(0)
    for number in range(1, RELOADS + 1):
        models.python("changing", adding(number))
        loaders[number % 2].load()
        after.append(loaders[number % 2].infer())
        if number == RELOADS // 2:
            traffic.wait_for(number)
    traffic.stop()
    for loader in loaders:
        loader.close()

    assert after == list(range(1, RELOADS + 1))  # what a load has brought is there when it returns
    for answers in traffic.answers:
        assert [answer for answer in answers if not isinstance(answer, int)] == []
        assert answers == sorted(answers)  # type: ignore[type-var]  # never back to an old one
        assert set(answers) >= {0, RELOADS // 2}
    until(lambda: len(psutil.Process(server.process.pid).children(recursive=True)) == 1, "one worker is left")


def test_requests_under_way_are_answered_by_what_accepted_them(
    corectl: Callable[..., Any], tmp_path: Path
) -> None:
    """A reload and an unload return while the old model still computes; its answers come all the same."""
    models = ModelRepository(tmp_path / "models")
    gate = tmp_path / "gate"
    config = {**CONFIG, "max_batch_size": 1}
    models.python("changing", adding(1, f"while not os.path.exists('{gate}'): time.sleep(0.01)"), config)
    server = corectl(
        f"--model-repository={models.path}", "--model-control-mode=explicit", "--load-model=changing"
    )
    waiting = [HttpClient(server), HttpClient(server), GrpcClient(server)]
    answers: list[int | str] = []
    threads = [threading.Thread(target=lambda ask=ask: answers.append(ask.infer())) for ask in waiting]
    for thread in threads:
        thread.start()
    wait_until_pending(server, 2)
    models.python("changing", adding(2))
    client = HttpClient(server)

    client.load()
    new_answer = client.infer()
    status = client.unload()

    assert (new_answer, status) == (2, 200)
    assert answers == []
    gate.touch()
    for thread in threads:
        thread.join(20)
    assert answers == [1, 1, 1]
    for asked in (*waiting, client):
        asked.close()


def wait_until_pending(server: Any, count: int) -> None:
    """Until so many requests wait for an instance."""
    connection = http.client.HTTPConnection("127.0.0.1", server.ports["Metrics Service"], timeout=30)
    wanted = f'nv_inference_pending_request_count{{model="changing",version="1"}} {count}'

    def page() -> str:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()

    until(lambda: wanted in page(), wanted)
    connection.close()


def test_an_edited_model_is_served_without_being_asked_for_and_a_broken_edit_is_not(
    served: Callable[..., Any], tmp_path: Path
) -> None:
    models = ModelRepository(tmp_path)
    models.python("changing", adding(1), CONFIG)
    server = served(f"--model-repository={tmp_path}", "--reload")
    client = HttpClient(server)
    assert client.infer() == 1

    models.python("changing", adding(2))
    wait_for_answer(client, 2)
    server.wait_for_log("reloaded 'changing', whose files have changed")
    models.python("changing", BROKEN)
    server.wait_for_log("the files of 'changing' have changed; what was loaded before goes on serving")

    server.wait_for_log("half done")
    assert client.infer() == 2
    client.close()


def test_in_explicit_mode_only_what_was_asked_for_follows_its_files(
    served: Callable[..., Any], tmp_path: Path
) -> None:
    models = ModelRepository(tmp_path)
    models.python("changing", adding(1), CONFIG)
    models.python("idle", adding(1), CONFIG)
    server = served(
        f"--model-repository={tmp_path}",
        "--reload",
        "--model-control-mode=explicit",
        "--load-model=changing",
    )
    client = HttpClient(server)

    models.python("idle", adding(2))
    models.python("changing", adding(2))
    wait_for_answer(client, 2)

    assert "loading: idle" not in server.log
    client.close()


def wait_for_answer(client: HttpClient, wanted: int) -> None:
    answers: list[int | str] = []

    def is_so() -> bool:
        answers.append(client.infer())
        assert isinstance(answers[-1], int), answers
        return answers[-1] == wanted

    until(is_so, lambda: f"{wanted} after {answers}")
