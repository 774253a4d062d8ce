"""Requests that a backend in C keeps: cancelled, answered late, released early; on ours and a real one."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import psutil
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from ..servers import OURS_AND_REAL, serving
from .conftest import Compiled

INPUT = {"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}
OUTPUT = {"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}
TENSORS = {"backend": "keeping", "input": [INPUT], "output": [OUTPUT]}
STREAMS = {**TENSORS, "model_transaction_policy": {"decoupled": True}}
WARM = {
    "model_warmup": [
        {
            "name": "first",
            "count": 3,
            "inputs": {"INPUT0": {"data_type": "TYPE_INT32", "dims": [2], "zero_data": True}},
        }
    ]
}
MODELS: dict[str, dict[str, Any]] = {"once": TENSORS, "streams": STREAMS, "warm": {**TENSORS, **WARM}}


@pytest.fixture(scope="module", params=OURS_AND_REAL)
def served(
    request: pytest.FixtureRequest, compiled: Compiled, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[dict[str, int], Path]]:
    """The ports of a server, and the directory in which it leaves files."""
    root = tmp_path_factory.mktemp(request.param)
    (root / "backends/keeping").mkdir(parents=True)
    library = compiled("backends/keeping.c", "-pthread")
    shutil.copy(library, root / "backends/keeping/libtriton_keeping.so")
    models = ModelRepository(root / "models")
    names = []
    for name, config in MODELS.items():
        for place in ("", "_here"):
            names.append(name + place)
            parameters = {"ends": {"string_value": str(root / f"{name}{place}-ends")}}
            if place:
                parameters["TRITONPY_ISOLATION"] = {"string_value": "thread"}
            models.model(name + place, {**config, "parameters": parameters})
    backends = str(root / "backends")
    with serving(
        request.param,
        request,
        models.path,
        f"--backend-directory={backends}",
        "--model-control-mode=explicit",
        *(f"--load-model={name}" for name in names),
        backend_directory=backends,
        model_control_mode="explicit",
        load_models=tuple(names),
    ) as found:
        yield found, root


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


def tensor(*numbers: int) -> grpcclient.InferInput:
    given = grpcclient.InferInput("INPUT0", [len(numbers)], "INT32")
    given.set_data_from_numpy(np.array(numbers, np.int32))
    return given


def workers(backend: str) -> list[psutil.Process]:
    """Processes of this server's that have opened a backend's library."""
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if f"libtriton_{backend}.so" in Path(f"/proc/{child.pid}/maps").read_text()
        and "tritonpy.workers.child.main" in child.cmdline()
    ]


def noted(notes: Path, *lines: str) -> None:
    """Wait until a backend has written these lines, and no others."""
    expected = "".join(f"{line}\n" for line in lines)
    until(lambda: notes.exists() and notes.read_text() == expected, lambda: f"{lines} are in the notes")


def stats(ports: dict[str, int], model: str) -> dict[str, Any]:
    with urlopen(f"http://127.0.0.1:{ports['http']}/v2/models/{model}/stats") as answer:
        found: dict[str, Any] = json.load(answer)["model_stats"][0]
    return found


@pytest.mark.parametrize("wish", ["watch", "keep"])
def test_a_backend_sees_at_once_that_a_client_has_gone(
    client: grpcclient.InferenceServerClient, where: str, notes: Path, wish: str
) -> None:
    failures: list[InferenceServerException] = []
    call = client.async_infer(
        f"once{where}",
        [tensor(1)],
        lambda result, error: failures.append(error),
        parameters={"do": wish, "notes": str(notes)},
    )
    noted(notes, "watching")

    call.cancel()

    noted(notes, "watching", "cancelled")
    until(lambda: failures, lambda: "the call has ended")
    assert failures[0].status() == "StatusCode.CANCELLED"
    assert client.infer(f"once{where}", [tensor(2)]).as_numpy("OUTPUT0").tolist() == [2]


def test_a_factory_that_outlives_its_request_sees_it_too(
    client: grpcclient.InferenceServerClient, where: str, notes: Path
) -> None:
    client.start_stream(lambda result, error: None)
    parameters = {"do": "keep the factory", "notes": str(notes)}
    client.async_stream_infer(f"streams{where}", [tensor(1)], parameters=parameters)
    noted(notes, "watching")

    client.stop_stream(cancel_requests=True)

    noted(notes, "watching", "cancelled")


def test_a_deadline_of_a_client_is_a_cancellation(
    client: grpcclient.InferenceServerClient, where: str, notes: Path
) -> None:
    with pytest.raises(InferenceServerException, match="Deadline Exceeded"):
        client.infer(
            f"once{where}", [tensor(1)], client_timeout=1, parameters={"do": "watch", "notes": str(notes)}
        )

    noted(notes, "watching", "cancelled")


def test_a_client_that_hangs_up_is_seen(
    ports: dict[str, int], where: str, notes: Path, request: pytest.FixtureRequest
) -> None:
    if "real" in request.node.name:
        pytest.skip("the real one goes on for a client of HTTP that has gone")
    body = json.dumps(
        {
            "inputs": [{"name": "INPUT0", "shape": [1], "datatype": "INT32", "data": [1]}],
            "parameters": {"do": "watch", "notes": str(notes)},
        }
    ).encode()
    head = f"POST /v2/models/once{where}/infer HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", ports["http"])) as connection:
        connection.sendall(head.encode() + body)
        noted(notes, "watching")

    noted(notes, "watching", "cancelled")


@pytest.mark.parametrize("wish", ["hold", "hold aside"])
@pytest.mark.parametrize("change", ["load_model", "unload_model"])
def test_requests_under_way_are_answered_before_their_model_ends(
    client: grpcclient.InferenceServerClient,
    served: tuple[dict[str, int], Path],
    where: str,
    notes: Path,
    wish: str,
    change: str,
) -> None:
    model = f"once{where}"
    ends = served[1] / f"{model}-ends"
    ends.unlink(missing_ok=True)
    answers: list[Any] = []
    client.async_infer(
        model,
        [tensor(7)],
        lambda result, error: answers.append(error or result.as_numpy("OUTPUT0").tolist()),
        parameters={"do": wish, "notes": str(notes)},
    )
    noted(notes, "holding")

    with (served[1] / "models" / model / "1/weights").open("a") as weights:
        weights.write("new")  # or nothing would be loaded anew
    getattr(client, change)(model)
    was_ended = ends.exists()
    notes.with_name("notes.go").touch()

    until(lambda: answers, lambda: "the request is answered")
    assert (answers, was_ended) == ([[7]], False)
    noted(ends, "instance", "model")
    if change == "unload_model":
        client.load_model(model)
    assert client.infer(model, [tensor(8)]).as_numpy("OUTPUT0").tolist() == [8]


def test_a_model_is_warmed_up_by_requests_that_nobody_counts(
    client: grpcclient.InferenceServerClient, ports: dict[str, int], where: str
) -> None:
    model = f"warm{where}"
    before = stats(ports, model)["inference_stats"]["success"]["count"]

    assert client.infer(model, [tensor(1)]).as_numpy("OUTPUT0").tolist() == [1]

    until(
        lambda: stats(ports, model)["inference_stats"]["success"]["count"] == before + 1,
        lambda: "the request is counted",
    )


def test_a_worker_that_is_killed_costs_what_its_backend_keeps(
    client: grpcclient.InferenceServerClient, notes: Path, request: pytest.FixtureRequest
) -> None:
    if "real" in request.node.name:
        pytest.skip("the real one has no workers")
    failures: list[InferenceServerException] = []
    client.async_infer(
        "once",
        [tensor(1)],
        lambda result, error: failures.append(error),
        parameters={"do": "hold aside", "notes": str(notes)},
    )
    noted(notes, "holding")

    for worker in workers("keeping"):
        worker.kill()

    until(lambda: failures, lambda: "the request has failed")
    assert "SIGKILL" in failures[0].message()
    until(lambda: client.is_model_ready("once"), lambda: "the model is ready again")
    assert client.infer("once", [tensor(2)]).as_numpy("OUTPUT0").tolist() == [2]
