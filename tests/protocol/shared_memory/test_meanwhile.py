"""What clients do to their memory while the server uses it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tritonpy.server import Server
from tritonpy_sdk.testing import until

from . import http_cases as cases
from .memory import Http, Memory


def test_a_region_that_is_unregistered_meanwhile_still_takes_its_output(
    ours: dict[str, int], http_of: Any, memory: Callable[..., Memory], tmp_path: Path
) -> None:
    client, other = http_of(ours["http"]), http_of(ours["http"])
    given, wanted = memory(cases.FLOATS), memory()
    client.register("given", given)
    client.register("wanted", wanted)
    gate = tmp_path / "gate"
    body = {
        "id": str(gate),
        "inputs": [{"name": "INPUT0", **cases.fp32(cases.region("given", 16))}],
        "outputs": [{"name": "OUTPUT0", "parameters": cases.region("wanted", 16)}],
    }
    answers: list[Any] = []
    asking = threading.Thread(
        target=lambda: answers.append(client.ask("POST", "/v2/models/gate/infer", body))
    )
    asking.start()
    until((tmp_path / "gate.reached").exists, "the model runs")

    assert other.ask("POST", f"{cases.SYSTEM}/unregister") == (200, None)
    assert {region["name"] for region in other.ask("GET", f"{cases.SYSTEM}/status")[1]} == {"given", "wanted"}
    gate.touch()
    asking.join(30)

    assert answers[0][0] == 200
    assert wanted.content[:16] == cases.FLOATS[:16]
    until(lambda: other.ask("GET", f"{cases.SYSTEM}/status") == (200, []), "no request uses the regions")
    other.register("wanted", wanted)


def test_memory_that_its_client_cut_costs_an_error_and_not_the_server(
    ours: dict[str, int], http_of: Any, memory: Callable[..., Memory]
) -> None:
    client = http_of(ours["http"])
    size = 1 << 20
    given, wanted = memory(byte_size=size), memory(byte_size=size)
    client.register("given", given, size)
    client.register("wanted", wanted, size)
    tensor = {"name": "INPUT0", **cases.fp32(cases.region("given", size), (size // 4,))}
    output = {"name": "OUTPUT0", "parameters": cases.region("wanted", size)}

    wanted.cut(4096)
    status, answer = client.ask("POST", "/v2/models/plain/infer", {"inputs": [tensor], "outputs": [output]})
    assert status == 400
    assert f"'{wanted.key}' has been cut to 4096 bytes since it was registered" in answer["error"]

    given.cut(0)
    for model in ("plain", "numbers"):
        status, answer = client.ask(
            "POST",
            f"/v2/models/{model}/infer",
            {"inputs": [tensor], "parameters": {"binary_data_output": True}},
        )
        assert (status, "has been cut to 0 bytes" in answer["error"]) == (400, True)

    assert client.ask("GET", "/v2/health/live") == (200, None)


def test_memory_that_is_cut_while_its_request_runs_costs_an_error(
    ours: dict[str, int], http_of: Any, memory: Callable[..., Memory], tmp_path: Path
) -> None:
    client = http_of(ours["http"])
    wanted = memory(byte_size=8192)
    client.register("wanted", wanted, 8192)
    gate = tmp_path / "gate"
    body = {
        "id": str(gate),
        "inputs": [{"name": "INPUT0", **cases.DATA}],
        "outputs": [{"name": "OUTPUT0", "parameters": cases.region("wanted", 16, 4096)}],
    }
    answers: list[Any] = []
    asking = threading.Thread(
        target=lambda: answers.append(client.ask("POST", "/v2/models/gate/infer", body))
    )
    asking.start()
    until((tmp_path / "gate.reached").exists, "the model runs")

    wanted.cut(4096)
    gate.touch()
    asking.join(30)

    assert answers[0][0] == 400
    assert "has been cut to 4096 bytes since it was registered, 4112 are needed" in answers[0][1]["error"]


def test_the_server_never_deletes_what_belongs_to_a_client(
    serve: Callable[..., Server], models: Path, http_of: Any, memory: Callable[..., Memory]
) -> None:
    shared = memory(cases.FLOATS)
    server = serve(models, allow_client_shm=True)
    client = Http(server.http_port)
    client.register("given", shared)
    client.register("kept", shared)
    client.ask("POST", f"{cases.SYSTEM}/region/given/unregister")
    client.connection.close()
    server.stop()

    assert shared.content == cases.FLOATS


def test_who_shares_a_batch_with_memory_that_was_cut_does_not_notice(
    ours: dict[str, int], our_server: Server, http_of: Any, memory: Callable[..., Memory]
) -> None:
    first, second = http_of(ours["http"]), http_of(ours["http"])
    given = memory(byte_size=4096)
    first.register("given", given, 4096)
    answers: list[Any] = []

    def infer(client: Any, tensor: Any) -> Any:
        body = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 1024], **tensor}]}
        return client.ask("POST", "/v2/models/pairs/infer", body)

    waiting = threading.Thread(
        target=lambda: answers.append(infer(first, {"parameters": cases.region("given", 4096)}))
    )
    waiting.start()
    stats = our_server.runtime.registry.find("pairs", "").stats
    until(lambda: stats.pending_count == 1, "the first request waits for a second one")
    given.cut(0)

    status, answer = infer(second, {"data": [7.0] * 1024})
    waiting.join(30)

    assert (status, answer["outputs"][0]["data"]) == (200, [7.0] * 1024)
    assert answers[0][0] == 400
    assert "has been cut to 0 bytes since it was registered" in answers[0][1]["error"]
