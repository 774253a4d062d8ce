"""Several repositories, models of one name, version directories: ours and, in the parity run, a real server.

Each case says what a real server answers. Where ours answers otherwise on purpose, the case says both.
"""

from __future__ import annotations

import functools
import http.client
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy.server import Server
from tritonpy_sdk.pbtxt import format_config
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from ..differential.servers import Server as ServerProcess
from ..servers import OURS_AND_REAL, local_options

CONFIG: dict[str, Any] = {
    "backend": "python",
    "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [1]}],
}
ALL = {**CONFIG, "version_policy": {"all": {}}}
AMBIGUOUS = (
    "There are 2 identifiers of model 'both' in global map, model namespace must be provided to resolve "
    "ambiguity."
)
TWICE = "model appears in two or more repositories"
NOT_FOUND = "Request for unknown model: 'both' is not found"


def adding(number: int) -> str:
    """A model that adds a number."""
    return f"""
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor(
                "OUTPUT0", pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy() + {number}
            )])
            for request in requests
        ]
"""


@dataclass
class Endpoint:
    """A server, of ours or a real one, over two repositories."""

    http: int
    grpc: int
    metrics: int
    roots: tuple[Path, ...]
    is_real: bool

    def send(self, path: str, body: object = None, method: str = "POST", port: int = 0) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", port or self.http, timeout=60)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def get(self, path: str) -> tuple[int, str]:
        """Status and error of a request."""
        status, text = self.send(path, method="GET")
        return status, json.loads(text).get("error", "") if text else ""

    def load(self, name: str) -> tuple[int, str]:
        status, text = self.send(f"/v2/repository/models/{name}/load")
        return status, json.loads(text)["error"] if text else ""

    def unload(self, name: str) -> None:
        assert self.send(f"/v2/repository/models/{name}/unload") == (200, "")
        until(lambda: {row[2] for row in self.index() if row[0] == name} <= {"UNAVAILABLE", ""})

    def infer(self, name: str, version: str = "") -> tuple[int, str | int]:
        """Status with the error, or what the model adds."""
        path = f"/v2/models/{name}/versions/{version}" if version else f"/v2/models/{name}"
        tensor = {"name": "INPUT0", "datatype": "INT32", "shape": [1], "data": [0]}
        status, text = self.send(f"{path}/infer", {"inputs": [tensor]})
        answer = json.loads(text)
        return status, answer["error"] if "error" in answer else answer["outputs"][0]["data"][0]

    def index(self) -> list[tuple[str, str, str, str]]:
        """Name, version, state and reason, sorted; "" for what is not there."""
        status, text = self.send("/v2/repository/index")
        assert status == 200, text
        fields = ("name", "version", "state", "reason")
        return sorted(tuple(row.get(field, "") for field in fields) for row in json.loads(text))  # type: ignore[misc]

    def call(self, method: str, **fields: Any) -> tuple[str, str]:
        """Code and details over gRPC."""
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc}") as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            try:
                getattr(stub, method)(getattr(service_pb2, f"{method}Request")(**fields))
            except grpc.RpcError as error:
                return error.code().name, error.details() or ""
        return "OK", ""

    def reason(self, row: tuple[str, str, str, str]) -> tuple[str, str, str, str]:
        """A row with Triton's part of our reason only, after a look at our part."""
        name, version, state, reason = row
        if not self.is_real and reason.startswith(TWICE):
            assert reason == f"{TWICE}: {' and '.join(str(root / name) for root in self.roots)}"
            reason = TWICE
        return name, version, state, reason


Start = Callable[..., Endpoint]


@pytest.fixture(scope="module", params=OURS_AND_REAL)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def start(kind: str, request: pytest.FixtureRequest) -> Iterator[Start]:
    """Start a server over these roots in mode explicit."""
    running: list[Server] = []

    def begin(*roots: Path, namespacing: bool = False, load: tuple[str, ...] = ()) -> Endpoint:
        if kind == "real":
            flags = [f"--model-repository={root}" for root in roots[1:]]
            flags += [f"--load-model={name}" for name in load]
            flags += [f"--model-namespacing={str(namespacing).lower()}", "--exit-on-error=false"]
            ports = request.getfixturevalue("real_triton")(roots[0], "--model-control-mode=explicit", *flags)
            return Endpoint(ports["http"], ports["grpc"], ports["metrics"], roots, True)
        options = local_options(
            *roots,
            model_control_mode="explicit",
            load_models=load,
            model_namespacing=namespacing,
            exit_on_error=False,
        )
        server = Server(options)
        server.start()
        running.append(server)
        return Endpoint(server.http_port, server.grpc_port, server.metrics_port, roots, False)

    yield begin
    for server in running:
        server.stop()


@pytest.fixture
def roots(tmp_path: Path) -> tuple[Path, Path]:
    """Two repositories that have `both`, and one model each of their own."""
    first, second = tmp_path / "a", tmp_path / "b"
    for number, root in enumerate((first, second), start=1):
        models = ModelRepository(root)
        models.python(f"only_{root.name}", adding(number), CONFIG)
        models.python("both", adding(10 * number), CONFIG)
    return first, second


def test_a_name_of_two_repositories_is_nobodys_without_namespaces(
    start: Start, roots: tuple[Path, Path]
) -> None:
    server = start(*roots, load=("*",))

    assert [server.reason(row) for row in server.index()] == [
        ("both", "", "UNAVAILABLE", TWICE),
        ("only_a", "1", "READY", ""),
        ("only_b", "1", "READY", ""),
    ]
    assert (server.infer("only_a"), server.infer("only_b")) == ((200, 1), (200, 2))
    assert server.infer("both") == server.get("/v2/models/both") == (404, NOT_FOUND)
    assert server.get("/v2/models/both/config") == server.infer("both", "1") == (404, NOT_FOUND)
    assert server.get("/v2/models/both/stats") == (400, "requested model 'both' is not available")
    assert server.get("/v2/models/both/ready") == (400, "Model version not ready")
    assert server.call("ModelMetadata", name="both") == ("NOT_FOUND", NOT_FOUND)
    assert server.call("ModelStatistics", name="both")[0] == "INVALID_ARGUMENT"
    assert server.call("ModelReady", name="both") == ("OK", "")
    status, error = server.load("both")
    assert status == 500
    assert error.startswith("failed to load 'both', failed to poll from model repository")
    assert server.is_real or "is not unique across all model repositories" in error
    server.unload("both")
    shutil.rmtree(roots[0] / "both")
    assert server.load("both") == (200, "")
    assert server.infer("both") == (200, 20)


def test_a_second_model_of_a_name_that_is_served_changes_nothing_until_it_is_unloaded(
    start: Start, tmp_path: Path
) -> None:
    roots = (tmp_path / "a", tmp_path / "b")
    roots[1].mkdir()
    ModelRepository(roots[0]).python("both", adding(10), CONFIG)
    server = start(*roots, load=("both",))

    ModelRepository(roots[1]).python("both", adding(20), CONFIG)

    twice = ("both", "", "UNAVAILABLE", TWICE)
    serving = ("both", "1", "READY", "")
    # Triton leaves out what it serves.
    assert list(map(server.reason, server.index())) == ([twice] if server.is_real else [twice, serving])
    assert server.infer("both") == (200, 10)
    assert server.load("both")[0] == 500
    assert server.infer("both") == (200, 10)
    server.unload("both")
    assert list(map(server.reason, server.index())) == [twice]
    assert server.infer("both") == (404, "Request for unknown model: 'both' has no available versions")
    assert server.load("both")[0] == 500
    shutil.rmtree(roots[0] / "both")
    assert server.load("both") == (200, "")
    assert server.infer("both") == (200, 20)


def test_namespaces_load_both_and_a_name_alone_is_ambiguous(start: Start, roots: tuple[Path, Path]) -> None:
    server = start(*roots, namespacing=True, load=("*",))

    ready = [("both", "1", "READY", "")] * 2
    assert server.index() == [*ready, ("only_a", "1", "READY", ""), ("only_b", "1", "READY", "")]
    assert (server.infer("only_a"), server.infer("only_b", "1")) == ((200, 1), (200, 2))
    for answer in (
        server.infer("both"),
        server.infer("both", "1"),
        server.infer("both", "7"),
        server.get("/v2/models/both"),
        server.get("/v2/models/both/config"),
        server.get("/v2/models/both/versions/1/config"),
    ):
        assert answer == (400, AMBIGUOUS)
    # Whatever the name, Triton says of statistics that the model is not available.
    unavailable = "requested model 'both' is not available" if server.is_real else AMBIGUOUS
    assert server.get("/v2/models/both/stats") == (400, unavailable)
    assert server.call("ModelStatistics", name="both") == ("INVALID_ARGUMENT", unavailable)
    assert server.get("/v2/models/both/ready") == (400, "Model version not ready")
    assert server.call("ModelReady", name="both") == ("OK", "")
    assert server.call("ModelInfer", model_name="both") == ("INVALID_ARGUMENT", AMBIGUOUS)
    assert server.call("ModelConfig", name="both") == ("INVALID_ARGUMENT", AMBIGUOUS)
    # Triton tells clients where its repositories are.
    name = f"{roots[0]}::only_a" if server.is_real else "only_a"
    assert server.infer("only_a", "7") == (404, f"Request for unknown model: '{name}' version 7 is not found")


def test_namespaces_load_and_unload_every_model_of_a_name(start: Start, roots: tuple[Path, Path]) -> None:
    server = start(*roots, namespacing=True)

    names = ("both", "both", "only_a", "only_b")
    assert server.index() == [(name, "", "", "") for name in names]
    assert server.load("both") == (200, "")
    assert server.infer("both") == (400, AMBIGUOUS)
    server.unload("both")
    assert server.index()[:2] == [("both", "1", "UNAVAILABLE", "unloaded")] * 2
    status, error = server.infer("both")
    # Triton: "Identifier of model 'both' is not found in global map"
    assert (status, server.is_real or error) == (
        404,
        server.is_real or "Request for unknown model: 'both' has no available versions",
    )
    shutil.rmtree(roots[1] / "both")
    assert server.load("both") == (200, "")
    assert server.infer("both") == (200, 10)


def test_a_name_stays_ambiguous_while_one_of_its_models_cannot_be_loaded(
    start: Start, roots: tuple[Path, Path]
) -> None:
    (roots[1] / "both/1/model.py").write_text(
        "class TritonPythonModel:\n    def initialize(self, args):\n        raise ValueError('boom')\n"
        "    def execute(self, requests):\n        return []\n"
    )
    server = start(*roots, namespacing=True)

    status, error = server.load("both")
    assert (status, error.startswith(f"load failed for model '{roots[1]}::both': version 1 is at ")) == (
        400,
        True,
    )
    assert [row[2] for row in server.index()[:2]] == ["READY", "UNAVAILABLE"]
    assert server.infer("both") == (400, AMBIGUOUS)
    (roots[1] / "both/1/model.py").write_text(adding(20))
    assert server.load("both") == (200, "")
    assert [row[2] for row in server.index()[:2]] == ["READY", "READY"]


def test_metrics_tell_models_of_one_name_apart(start: Start, roots: tuple[Path, Path]) -> None:
    server = start(*roots, namespacing=True, load=("*",))
    assert server.infer("only_b") == (200, 2)

    success = f'nv_inference_request_success{{model="only_b",namespace="{roots[1]}",version="1"}} 1'
    # Triton counts some time after its answer.
    metrics = functools.partial(server.send, "/metrics", method="GET", port=server.metrics)
    text = until(lambda: (text := metrics()[1]) and success in text and text)
    lines = [line.rsplit(" ", 1)[0] for line in text.splitlines() if line and not line.startswith("#")]
    assert len(lines) == len(set(lines))
    (family,) = (
        family
        for family in text_string_to_metric_families(text)
        if family.name == "nv_inference_request_success"
    )
    assert {(s.labels["model"], s.labels["namespace"]): s.value for s in family.samples} == {
        ("both", str(roots[0])): 0,
        ("both", str(roots[1])): 0,
        ("only_a", str(roots[0])): 0,
        ("only_b", str(roots[1])): 1,
    }


# Version directories: model, its directories, its version policy, what is served. None: nothing, and why.
_ONE = "at least one version must be available under the version policy of model '{}'"
VERSIONS: dict[str, tuple[tuple[str, ...], dict[str, Any] | None, list[str]]] = {
    "leading": (("01", "1", "007", "7"), {"all": {}}, ["1", "7"]),
    "only_leading": (("01",), {"all": {}}, []),
    "zero": (("0",), None, ["0"]),
    "zero_and_one": (("0", "1"), {"all": {}}, ["0", "1"]),
    "zeros": (("00", "3"), {"all": {}}, ["3"]),
    "highest": (("9223372036854775807", "1"), None, ["9223372036854775807"]),
    "beyond_32_bits": (("4294967297",), None, ["4294967297"]),
    "text": (("abc", "1"), {"all": {}}, ["1"]),
    "text_first": (("x1", "v2", "2"), {"all": {}}, ["2"]),
    "other_digits": (("\u0661", "\uff13", "2"), {"all": {}}, ["2"]),
    "by_number": (("2", "10", "9"), None, ["10"]),
    "ignored": (("1", "warmup", "initial_state", "configs"), {"all": {}}, ["1"]),
    "only_ignored": (("warmup", "configs"), {"all": {}}, []),
    "none": ((), {"all": {}}, []),
    "latest_2": (("1", "2", "3"), {"latest": {"num_versions": 2}}, ["2", "3"]),
    "latest_9": (("1", "2", "3"), {"latest": {"num_versions": 9}}, ["1", "2", "3"]),
    "latest_0": (("1", "2"), {"latest": {"num_versions": 0}}, []),
    "latest_unsaid": (("1", "2"), {"latest": {}}, []),
    "unsaid": (("1", "2"), None, ["2"]),
    "specific": (("1", "2", "3"), {"specific": {"versions": [1, 3]}}, ["1", "3"]),
    "specific_missing": (("1", "2"), {"specific": {"versions": [1, 9]}}, ["1"]),
    "specific_negative": (("1",), {"specific": {"versions": [-1, 1]}}, ["1"]),
    "specific_twice": (("1", "2"), {"specific": {"versions": [2, 2]}}, ["2"]),
    "specific_zero": (("0", "1"), {"specific": {"versions": [0]}}, ["0"]),
    "specific_none": (("1",), {"specific": {"versions": [7]}}, []),
    "specific_unsaid": (("1",), {"specific": {}}, []),
}


@pytest.fixture(scope="module")
def begin_versioned(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Endpoint]]:
    """One server over all of these models."""
    root = tmp_path_factory.mktemp("versions")
    backend = "python" if kind == "real" else "identity"  # quicker, and versions are the same to all backends
    for name, (directories, policy, _) in VERSIONS.items():
        config = {**CONFIG, "backend": backend, **({} if policy is None else {"version_policy": policy})}
        model = root / name
        model.mkdir()
        (model / "config.pbtxt").write_text(format_config(config))
        for directory in directories:
            (model / directory).mkdir()
            (model / directory / "model.py").write_text(adding(1))
    (root / "linked").mkdir()
    (root / "linked/config.pbtxt").write_text(format_config({**ALL, "backend": backend}))
    (root / "linked/1").mkdir()
    (root / "linked/1/model.py").write_text(adding(1))
    (root / "linked/2").symlink_to("1")
    (root / "linked/3").write_text("a file")
    (root / "README.md").write_text("a file")
    (root / "pure").mkdir()
    if kind == "real":
        flags = ["--model-control-mode=explicit", "--exit-on-error=false"]
        log = tmp_path_factory.mktemp("log") / "log"
        real = ServerProcess(root, log, is_real=True, options=flags)

        def running() -> Endpoint:
            if real.has_ended:  # over an earlier test, which has failed
                real.restart()
            return Endpoint(real.ports["http"], real.ports["grpc"], real.ports["metrics"], (root,), True)

        yield running
        real.kill()
        return
    options = local_options(root, allow_grpc=False, allow_metrics=False, model_control_mode="explicit")
    with Server(options) as server:
        yield lambda: Endpoint(server.http_port, 0, 0, (root,), False)


@pytest.fixture
def versioned(begin_versioned: Callable[[], Endpoint]) -> Endpoint:
    return begin_versioned()


@pytest.mark.parametrize("name", VERSIONS)
def test_the_versions_that_are_served(versioned: Endpoint, name: str) -> None:
    served = VERSIONS[name][2]

    answer = versioned.load(name)

    if served:
        assert answer == (200, "")
        metadata = json.loads(versioned.send(f"/v2/models/{name}", method="GET")[1])
        assert metadata["versions"] == served
        tensor = {"name": "INPUT0", "datatype": "INT32", "shape": [1], "data": [0]}
        text = versioned.send(f"/v2/models/{name}/infer", {"inputs": [tensor]})[1]
        assert json.loads(text)["model_version"] == served[-1]
    else:
        assert answer == (400, f"load failed for model '{name}': {_ONE.format(name)}\n")
        assert versioned.infer(name) == (
            404,
            f"Request for unknown model: '{name}' has no available versions",
        )
    versioned.unload(name)


def test_a_version_that_is_a_link_counts_and_one_that_is_a_file_does_not(versioned: Endpoint) -> None:
    assert versioned.load("linked") == (200, "")
    assert json.loads(versioned.send("/v2/models/linked", method="GET")[1])["versions"] == ["1", "2"]
    versioned.unload("linked")


def test_files_of_a_repository_are_no_models_but_empty_directories_are(versioned: Endpoint) -> None:
    names = {row[0] for row in versioned.index()}

    assert "pure" in names
    assert "README.md" not in names
    assert versioned.load("pure")[0] == versioned.load("README.md")[0] == 500
