"""Clients that do not read what a backend in C sends: its threads wait, others do not, memory is bounded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, until

from ..servers import local_options
from .conftest import Compiled

LENGTH = 1024
MOST_SENT = 5000
"""Of 4 KiB each: what the library of the client, the server, channels and the queue hold at most."""


@pytest.fixture(scope="module")
def server(compiled: Compiled, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("slow")
    models = ModelRepository(root / "models")
    tensor = {"data_type": "TYPE_INT32", "dims": [-1]}
    library = compiled("backends/keeping.c", "-pthread")
    for name, isolation in (("worker", "process"), ("thread", "thread")):
        models.model(
            name,
            {
                "backend": "keeping",
                "input": [{"name": "INPUT0", **tensor}],
                "output": [{"name": "OUTPUT0", **tensor}],
                "model_transaction_policy": {"decoupled": True},
                "parameters": {"TRITONPY_ISOLATION": {"string_value": isolation}},
            },
        )
        shutil.copy(library, models.path / name / "libtriton_keeping.so")
    limits = {"max_stream_response_count": 200, "max_stream_byte_size": 8 << 20}
    with Server(local_options(models.path, **limits)) as started:
        yield started


@pytest.fixture(params=["worker", "thread"])
def model(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


Call = Iterator[service_pb2.ModelStreamInferResponse]


@contextmanager
def asked(server: Server, model: str, do: str, count: int, notes: Path) -> Iterator[grpc.Call]:
    """A stream with one request, on a connection of its own, that is read when the test says so."""
    message = service_pb2.ModelInferRequest(model_name=model)
    message.inputs.add(name="INPUT0", datatype="INT32", shape=[2])
    message.parameters["do"].string_param = do
    message.parameters["notes"].string_param = str(notes)
    message.raw_input_contents.append(np.array([count, LENGTH], np.int32).tobytes())
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", options) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        yield stub.ModelStreamInfer(iter([message]), timeout=DEADLINE_S)


def numbers(call: Call) -> tuple[list[int], str]:
    """The first number of each response, and the error of the last one."""
    found = list(call)
    outputs = [each.infer_response.raw_output_contents for each in found if not each.error_message]
    return [int.from_bytes(data[0][:4], "little") for data in outputs if data], found[-1].error_message


def said(notes: Path) -> str:
    """What a backend has written down, when it has."""
    until(notes.exists, lambda: f"{notes} is written")
    until(lambda: notes.read_text().endswith("\n"), lambda: f"{notes} is complete")
    return notes.read_text().strip()


def test_a_thread_waits_for_its_client_until_that_has_gone(
    server: Server, model: str, tmp_path: Path
) -> None:
    with asked(server, model, "flood", 1_000_000, tmp_path / "slow") as slow:
        assert next(slow)
        with asked(server, model, "flood", 8_000, tmp_path / "quick") as quick:
            found = numbers(quick)
        assert not (tmp_path / "slow").exists()

        slow.cancel()

    assert found == (list(range(8_000)), "")
    assert said(tmp_path / "quick") == "sent 8000: all"
    count, _, why = said(tmp_path / "slow").removeprefix("sent ").partition(": ")
    assert why == "cancelled"
    assert 0 < int(count) < MOST_SENT


def test_a_client_that_reads_again_gets_everything(server: Server, model: str, tmp_path: Path) -> None:
    with asked(server, model, "flood", 8_000, tmp_path / "slow") as slow:
        assert next(slow)
        with asked(server, model, "flood", 8_000, tmp_path / "quick") as quick:
            assert numbers(quick) == (list(range(8_000)), "")
        assert not (tmp_path / "slow").exists()

        assert numbers(slow) == (list(range(1, 8_000)), "")

    assert said(tmp_path / "slow") == "sent 8000: all"


def test_a_thread_that_answers_others_gives_a_slow_client_up(
    server: Server, model: str, tmp_path: Path
) -> None:
    with asked(server, model, "flood in turn", 8_000, tmp_path / "slow") as slow:
        with asked(server, model, "flood in turn", 8_000, tmp_path / "quick") as quick:
            assert numbers(quick) == (list(range(8_000)), "")
        found, error = numbers(slow)

    assert found == list(range(len(found)))
    assert 1024 < len(found) < MOST_SENT
    assert error.endswith("it reads too slowly to be sent more")
    assert said(tmp_path / "slow") == f"sent {len(found)}: {error}"
