from __future__ import annotations

import json
from urllib.error import HTTPError
from urllib.request import urlopen

import grpc
import numpy as np
from tritonpy_frontend_tfserving import messages
from tritonpy_frontend_tfserving.tensor_messages import write_tensor
from tritonpy_sdk.testing import DEADLINE_S, FrontendConformance

SETTINGS = {"port": "0", "address": "127.0.0.1"}
WRONG = [SETTINGS | {"port": "many"}, SETTINGS | {"ports": "0"}, SETTINGS | {"max-body-bytes": "-1"}]


class TestRest(FrontendConformance, frontend="tfserving", settings=SETTINGS, wrong_settings=WRONG):
    def ask(self, addresses, model, values):
        url = f"http://{addresses[0].host}:{addresses[0].port}/v1/models/{model}:predict"
        try:
            with urlopen(url, json.dumps({"inputs": values}).encode(), timeout=DEADLINE_S) as answer:
                return json.load(answer)["outputs"]
        except HTTPError as error:
            with error:
                raise RuntimeError(error.read().decode()) from None


class TestPredictionService(
    FrontendConformance, frontend="tfserving", settings=SETTINGS | {"grpc-port": "0"}
):
    def ask(self, addresses, model, values):
        request = messages.PredictRequest()
        request.model_spec.name = model
        write_tensor(np.array(values, "f4"), "FP32", request.inputs.add(key="INPUT0").value)
        with grpc.insecure_channel(f"{addresses[1].host}:{addresses[1].port}") as channel:
            call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
            answer = messages.PredictResponse.FromString(
                call(request.SerializeToString(), timeout=DEADLINE_S)
            )
        return list(answer.outputs[0].value.float_val)
