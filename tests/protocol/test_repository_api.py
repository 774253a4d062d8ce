"""The model repository extension over both protocols: of ours, and, in the parity run, of a real server."""

from __future__ import annotations

import base64
import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy_sdk.repository import ModelRepository

from ..counting import comes_to
from ..servers import OURS_AND_REAL, serving

TENSORS: dict[str, Any] = {
    "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [1]}],
    "output": [{"name": "Y", "data_type": "TYPE_INT32", "dims": [1]}],
}
CONFIG = {"backend": "python", **TENSORS}
ALL_VERSIONS = {**CONFIG, "version_policy": {"all": {}}}
BROKEN = """
class TritonPythonModel:
    def initialize(self, args):
        raise ValueError("boom")
    def execute(self, requests):
        return []
"""


def adding(number: int) -> str:
    """A model that adds a number; another number is another model."""
    return f"""
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor(
                "Y", pb_utils.get_input_tensor_by_name(request, "X").as_numpy() + {number}
            )])
            for request in requests
        ]
"""


def build_models(root: Path) -> None:
    models = ModelRepository(root)
    models.python("plain", adding(1), CONFIG)
    models.python("lifecycle", adding(1), CONFIG)
    models.python("changing", adding(1), CONFIG)
    models.python("configured", adding(1), CONFIG)
    models.python("raises", BROKEN, CONFIG)
    models.python("half", adding(1), ALL_VERSIONS, version=1)
    models.python("half", BROKEN, version=2)
    models.python("unreadable", adding(1), "nonsense: 1")
    models.model("empty", CONFIG)
    (root / "empty/1").rmdir()


@dataclass
class Endpoint:
    """A server, of ours or a real one, and how to ask it.

    Attributes:
        root: its repository.
        is_real: whether it is a real tritonserver.
    """

    http: int
    grpc: int
    root: Path
    is_real: bool

    def send(self, path: str, body: object = None, method: str = "POST") -> tuple[int, str]:
        """Status and body of an HTTP request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=30)
        try:
            content = body if isinstance(body, str | None) else json.dumps(body)
            connection.request(method, path, content)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def load(self, name: str, **parameters: object) -> tuple[int, str]:
        """Status and error of a load over HTTP."""
        body = {"parameters": parameters} if parameters else None
        status, text = self.send(f"/v2/repository/models/{name}/load", body)
        return status, json.loads(text)["error"] if text else ""

    def unload(self, name: str, body: object = None) -> tuple[int, str]:
        """Status and body of an unload over HTTP."""
        return self.send(f"/v2/repository/models/{name}/unload", body)

    def index(self, **body: object) -> dict[tuple[str, str], tuple[str, str]]:
        """State and reason by name and version; "" where there is none."""
        status, text = self.send("/v2/repository/index", body or None)
        assert status == 200, text
        return {
            (entry["name"], entry.get("version", "")): (entry.get("state", ""), entry.get("reason", ""))
            for entry in json.loads(text)
        }

    def unloaded(self, name: str) -> bool:
        """Wait for the end of an unload."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            states = {state for (model, _), state in self.index().items() if model == name}
            if states == {("UNAVAILABLE", "unloaded")}:
                return True
            time.sleep(0.02)
        return False

    def infer(self, name: str, version: str = "") -> int | str:
        """What the model adds to 0, or the error."""
        path = f"/v2/models/{name}/versions/{version}" if version else f"/v2/models/{name}"
        tensor = {"name": "X", "datatype": "INT32", "shape": [1], "data": [0]}
        _, text = self.send(f"{path}/infer", {"inputs": [tensor]})
        answer = json.loads(text)
        return answer["error"] if "error" in answer else answer["outputs"][0]["data"][0]  # type: ignore[no-any-return]

    def says(self, answered: str, words: str) -> bool:
        """Whether an error is Triton's; where the log alone has the reason there, ours goes on with it."""
        return answered == words or (not self.is_real and answered.startswith(f"{words}: "))

    def call(self, name: str, request: object) -> Any:  # Any: made by the protocol compiler
        """The answer of a gRPC call."""
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc}") as channel:
            return getattr(service_pb2_grpc.GRPCInferenceServiceStub(channel), name)(request, timeout=30)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    build_models(root)
    return root


@pytest.fixture(scope="module", params=OURS_AND_REAL)
def server(request: pytest.FixtureRequest, models: Path) -> Iterator[Endpoint]:
    # After a reload that failed it would wait until its exit timeout for the model that still serves.
    flags = ("--model-control-mode=explicit", "--exit-timeout-secs=2")
    options = {"model_control_mode": "explicit", "allow_metrics": False}
    with serving(request.param, request, models, *flags, **options) as ports:
        yield Endpoint(ports["http"], ports["grpc"], models, request.param == "real")


NOT_POLLED = "failed to load '{}', failed to poll from model repository"


def test_a_model_is_loaded_asked_and_unloaded(server: Endpoint) -> None:
    assert server.index()[("lifecycle", "")] == ("", "")

    assert server.load("lifecycle") == (200, "")
    assert server.index()[("lifecycle", "1")] == ("READY", "")
    assert ("lifecycle", "1") in server.index(ready=True)
    assert ("raises", "") not in server.index(ready=True)
    assert server.infer("lifecycle") == 1
    assert server.load("lifecycle") == (200, "")

    assert server.unload("lifecycle") == (200, "")
    assert server.infer("lifecycle") == "Request for unknown model: 'lifecycle' has no available versions"
    assert server.infer("lifecycle", "1") == (
        "Request for unknown model: 'lifecycle' version 1 is not at ready state"
    )
    assert server.send("/v2/models/lifecycle/ready", method="GET")[0] == 400
    assert server.unload("lifecycle") == (200, "")
    assert server.unloaded("lifecycle")


def test_an_unknown_model_is_refused_and_its_unload_is_not(server: Endpoint) -> None:
    status, error = server.load("nope")

    assert status == 500
    assert server.says(error, NOT_POLLED.format("nope"))
    assert server.unload("nope") == (200, "")
    assert not [name for name, _ in server.index() if name == "nope"]


def test_an_error_in_initialize_reaches_the_caller_and_the_index(server: Endpoint) -> None:
    reason = f"Internal: ValueError: boom\n\nAt:\n  {server.root}/raises/1/model.py(4): initialize\n"

    assert server.load("raises") == (
        400,
        f"load failed for model 'raises': version 1 is at UNAVAILABLE state: {reason};\n",
    )
    assert server.index()[("raises", "1")] == ("UNAVAILABLE", reason)
    assert server.infer("raises") == "Request for unknown model: 'raises' has no available versions"


def test_a_model_of_which_one_version_fails_is_not_loaded_at_all(server: Endpoint) -> None:
    status, error = server.load("half")

    assert status == 400
    assert error.startswith("load failed for model 'half': version 2 is at UNAVAILABLE state: Internal: ")
    assert server.infer("half") == "Request for unknown model: 'half' has no available versions"
    index = server.index()
    assert index[("half", "2")][0] == "UNAVAILABLE"
    assert index[("half", "1")] in [("UNLOADING", ""), ("UNAVAILABLE", "unloaded")]


def test_a_configuration_that_cannot_be_read_is_refused(server: Endpoint) -> None:
    status, error = server.load("unreadable")

    assert status == 500
    assert server.says(error, NOT_POLLED.format("unreadable"))
    assert server.index()[("unreadable", "")] == ("", "")


def test_a_model_without_versions_is_refused(server: Endpoint) -> None:
    assert server.load("empty") == (
        400,
        "load failed for model 'empty': "
        "at least one version must be available under the version policy of model 'empty'\n",
    )


def test_a_changed_model_is_loaded_anew_and_a_broken_change_is_not(server: Endpoint) -> None:
    file = server.root / "changing/1/model.py"
    file.write_text(adding(1))
    assert server.load("changing") == (200, "")
    file.write_text(adding(20))
    assert server.load("changing") == (200, "")
    assert server.infer("changing") == 20

    def inference_count() -> int:
        [stats] = json.loads(server.send("/v2/models/changing/stats", method="GET")[1])["model_stats"]
        return int(stats["inference_count"])

    assert comes_to(inference_count, 1) == 1

    file.write_text(BROKEN)
    status, error = server.load("changing")

    assert status == 400
    assert error.startswith("load failed for model 'changing': version 1 is at UNAVAILABLE state: Internal: ")
    assert server.infer("changing") == 20
    assert server.index()[("changing", "1")] == ("READY", "")


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ("[]", 200, ""),
        ("null", 200, ""),
        ({"x": 1}, 200, ""),
        ({"parameters": {}}, 200, ""),
        ({"parameters": []}, 500, "attempt to get members for non-object"),
        ({"parameters": {"config": 1}}, 500, "attempt to access JSON non-string as string"),
        ({"parameters": {"config": None}}, 500, "attempt to access JSON non-string as string"),
        ({"parameters": {"file:1/model.py": 1}}, 500, "attempt to access JSON non-string as string"),
        ({"parameters": {"paint": 1}}, 500, "attempt to access JSON non-string as string"),
        ({"parameters": {"paint": "red"}}, 500, "unexpected error on creating Triton parameter"),
        ({"parameters": {"config": ""}}, 500, NOT_POLLED.format("plain")),
        ({"parameters": {"config": "{bad"}}, 500, NOT_POLLED.format("plain")),
        ({"parameters": {"config": '{"nonsense": 1}'}}, 500, NOT_POLLED.format("plain")),
        ({"parameters": {"config": '{"name": "other"}'}}, 500, NOT_POLLED.format("plain")),
        ({"parameters": {"file:1/model.py": ""}}, 500, NOT_POLLED.format("plain")),
        ({"parameters": {"config": "{}", "file:../x": ""}}, 500, NOT_POLLED.format("plain")),
    ],
    ids=str,
)
def test_a_load_request_is_read_as_triton_reads_it(
    server: Endpoint, body: object, status: int, error: str
) -> None:
    answered, text = server.send("/v2/repository/models/plain/load", body)

    assert answered == status, text
    assert server.says(json.loads(text)["error"] if text else "", error), text


def test_a_body_that_is_no_json_is_refused(server: Endpoint) -> None:
    for path in ("/v2/repository/models/plain/load", "/v2/repository/index"):
        status, text = server.send(path, "{bad")

        assert status == 500
        assert json.loads(text)["error"].startswith("failed to parse the request JSON buffer: ")


@pytest.mark.parametrize("ready", [1, "true", None])
def test_ready_in_an_index_request_is_a_boolean(server: Endpoint, ready: object) -> None:
    status, text = server.send("/v2/repository/index", {"ready": ready})

    assert status == 500
    assert json.loads(text) == {"error": "attempt to access JSON non-boolean as boolean"}


@pytest.mark.parametrize(
    "body",
    ["{bad", [], {"parameters": []}, {"parameters": {"unload_dependents": 1}}, {"parameters": {"paint": 1}}],
    ids=str,
)
def test_whatever_an_unload_request_says_the_unload_happens(server: Endpoint, body: object) -> None:
    assert server.unload("plain", body) == (200, "")


@pytest.mark.parametrize(
    ("method", "path", "status", "error"),
    [
        (
            "POST",
            "/v2/repository/r/models/plain/load",
            501,
            "'repository_name' specification is not supported",
        ),
        (
            "POST",
            "/v2/repository/r/models/plain/unload",
            501,
            "'repository_name' specification is not supported",
        ),
        ("GET", "/v2/repository/index", 405, "Method Not Allowed"),
        ("PUT", "/v2/repository/models/plain/load", 405, "Method Not Allowed"),
        ("POST", "/v2/repository/models/plain/paint", 404, "Not Found"),
        ("POST", "/v2/repository/models/plain/load/", 404, "Not Found"),
        ("POST", "/v2/repository/models/plain/../plain/load", 404, "Not Found"),
        ("POST", "/v2/repository/models/plain", 404, "Not Found"),
        ("POST", "/v2/repository", 404, "Not Found"),
    ],
)
def test_paths_and_methods(server: Endpoint, method: str, path: str, status: int, error: str) -> None:
    assert server.send(path, method=method) == (status, json.dumps({"error": error}, separators=(",", ":")))


def test_the_index_takes_the_name_of_a_repository_and_ignores_it(server: Endpoint) -> None:
    status, text = server.send("/v2/repository/whatever/index")

    assert status == 200
    assert "plain" in {entry["name"] for entry in json.loads(text)}


def test_a_configuration_of_the_request_takes_the_place_of_the_file(server: Endpoint) -> None:
    config = json.dumps({**CONFIG, "max_batch_size": 4})

    assert server.load("configured", config=config) == (200, "")

    shown = json.loads(server.send("/v2/models/configured/config", method="GET")[1])
    assert (shown["name"], shown["max_batch_size"]) == ("configured", 4)
    server.unload("configured")
    assert server.unloaded("configured")
    assert server.load("configured") == (200, "")
    assert json.loads(server.send("/v2/models/configured/config", method="GET")[1])["max_batch_size"] == 0


def test_files_of_the_request_make_a_model(server: Endpoint) -> None:
    def encoded(source: str) -> str:
        return base64.b64encode(source.encode()).decode()

    config = json.dumps(CONFIG)

    assert server.load("sent", config=config, **{"file:3/model.py": encoded(adding(30))}) == (200, "")
    assert server.infer("sent") == 30
    assert server.load("sent", config=config, **{"file:4/model.py": encoded(adding(40))}) == (200, "")
    assert server.infer("sent") == 40
    status, error = server.load("sent")  # the repository does not have it
    assert status == 500
    assert server.says(error, NOT_POLLED.format("sent"))
    assert server.infer("sent") == 40
    assert server.unload("sent") == (200, "")


# gRPC.


def parameter(**value: object) -> Any:  # Any: made by the protocol compiler
    return service_pb2.ModelRepositoryParameter(**value)


def load(server: Endpoint, name: str, repository: str = "", **parameters: Any) -> None:
    request = service_pb2.RepositoryModelLoadRequest(
        repository_name=repository, model_name=name, parameters=parameters
    )
    server.call("RepositoryModelLoad", request)


def unload(server: Endpoint, name: str, repository: str = "", **parameters: Any) -> None:
    request = service_pb2.RepositoryModelUnloadRequest(
        repository_name=repository, model_name=name, parameters=parameters
    )
    server.call("RepositoryModelUnload", request)


def index(server: Endpoint, ready: bool = False, repository: str = "") -> dict[str, tuple[str, str, str]]:
    request = service_pb2.RepositoryIndexRequest(repository_name=repository, ready=ready)
    answer = server.call("RepositoryIndex", request)
    return {model.name: (model.version, model.state, model.reason) for model in answer.models}


def test_grpc_loads_lists_and_unloads(server: Endpoint) -> None:
    load(server, "plain")

    assert index(server)["plain"] == ("1", "READY", "")
    assert index(server, ready=True)["plain"] == ("1", "READY", "")
    assert index(server)["unreadable"] == ("", "", "")
    assert server.infer("plain") == 1
    unload(server, "plain", unload_dependents=parameter(bool_param=True))
    assert server.unloaded("plain")
    unload(server, "plain")
    unload(server, "nope", paint=parameter(bool_param=True))


def test_grpc_sends_a_configuration_and_files(server: Endpoint) -> None:
    config = parameter(string_param=json.dumps(CONFIG))
    model = {"file:5/model.py": parameter(bytes_param=adding(50).encode())}

    load(server, "posted", config=config, **model)

    assert server.infer("posted", "5") == 50
    unload(server, "posted")


@pytest.mark.parametrize(
    ("name", "parameters", "code", "words"),
    [
        ("nope", {}, "INTERNAL", NOT_POLLED.format("nope")),
        ("", {}, "INTERNAL", NOT_POLLED.format("")),
        ("plain/1", {}, "INTERNAL", NOT_POLLED.format("plain/1")),
        (
            "raises",
            {},
            "INVALID_ARGUMENT",
            "load failed for model 'raises': version 1 is at UNAVAILABLE state: Internal: ",
        ),
        ("empty", {}, "INVALID_ARGUMENT", "load failed for model 'empty': at least one version must be "),
        (
            "plain",
            {"config": parameter(bytes_param=b"{}")},
            "INVALID_ARGUMENT",
            "invalid value type for load parameter 'config', expected string_param.",
        ),
        (
            "plain",
            {"file:1/x": parameter(string_param="x")},
            "INVALID_ARGUMENT",
            "invalid value type for load parameter 'file:1/x', expected bytes_param.",
        ),
        (
            "plain",
            {"paint": parameter(string_param="red")},
            "INVALID_ARGUMENT",
            "unrecognized load parameter 'paint'.",
        ),
        ("plain", {"file:1/x": parameter(bytes_param=b"")}, "INTERNAL", NOT_POLLED.format("plain")),
    ],
)
def test_grpc_refuses_in_tritons_words(
    server: Endpoint, name: str, parameters: dict[str, Any], code: str, words: str
) -> None:
    with pytest.raises(grpc.RpcError) as error:
        load(server, name, **parameters)

    assert error.value.code().name == code
    assert error.value.details().startswith(words)
    assert server.says(error.value.details(), words) or not words.startswith("failed to load")


def test_grpc_refuses_the_name_of_a_repository_and_an_unload_that_is_not_understood(server: Endpoint) -> None:
    for call in (
        lambda: load(server, "plain", "r"),
        lambda: unload(server, "plain", "r"),
        lambda: index(server, repository="r"),
    ):
        with pytest.raises(grpc.RpcError) as error:
            call()
        assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert error.value.details() == "'repository_name' specification is not supported"
    with pytest.raises(grpc.RpcError) as error:
        unload(server, "plain", unload_dependents=parameter(string_param="yes"))
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (
        error.value.details() == "invalid value type for 'unload_dependents' parameter, expected bool_param."
    )


# Mode none.


@pytest.fixture(scope="module", params=OURS_AND_REAL)
def uncontrolled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Endpoint]:
    root = tmp_path_factory.mktemp("uncontrolled")
    ModelRepository(root).python("plain", adding(1), CONFIG)
    with serving(request.param, request, root, allow_metrics=False) as ports:
        yield Endpoint(ports["http"], ports["grpc"], root, request.param == "real")


def test_without_explicit_mode_nothing_is_loaded_or_unloaded_on_request(uncontrolled: Endpoint) -> None:
    words = "explicit model load / unload is not allowed if polling is enabled"

    for name in ("plain", "nope"):
        assert uncontrolled.load(name) == (503, words)
        status, text = uncontrolled.unload(name, "{bad")
        assert (status, json.loads(text)) == (503, {"error": words})
        for call in (load, unload):
            with pytest.raises(grpc.RpcError) as error:
                call(uncontrolled, name)
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE
            assert error.value.details() == words
    assert uncontrolled.load("plain", config=1) == (500, "attempt to access JSON non-string as string")
    assert uncontrolled.infer("plain") == 1


def test_a_large_load_request_that_is_refused_is_not_read(uncontrolled: Endpoint) -> None:
    status, text = uncontrolled.send("/v2/repository/models/plain/load", "{bad" + " " * 100_000)

    if uncontrolled.is_real:
        assert status == 500
    else:  # reading it would keep all others waiting
        assert (status, "is not allowed if polling is enabled" in text) == (503, True)


def test_without_explicit_mode_the_index_still_shows_what_lies_in_the_repository(
    uncontrolled: Endpoint,
) -> None:
    (uncontrolled.root / "later").mkdir()

    assert uncontrolled.index() == {("plain", "1"): ("READY", ""), ("later", ""): ("", "")}
    assert uncontrolled.send("/v2/health/ready", method="GET")[0] == 200
    (uncontrolled.root / "later").rmdir()
