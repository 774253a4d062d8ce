"""One of the two servers, ours or the real one, with a repository, and what tests ask of it."""

from __future__ import annotations

import json
import queue
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonpy.server import Server
from tritonpy_sdk.testing import DEADLINE_S, until

from ..counting import at_rest
from ..servers import OURS_AND_REAL, local_options


@dataclass
class Side:
    """One server.

    Attributes:
        is_ours: not the real one.
        http_port, grpc_port, metrics_port: where it listens.
        stop: ends ours.
    """

    is_ours: bool
    http_port: int
    grpc_port: int
    metrics_port: int
    stop: Callable[[], None] = lambda: None

    def call(self, path: str, document: Any = None) -> tuple[int, Any]:
        """Status and document of an answer; with a document, it is posted."""
        body = None if document is None else json.dumps(document).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.http_port}/v2/{path}", body)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                status, text = error.code, error.read()
        return status, json.loads(text) if text else None

    def infer(
        self, model: str, value: int | Mapping[str, Sequence[Any]] = 1, **more: Any
    ) -> tuple[int, dict[str, Any]]:
        """Ask a model; an integer is its input IN, otherwise shape, data and perhaps datatype by name."""
        given = {"IN": ([1], [value])} if isinstance(value, int) else value
        inputs = [
            {
                "name": name,
                "shape": shape,
                "data": data,
                "datatype": datatype[0] if datatype else "INT32",
            }
            for name, (shape, data, *datatype) in given.items()
        ]
        return self.call(f"models/{model}/infer", {"inputs": inputs, **more})

    def outputs(
        self, model: str, value: int | Mapping[str, Sequence[Any]] = 1, **more: Any
    ) -> dict[str, tuple[list[int], list[Any]]]:
        """Shape and data of each output."""
        status, document = self.infer(model, value, **more)
        assert status == 200, document
        return {output["name"]: (output["shape"], output["data"]) for output in document["outputs"]}

    def out(self, model: str, value: int | Mapping[str, Sequence[Any]] = 1, **more: Any) -> Any:
        """The data of the output OUT."""
        return self.outputs(model, value, **more)["OUT"][1]

    def refusal(self, model: str, value: int | Mapping[str, Sequence[Any]] = 1) -> tuple[int, str]:
        """Status and text of an error."""
        status, document = self.infer(model, value)
        return status, document["error"]

    def statistics(self, model: str) -> dict[str, Any]:
        """What is counted for a model, once everything is."""

        def counted() -> dict[str, Any]:
            statistics: dict[str, Any] = self.call(f"models/{model}/stats")[1]["model_stats"][0]
            return statistics

        return counted() if self.is_ours else at_rest(counted)

    def failures(self, model: str) -> dict[str, int]:
        """Failed requests by reason, from the metrics, once all are counted."""
        return self._failures(model) if self.is_ours else at_rest(lambda: self._failures(model))

    def _failures(self, model: str) -> dict[str, int]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics") as page:
            text = page.read().decode()
        name = rf'nv_inference_request_failure{{model="{model}",reason="(\w+)",version="1"}} (\d+)'
        return {reason: int(count) for reason, count in re.findall(name, text) if int(count)}

    def stream(self, model: str, value: int, **more: Any) -> list[Any]:
        """Every response to one request of a decoupled model: outputs and parameters, or an error's text."""
        tensor = grpcclient.InferInput("IN", [1], "INT32")
        tensor.set_data_from_numpy(np.array([value], np.int32))
        answers: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
        came: list[Any] = []
        with grpcclient.InferenceServerClient(f"127.0.0.1:{self.grpc_port}") as client:
            client.start_stream(lambda result, error: answers.put((result, error)))
            client.async_stream_infer(model, [tensor], enable_empty_final_response=True, **more)
            while True:
                result, error = answers.get(timeout=DEADLINE_S)
                if error is not None:
                    return [*came, error.message()]
                response = result.get_response(as_json=True)
                final = response["parameters"].pop("triton_final_response")["bool_param"]
                arrays = {
                    output["name"]: result.as_numpy(output["name"]).tolist()
                    for output in response.get("outputs", ())
                }
                if arrays:
                    came.append((arrays, response["parameters"]))
                if final:
                    return came

    # Loading and unloading.

    def load(self, model: str, config: Mapping[str, Any] | None = None) -> tuple[int, str]:
        parameters = {"config": json.dumps(config)} if config else {}
        status, document = self.call(f"repository/models/{model}/load", {"parameters": parameters})
        return status, document["error"] if document else ""

    def unload(self, model: str, **parameters: Any) -> None:
        status, document = self.call(f"repository/models/{model}/unload", {"parameters": parameters})
        assert status == 200, document

    def states(self, *models: str) -> dict[str, tuple[str, str]]:
        """State and reason of models that have been loaded or tried; once nothing is on its way any more."""

        def settled() -> list[dict[str, tuple[str, str]]]:
            rows = self.call("repository/index", {})[1]
            known = {row["name"]: (row["state"], row.get("reason", "")) for row in rows if "version" in row}
            return [] if any(state in ("LOADING", "UNLOADING") for state, _ in known.values()) else [known]

        [known] = until(settled)
        return {model: known[model] for model in models or known if model in known}

    def ready(self) -> set[str]:
        """The models that are READY."""
        return {model for model, (state, _) in self.states().items() if state == "READY"}


Start = Callable[..., Side]


@contextmanager
def starting(kind: str, request: pytest.FixtureRequest) -> Iterator[Start]:
    """Starts servers of one kind on a repository, with options of ours or the same flags of the real one."""
    with ExitStack() as stack:

        def start(path: Path, *, mode: str = "none") -> Side:
            if kind == "ours":
                options = local_options(
                    path,
                    exit_on_error=False,
                    strict_readiness=False,
                    model_control_mode=mode,
                    repository_poll_s=0.2,
                )
                server = stack.enter_context(Server(options))
                return Side(True, server.http_port, server.grpc_port, server.metrics_port, server.stop)
            flags = ["--exit-on-error=false", "--strict-readiness=false", f"--model-control-mode={mode}"]
            flags += ["--repository-poll-secs=1"] if mode == "poll" else []
            tritons = request.getfixturevalue("real_triton")
            ports = tritons(path, *flags)
            stack.callback(tritons.end, ports)
            return Side(False, ports["http"], ports["grpc"], ports["metrics"])

        yield start


@pytest.fixture(params=OURS_AND_REAL)
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    with starting(request.param, request) as start:
        yield start


@pytest.fixture
def start_ours(request: pytest.FixtureRequest) -> Iterator[Start]:
    with starting("ours", request) as start:
        yield start
