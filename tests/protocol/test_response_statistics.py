"""How long each response of a stream took, for backends on threads and in processes of their own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy.server import Server
from tritonpy_sdk.testing import until

CONFIG = """
backend: "repeat"
max_batch_size: 0
model_transaction_policy {{ decoupled: true }}
input [
  {{ name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }},
  {{ name: "DELAY" data_type: TYPE_UINT32 dims: [ -1 ] }},
  {{ name: "WAIT" data_type: TYPE_UINT32 dims: [ 1 ] }}
]
output [
  {{ name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }},
  {{ name: "IDX" data_type: TYPE_UINT32 dims: [ 1 ] }}
]
parameters {{ key: "TRITONPY_ISOLATION" value {{ string_value: "{isolation}" }} }}
"""


def message(delays_ms: list[int]) -> service_pb2.ModelInferRequest:
    made = service_pb2.ModelInferRequest(model_name="repeat")
    count = len(delays_ms)
    for name, values, datatype in (("IN", range(count), "INT32"), ("DELAY", delays_ms, "UINT32")):
        made.inputs.add(name=name, datatype=datatype, shape=[count])
        made.raw_input_contents.append(np.array(list(values), datatype.lower()).tobytes())
    made.inputs.add(name="WAIT", datatype="UINT32", shape=[1])
    made.raw_input_contents.append(np.zeros(1, np.uint32).tobytes())
    return made


def responses(server: Server) -> dict[str, dict[str, tuple[int, int]]]:
    """What was counted, by index and phase: count and nanoseconds."""
    with urlopen(f"http://127.0.0.1:{server.http_port}/v2/models/repeat/stats", timeout=30) as answer:
        [stats] = json.load(answer)["model_stats"]
    return {
        index: {phase: (leaf["count"], leaf["ns"]) for phase, leaf in found.items() if leaf["count"]}
        for index, found in stats["response_stats"].items()
    }


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_each_response_is_timed_where_the_model_runs(
    serve: Callable[..., Server], tmp_path: Path, isolation: str
) -> None:
    (tmp_path / "repeat" / "1").mkdir(parents=True)
    (tmp_path / "repeat" / "config.pbtxt").write_text(CONFIG.format(isolation=isolation))
    server = serve(tmp_path)
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        began = time.monotonic()
        sent = list(stub.ModelStreamInfer(iter([message([50, 200])]), timeout=30))
        until(lambda: "2" in responses(server))
        took_s = time.monotonic() - began
        finished = responses(server)

        call = stub.ModelStreamInfer(iter([message([0, 5000])]), timeout=30)
        next(call)
        call.cancel()
        until(lambda: "cancel" in responses(server).get("1", {}))

    assert [response.error_message for response in sent] == ["", ""]
    good = {"compute_infer", "compute_output", "success"}
    assert [set(finished[index]) for index in "012"] == [good, good, {"compute_infer", "empty_response"}]
    seconds = [finished[index]["compute_infer"][1] / 1e9 for index in "012"]
    # A busy machine may make any of them longer, but no time belongs to two responses.
    assert seconds[0] >= 0.05
    assert seconds[1] >= 0.2
    assert sum(seconds) <= took_s
    for index in "01":
        parts = (finished[index][phase][1] for phase in ("compute_infer", "compute_output"))
        assert sum(parts) == finished[index]["success"][1]
    assert (finished["0"]["compute_output"][1] > 0) == (isolation == "process")
