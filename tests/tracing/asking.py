"""The same requests for every server, over both protocols."""

from __future__ import annotations

import http.client
import json
import queue
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import InferenceServerException

MODELS = Path(__file__).with_name("models")
TIMEOUT_S = 30


@dataclass(frozen=True)
class Endpoint:
    """The ports of a server, of ours or a real one."""

    http: int
    grpc: int

    def send(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """Status and body of an HTTP request; `bytes` go as they are, everything else as JSON."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=TIMEOUT_S)
        with closing(connection):
            connection.request(method, path, data, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def infer(
        self, model: str, id: str = "", name: str = "INPUT0", headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Status and JSON of an inference."""
        tensor = {"name": name, "datatype": "FP32", "shape": [3], "data": [1.5, 2.0, 0.1]}
        status, text = self.send("POST", f"/v2/models/{model}/infer", {"id": id, "inputs": [tensor]}, headers)
        return status, json.loads(text)

    def ask_everything_over_http(self) -> None:
        """One request of each kind, whose ids say which."""
        text = {"name": "TEXT", "datatype": "BYTES", "shape": [2], "data": ["ab", "cd"]}
        given = {"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1.5, 0.1]}
        status, _ = self.send("POST", "/v2/models/echo/infer", {"id": "echo", "inputs": [given, text]})
        assert status == 200
        assert self.infer("failing", "failing")[0] == 500
        assert self.infer("caller", "caller")[0] == 200
        assert self.infer("chain", "chain", "IN")[0] == 200
        assert self.send("POST", "/v2/models/echo/generate", {"id": "generate", "INPUT0": [1.0]})[0] == 200
        body = {"id": "events", "INPUT0": [1.0]}
        assert self.send("POST", "/v2/models/talker/generate_stream", body)[0] == 200

    def ask_everything_over_grpc(self) -> None:
        """The same, as far as gRPC has it."""
        given = grpcclient.InferInput("INPUT0", [2], "FP32")
        given.set_data_from_numpy(np.array([7, 8], np.float32))
        with closing(grpcclient.InferenceServerClient(f"127.0.0.1:{self.grpc}")) as client:
            client.infer("echo", [given], request_id="echo")
            with pytest.raises(InferenceServerException, match="it fails"):
                client.infer("failing", [given], request_id="failing")
            client.infer("caller", [given], request_id="caller")
            answers: queue.Queue[Any] = queue.Queue()
            client.start_stream(lambda result, error: answers.put((result, error)))
            client.async_stream_infer(
                "talker", [given], request_id="events", enable_empty_final_response=True
            )
            client.async_stream_infer("echo", [given], request_id="streamed")
            for _ in range(5):
                assert answers.get(timeout=TIMEOUT_S)[1] is None
            client.stop_stream()

    def stub(self, channel: grpc.Channel) -> Any:
        """The calls of the service."""
        return service_pb2_grpc.GRPCInferenceServiceStub(channel)
