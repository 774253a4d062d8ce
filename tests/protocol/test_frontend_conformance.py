"""HTTP and gRPC keep to the rules of all frontends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import tritonclient.grpc as grpcclient
from tritonpy.plugin import Address
from tritonpy_sdk.testing import DEADLINE_S, FrontendConformance


class TestHttp(FrontendConformance, frontend="http"):
    def ask(self, addresses: Sequence[Address], model: str, values: Sequence[float]) -> list[float]:
        tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [len(values)], "data": list(values)}
        url = f"http://{addresses[0].host}:{addresses[0].port}/v2/models/{model}/infer"
        try:
            with urlopen(url, json.dumps({"inputs": [tensor]}).encode(), timeout=DEADLINE_S) as answer:
                data: list[float] = json.load(answer)["outputs"][0]["data"]
                return data
        except HTTPError as error:
            with error:
                raise RuntimeError(error.read().decode()) from None


class TestGrpc(FrontendConformance, frontend="grpc"):
    def ask(self, addresses: Sequence[Address], model: str, values: Sequence[float]) -> list[float]:
        tensor = grpcclient.InferInput("INPUT0", [len(values)], "FP32")
        tensor.set_data_from_numpy(np.array(values, np.float32))
        with grpcclient.InferenceServerClient(f"{addresses[0].host}:{addresses[0].port}") as client:
            answer = client.infer(model, [tensor], client_timeout=DEADLINE_S)
            values_back: list[float] = answer.as_numpy("OUTPUT0").tolist()
            return values_back
