"""The servers that the behaviours of the Python backend are tested on, and a client that speaks plainly.

Every test here that takes `server` runs on ours, and, in the parity run, on a real tritonserver and on ours
with NVIDIA's own Python backend, of which the same is expected as of the real server. All serve `models/`.
What a model sees is found out by a case: a function in a file beside the `model.py` of `cases`, `async_cases`
or `decoupled_cases`, which is called there and whose result comes back as JSON.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy.plugin import Tensor
from tritonpy_sdk.testing import DEADLINE_S, ServerProcess, until

from ..counting import at_rest

HERE = Path(__file__).parent
MODELS = HERE / "models"
REAL_TRITON = HERE.parents[1] / "benchmarks" / "real_triton.py"
Inputs = Mapping[str, Any]
FORGIVING = ("--exit-on-error=false", "--strict-readiness=false")
MAX_STARTS = 3  # a real server that loads several models may crash by chance


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ours(reason): says something of our server only")
    config.addinivalue_line("markers", "theirs(reason): says something of NVIDIA's backend only")
    config.addinivalue_line("markers", "not_nvidia(reason): is not so of NVIDIA's backend on our server")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for fixture in ("server", "explicit_server"):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, list(_servers_for(metafunc.definition)), indirect=True)


def _servers_for(definition: pytest.Item) -> Iterator[Any]:
    if definition.get_closest_marker("theirs") is None:
        yield pytest.param("ours", marks=pytest.mark.timeout(180))  # the first test starts the server
    if definition.get_closest_marker("ours") is None:
        yield pytest.param("real", marks=pytest.mark.parity)
        if definition.get_closest_marker("not_nvidia") is None:
            yield pytest.param("nvidia", marks=pytest.mark.parity)


@dataclass(frozen=True)
class Answer:
    """What came back over HTTP.

    Attributes:
        status: the HTTP status.
        document: the JSON of the body.
    """

    status: int
    document: dict[str, Any]

    @property
    def error(self) -> str:
        """The error's text."""
        return self.document["error"]

    @property
    def outputs(self) -> dict[str, Any]:
        """The data of the outputs by name."""
        assert self.status == 200, self.document
        return {output["name"]: output["data"] for output in self.document["outputs"]}


@dataclass(frozen=True)
class Sent:
    """One message of a stream.

    Attributes:
        error: the error's text, "" for none.
        outputs: the elements of the outputs by name.
        final: what `triton_final_response` says, None when it says nothing.
        types: datatype and shape of the outputs by name.
        parameters: all parameters of the response.
    """

    error: str = ""
    outputs: dict[str, Any] = field(default_factory=dict)
    final: bool | None = None
    types: dict[str, tuple[str, list[int]]] = field(default_factory=dict, compare=False)
    parameters: dict[str, Any] = field(default_factory=dict, compare=False)


class PythonServer:
    """A server that runs `models/`.

    Attributes:
        is_ours: whether models run by our Python backend.
        ports: by `http`, `grpc` and `metrics`.
    """

    def __init__(
        self, process: subprocess.Popen[Any], log_file: Path, ports: dict[str, int], is_ours: bool
    ) -> None:
        self.process = process
        self.ports = ports
        self.is_ours = is_ours
        self._log_file = log_file
        self._channel = grpc.insecure_channel(f"127.0.0.1:{ports['grpc']}")
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def close(self) -> None:
        """End it."""
        self._channel.close()
        self.process.terminate()
        try:
            self.process.wait(DEADLINE_S)
        finally:
            self.process.kill()
            self.process.wait()

    @property
    def log(self) -> str:
        """What it has written so far."""
        return self._log_file.read_text(errors="replace")

    def wait_for_log(self, pattern: str) -> re.Match[str]:
        """Wait until a regular expression is found in the log."""
        return self.wait_for(lambda: re.search(pattern, self.log), f"no line like {pattern!r}")

    def wait_for(self, condition: Callable[[], Any], complaint: str = "it does not happen") -> Any:
        """Wait until `condition` returns something true, and return that."""
        return until(condition, complaint)

    def request(self, method: str, path: str, body: object = None, service: str = "http") -> tuple[int, str]:
        """Send one HTTP request; returns status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[service], timeout=DEADLINE_S)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def infer(self, model: str, inputs: Inputs, **more: Any) -> Answer:
        """Send one inference request as JSON over HTTP.

        Args:
            model: the model.
            inputs: by name, what numpy makes an array of; numbers become FP32 unless they are arrays.
            more: further fields of the request.
        """
        encoded = [
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": tensor.shape,
                "data": [
                    element.decode() if isinstance(element, bytes) else element
                    for element in tensor.numpy().reshape(-1).tolist()
                ],
            }
            for tensor in _tensors(inputs)
        ]
        status, text = self.request("POST", f"/v2/models/{model}/infer", {"inputs": encoded, **more})
        return Answer(status, json.loads(text))

    def ask(self, case: str, *args: Any, model: str = "cases", **more: Any) -> Any:
        """Run a case, `<file>.<function>`, and return what it returned.

        Args:
            case: the function.
            args: its further arguments; JSON.
            model: the model that runs it.
            more: further fields of the request.
        """
        answer = self.infer(model, {"CASE": [json.dumps([case, *args])]}, **more)
        return json.loads(answer.outputs["RESULT"][0])

    def ask_stream(self, case: str, *args: Any) -> Any:
        """Run a case in the decoupled model and return what it returned."""
        [sent] = self.stream("decoupled_cases", {"CASE": [json.dumps([case, *args])]})
        assert sent.error == ""
        return json.loads(sent.outputs["RESULT"][0])

    def message(self, model: str, inputs: Inputs, **more: Any) -> Any:
        """An inference request for gRPC.

        Args:
            model: the model.
            inputs: as for `infer`; a `Tensor` is taken as it is.
            more: further fields of the message.
        """
        message = service_pb2.ModelInferRequest(model_name=model, **more)
        for tensor in _tensors(inputs):
            message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
            message.raw_input_contents.append(bytes(tensor.wire()))
        return message

    def grpc_infer(self, model: str, inputs: Inputs, **more: Any) -> Sent:
        """Send one request over gRPC; an error raises `grpc.RpcError`."""
        return _sent(self.stub.ModelInfer(self.message(model, inputs, **more), timeout=DEADLINE_S))

    def stream(self, model: str, inputs: Inputs, *, wants_final: bool = False, **more: Any) -> list[Sent]:
        """Send one request in a stream of its own; returns all that comes.

        Args:
            model: the model.
            inputs: as for `message`.
            wants_final: ask for the final flag also where it comes alone.
            more: further fields of the message.
        """
        message = self.message(model, inputs, **more)
        if wants_final:
            message.parameters["triton_enable_empty_final_response"].bool_param = True
        responses = self.stub.ModelStreamInfer(iter([message]), timeout=DEADLINE_S)
        return [_sent(response.infer_response, response.error_message) for response in responses]

    def statistics(self, model: str) -> dict[str, Any]:
        """The statistics of a model's one version."""
        _, text = self.request("GET", f"/v2/models/{model}/stats")
        [found] = json.loads(text)["model_stats"]
        return found

    def settled_statistics(self, model: str) -> dict[str, Any]:
        """The same, once everything is counted that was answered before.

        An execution counts when it is over. A model that answers through its senders may be at it still.
        """
        if not self.is_ours:
            return at_rest(lambda: self.statistics(model))
        self.wait_for(lambda: not self._executing(model), f"model '{model}' does not come to rest")
        return self.statistics(model)

    def _executing(self, model: str) -> int:
        """How many executions the instances of a model have been given and not returned; of ours only."""
        _, text = self.request("GET", f"/v2/models/{model}/explain")
        [version] = json.loads(text)["models"]
        return sum(instance["executing"] for instance in version["instances"])

    def index(self) -> dict[str, tuple[str, str]]:
        """State and reason by model and version, `name/1`, in the repository's index."""
        _, text = self.request("POST", "/v2/repository/index", {})
        return {
            f"{entry['name']}/{entry['version']}": (entry["state"], entry.get("reason", ""))
            for entry in json.loads(text)
            if "version" in entry
        }

    def config(self, model: str) -> dict[str, Any]:
        """A model's configuration."""
        _, text = self.request("GET", f"/v2/models/{model}/config")
        return json.loads(text)

    def metrics(self, family: str = "") -> str:
        """The lines of the metrics page that name a family."""
        _, text = self.request("GET", "/metrics", service="metrics")
        return "\n".join(line for line in text.splitlines() if family in line)

    def metric(self, family: str, model: str, **labels: str) -> int:
        """The sum of a family's samples for a model."""
        wanted = [f'{name}="{value}"' for name, value in {"model": model, **labels}.items()]
        lines = [line for line in self.metrics(family).splitlines() if not line.startswith("#")]
        found = [line for line in lines if all(label in line for label in wanted)]
        return sum(int(float(line.rsplit(" ", 1)[1])) for line in found)


def _tensors(inputs: Inputs) -> Iterator[Tensor]:
    for name, value in inputs.items():
        if isinstance(value, Tensor):
            yield value
            continue
        array = np.asarray(value)
        if not isinstance(value, np.ndarray) and array.dtype.kind in "if":
            array = array.astype(np.float32)
        yield Tensor.from_numpy(name, array)


def _sent(response: Any, error: str = "") -> Sent:
    outputs, types = {}, {}
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        shape = list(output.shape)
        outputs[output.name] = Tensor(output.name, output.datatype, shape, raw).numpy().tolist()
        types[output.name] = (output.datatype, shape)
    parameters = {
        name: getattr(parameter, parameter.WhichOneof("parameter_choice"))
        for name, parameter in response.parameters.items()
    }
    return Sent(error, outputs, parameters.get("triton_final_response"), types, parameters)


class DidNotStart(Exception):
    """A server ended before it took requests."""


Start = Callable[..., PythonServer]


def nvidias_backend(environment: dict[str, str]) -> str:
    """The option of ours that names the directory of NVIDIA's own backend; its environment is added to."""
    fetched = subprocess.run([sys.executable, str(REAL_TRITON), "fetch"], stdout=subprocess.PIPE, check=True)
    paths = json.loads(fetched.stdout)
    environment["PATH"] = f"{paths['environment']}/bin:{environment['PATH']}"
    environment["LD_LIBRARY_PATH"] = paths["libpython_dir"]
    return f"--backend-directory={paths['backends']}"


@pytest.fixture(scope="session")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start servers, ours or real, on `models/` with further options; they stop at the end."""
    with ExitStack() as stack:

        def start(kind: str, *options: str) -> PythonServer:
            for _ in range(MAX_STARTS - 1 if kind == "real" else 0):
                with suppress(DidNotStart):
                    return start_once(kind, *options)
            return start_once(kind, *options)

        def start_once(kind: str, *options: str) -> PythonServer:
            log_file = tmp_path_factory.mktemp(kind) / "log"
            environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
            if kind == "nvidia":
                options += ("--disable-plugin=backends:python", nvidias_backend(environment))
            if kind in ("ours", "nvidia"):
                ours = ServerProcess(
                    "--model-repository", MODELS, *options, log_file=log_file, environment=environment
                )
                stack.callback(ours.close)
                process = ours.process
                ports = {"http": ours.http_port, "grpc": ours.grpc_port, "metrics": ours.metrics_port}
            else:
                command = [sys.executable, str(REAL_TRITON), "serve", "--model-repository", str(MODELS), "--"]
                with log_file.open("wb") as log:
                    process = subprocess.Popen(
                        [*command, *options], stdout=subprocess.PIPE, stderr=log, env=environment
                    )
                stack.callback(process.kill)
                assert process.stdout is not None
                line = process.stdout.readline()
                process.stdout.close()
                if not line:
                    process.wait()
                    raise DidNotStart(log_file.read_text(errors="replace"))
                ports = json.loads(line)
            server = PythonServer(process, log_file, ports, kind == "ours")
            stack.callback(server.close)
            assert server.index()["cases/1"] == ("READY", ""), server.log
            return server

        yield start


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, start_server: Start) -> PythonServer:
    """One server for all tests; some of its models are broken on purpose."""
    return start_server(
        request.param,
        "--exit-on-error=false",
        "--strict-readiness=false",
        "--log-verbose=1",
        "--exit-timeout-secs=5",
    )


@pytest.fixture(scope="session")
def explicit_server(request: pytest.FixtureRequest, start_server: Start) -> PythonServer:
    """One server in model control mode explicit, which begins with `cases` alone and logs nothing verbose."""
    return start_server(
        request.param,
        "--model-control-mode=explicit",
        "--load-model=cases",
        "--exit-timeout-secs=3",
    )
