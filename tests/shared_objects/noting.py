"""Models that write down their batches, their batching strategies in C, and who asks them."""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc
from tritonclient.utils import InferenceServerException
from tritonpy.plugin import InferRequest, InferResponse, ModelInstance, hookimpl
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, until

from ..servers import local_options
from .agent_places import whole_lines
from .conftest import Compiled

BUILDS = ("alone", "needs_the_server")
"""How strategies are built: without and with `DT_NEEDED libtritonserver.so`."""

# Writes down the bytes of the requests of each batch; one that begins with -1 runs until there is a gate.
MODEL = """
import json, os, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.folder = json.loads(args["model_config"])["parameters"]["FOLDER"]["string_value"]

    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        with open(os.path.join(self.folder, "journal"), "a") as journal:
            journal.write(json.dumps([array.nbytes for array in arrays]) + "\\n")
        while any(array.flat[0] == -1 for array in arrays):
            if os.path.exists(os.path.join(self.folder, "gate")):
                break
            time.sleep(0.001)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", array)]) for array in arrays]
"""


RealTriton = Callable[[Path], dict[str, int]]


def built(compiled: Compiled, strategy: str, build: str) -> Path:
    """A strategy of these tests, built in one of the `BUILDS`."""
    if build == "alone":
        return compiled(f"strategies/{strategy}.c")
    empty = compiled("libraries/libtritonserver.c", "-Wl,-soname,libtritonserver.so")
    # As in Triton's build tree: a server that has no library of this name finds the empty one.
    return compiled(
        f"strategies/{strategy}.c", "-Wl,--no-as-needed", str(empty), f"-Wl,-rpath,{empty.parent}"
    )


class NotingBackend:
    """A backend on threads of the server that does what `MODEL` does."""

    @hookimpl
    def model_instance_execute(
        self, instance: ModelInstance, requests: Sequence[InferRequest]
    ) -> list[InferResponse]:
        folder = Path(instance.model.parameter("FOLDER"))
        arrays = [request.input("X").numpy() for request in requests]
        with (folder / "journal").open("a") as journal:
            journal.write(json.dumps([array.nbytes for array in arrays]) + "\n")
        while any(array.flat[0] == -1 for array in arrays) and not (folder / "gate").exists():
            time.sleep(0.001)
        return [InferResponse().add("Y", array) for array in arrays]


def configuration(batching: Mapping[str, Any] | None = None, **others: Any) -> dict[str, Any]:
    """Of a model of this module; a row of its input has any number of columns of four bytes."""
    return {
        "max_batch_size": 64,
        "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1], "allow_ragged_batch": True}],
        "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]}],
        "instance_group": [{"kind": "KIND_CPU", "count": 1}],
        "dynamic_batching": dict(batching or {}),
        **others,
    }


class Asked:
    """A server of such models, asked over both protocols.

    Args:
        root: where models note their batches.
        ports: of the server.
        is_real: it is a real tritonserver.
    """

    def __init__(self, root: Path, ports: Mapping[str, int], *, is_real: bool) -> None:
        self.is_real = is_real
        self.ports = ports
        self._root = root
        self._pool = ThreadPoolExecutor(32)
        self._grpc = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{ports['grpc']}")

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._grpc.close()

    def send(
        self, protocol: str, model: str, columns: int, *, first: float = 1, id: str = "", **parameters: Any
    ) -> Future[str]:
        """Send a request of one row; gives "" for an answer, or the error with its status."""
        ask = self._over_http if protocol == "http" else self._over_grpc
        return self._pool.submit(ask, model, columns, first, id, parameters)

    def send_in_order(
        self, protocol: str, model: str, columns: Sequence[int], *, behind: Sequence[Future[str]] = ()
    ) -> list[Future[str]]:
        """Send requests that wait, in this order; those in `behind` do already, unless they are answered."""
        answers: list[Future[str]] = []

        def all_wait() -> bool:
            others = sum(not answer.done() for answer in behind)  # asked first: those that go then are missed
            return self.pending(model) == others + len(answers)

        for count in columns:
            if answers:
                self.until(all_wait)
            answers.append(self.send(protocol, model, count))
        return answers

    def batches(self, model: str) -> list[list[int]]:
        """The bytes of the requests of each batch so far."""
        path = self._root / model / "journal"
        return list(map(json.loads, whole_lines(path))) if path.exists() else []

    def open_gate(self, model: str) -> None:
        """Let go on what is executed."""
        (self._root / model / "gate").touch()

    def counts(self, model: str) -> tuple[int, dict[int, int]]:
        """Executions, and executions by their rows."""
        stats = self._get("http", f"/v2/models/{model}/stats")
        (document,) = json.loads(stats)["model_stats"]
        sizes = {row["batch_size"]: row["compute_infer"]["count"] for row in document["batch_stats"]}
        return document["execution_count"], sizes

    def metric(self, name: str, model: str) -> int:
        """The value of a metric of a model; 0 without one."""
        found = re.search(rf'{name}{{model="{model}",.*}} (\d+)', self._get("metrics", "/metrics"))
        return int(found[1]) if found else 0

    def pending(self, model: str) -> int:
        """How many requests wait."""
        return self.metric("nv_inference_pending_request_count", model)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that comes true soon."""
        until(condition)

    def _get(self, port: str, path: str) -> str:
        for _ in range(3):
            try:
                url = f"http://127.0.0.1:{self.ports[port]}{path}"
                with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
                    text: str = answer.read().decode()
                    return text
            except (ConnectionError, urllib.error.URLError):  # a real server may not take one just then
                continue
        raise AssertionError(f"no answer from {path}")

    def _over_http(self, model: str, columns: int, first: float, id: str, parameters: dict[str, Any]) -> str:
        data = [first, *[0.0] * (columns - 1)]
        tensor = {"name": "X", "datatype": "FP32", "shape": [1, columns], "data": data}
        body = json.dumps({"id": id, "inputs": [tensor], "parameters": parameters})
        connection = http.client.HTTPConnection("127.0.0.1", self.ports["http"], timeout=DEADLINE_S)
        try:
            connection.request("POST", f"/v2/models/{model}/infer", body)
            answer = connection.getresponse()
            document = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != 200:
            return f"{answer.status}: {document['error']}"
        assert document["outputs"][0]["data"] == data
        return ""

    def _over_grpc(self, model: str, columns: int, first: float, id: str, parameters: dict[str, Any]) -> str:
        array = np.zeros((1, columns), np.float32)
        array[0, 0] = first
        tensor = tritonclient.grpc.InferInput("X", array.shape, "FP32")
        tensor.set_data_from_numpy(array)
        try:
            answer = self._grpc.infer(model, [tensor], request_id=id, client_timeout=DEADLINE_S, **parameters)
        except InferenceServerException as error:
            return f"{error.status()}: {error.message()}"
        assert np.array_equal(answer.as_numpy("Y"), array)
        return ""


class Place:
    """A repository of such models, and what they note.

    Args:
        root: an empty directory.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(exist_ok=True)
        self._models = ModelRepository(root / "models")

    def add(
        self,
        name: str,
        config: Mapping[str, Any],
        strategy: Path | None = None,
        *,
        on_threads: bool = False,
        **parameters: str,
    ) -> None:
        """A model, with the strategy that its configuration names."""
        (self.root / name).mkdir()
        parameters["FOLDER"] = str(self.root / name)
        if strategy is not None:
            parameters["TRITON_BATCH_STRATEGY_PATH"] = str(strategy)
        values = {key: {"string_value": value} for key, value in parameters.items()}
        if on_threads:
            self._models.model(name, {**config, "backend": "noting", "parameters": values})
        else:
            self._models.python(name, MODEL, {**config, "backend": "python", "parameters": values})

    @contextmanager
    def served(self, real_triton: RealTriton | None = None, **options: Any) -> Iterator[Asked]:
        """Serve the models: by the real tritonserver that `real_triton` starts, or by ours with `options`."""
        with ExitStack() as stack:
            if real_triton is not None:
                ports = real_triton(self.root / "models")
            else:
                settings = local_options(self.root / "models", **options)
                server = stack.enter_context(
                    Server(settings, plugins={"backends": {"noting": NotingBackend()}})
                )
                ports = {"http": server.http_port, "grpc": server.grpc_port, "metrics": server.metrics_port}
            try:
                yield stack.enter_context(Asked(self.root, ports, is_real=real_triton is not None))
            finally:
                for folder in self.root.iterdir():  # whoever still waits is answered
                    if folder.name != "models":
                        (folder / "gate").touch()
