"""A server with the models of the backend `curious`: what clients get, and what the backend notes."""

from __future__ import annotations

import json
import re
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from google.protobuf.json_format import MessageToDict
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy_sdk.testing import DEADLINE_S, until

from ..counting import at_rest
from ..repository_client import RepositoryClient
from .agent_places import whole_lines
from .curious_models import SERVED, Asked

FLAGS = (
    "--model-control-mode=explicit",
    "--load-model=*",
    "--exit-on-error=false",
    "--strict-readiness=false",
    "--backend-config=curious,colour=größer",
    "--backend-config=curious,equation=a=b",
    "--backend-config=default-max-batch-size=9",
)

_CONTENTS = {"INT32": "int_contents", "INT64": "int64_contents", "BYTES": "bytes_contents"}


class Call(NamedTuple):
    """One call of the backend.

    Attributes:
        process: where it was called.
        thread: likewise.
        about: the backend, a model with its version, or an instance.
        function: which one, and of how many requests.
        heard: the answers to what it asked.
    """

    process: int
    thread: int
    about: str
    function: str
    heard: list[str]


class Side:
    """One of two servers that are asked the same.

    Args:
        root: has the models in `models`, and the backend in `backends`.
        ports: of the server.
    """

    def __init__(self, root: Path, ports: Mapping[str, int]) -> None:
        self.client = RepositoryClient(ports["http"])
        self._root = root
        self._ports = ports

    def infer(self, request: Asked) -> tuple[int, Any]:
        """Over HTTP: status, and the answer or the text of the error."""
        return self.client.ask(f"/v2/models/{request.model}/infer", request.body)

    def infer_all(self, requests: Iterable[Asked], *, in_stream: bool = False) -> list[tuple[str, Any]]:
        """Over gRPC: code, and the answers or the text of the error."""
        answers: list[tuple[str, Any]] = []
        with grpc.insecure_channel(f"127.0.0.1:{self._ports['grpc']}") as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            for request in requests:
                try:
                    if in_stream:
                        message = message_of(request, triton_enable_empty_final_response=True)
                        stream = stub.ModelStreamInfer(iter([message]), timeout=DEADLINE_S)
                        answers.append(("OK", [MessageToDict(each) for each in stream]))
                    else:
                        answer = stub.ModelInfer(message_of(request), timeout=DEADLINE_S)
                        answers.append(("OK", MessageToDict(answer)))
                except grpc.RpcError as error:
                    ended: Any = error
                    answers.append((ended.code().name, ended.details()))
        return answers

    def index(self) -> list[Any]:
        """Models with their states and reasons."""
        _, found = self.client.ask("/v2/repository/index", {})
        return sorted(found, key=lambda entry: (entry["name"], entry.get("version", "")))

    def config(self, model: str) -> Any:
        return self.client.ask(f"/v2/models/{model}/config")[1]

    def statistics(self, models: Iterable[str] = SERVED) -> dict[str, Any]:
        """By model, when nothing is counted any more."""

        def read() -> dict[str, Any]:
            answers = {model: self.client.ask(f"/v2/models/{model}/stats") for model in models}
            return {model: answer["model_stats"] for model, (_, answer) in answers.items()}

        return at_rest(read)

    def metrics(self) -> dict[str, float]:
        """The values of the page that are about models, by name and labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._ports['metrics']}/metrics") as answer:
            text = answer.read().decode()
        return {name: float(value) for name, value in re.findall(r'^(nv_\S*model="\S*) (\S+)$', text, re.M)}

    def unload_all(self, models: Iterable[str] = SERVED) -> None:
        """Unload models and wait until the backend has seen their ends."""
        unloaded = list(models)
        for model in reversed(unloaded):
            self.client.unload(model)

        def is_over() -> bool:
            calls = [(call.about, call.function) for call in self.calls()]
            begun = {about for about, function in calls if function == "ModelInitialize"}
            return all((about, "ModelFinalize") in calls for about in begun if about.split()[1] in unloaded)

        until(is_over, lambda: str([(call.about, call.function) for call in self.calls()]))

    def calls(self) -> list[Call]:
        """What the backend has noted, call by call."""
        calls: list[Call] = []
        open_calls: dict[str, Call] = {}
        for line in whole_lines(self._root / "notes"):
            head, _, text = line.partition("\t")
            process, thread, about = head.split(" ", 2)
            if text.startswith("  "):
                open_calls[f"{process} {thread}"].heard.append(self._comparable(text.strip()))
                continue
            call = Call(int(process), int(thread), about, text, [])
            open_calls[f"{process} {thread}"] = call
            calls.append(call)
        return calls

    def _comparable(self, text: str) -> str:
        """Without the place of this server; keys of JSON in the order of the alphabet."""
        text = text.replace(str(self._root), "ROOT")
        head, found, document = text.partition(": {")
        if not found:
            return text
        try:
            return f"{head}: {json.dumps(json.loads('{' + document), sort_keys=True, ensure_ascii=False)}"
        except ValueError:
            return text


def message_of(request: Asked, **parameters: Any) -> Any:
    """The same request for gRPC."""
    body = request.body
    message = service_pb2.ModelInferRequest(model_name=request.model, id=body.get("id", ""))
    for given in body["inputs"]:
        made = message.inputs.add(name=given["name"], datatype=given["datatype"], shape=given["shape"])
        values = [value.encode() if isinstance(value, str) else value for value in given["data"]]
        getattr(made.contents, _CONTENTS[given["datatype"]]).extend(values)
    for output in body.get("outputs", ()):
        message.outputs.add(name=output["name"])
    for key, value in {**body.get("parameters", {}), **parameters}.items():
        kind = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}
        setattr(message.parameters[key], kind[type(value)], value)
    return message


def by_subject(calls: Iterable[Call]) -> dict[str, list[list[Call]]]:
    """For the backend, each model and each instance, its calls in each process that had it."""
    found: dict[str, dict[int, list[Call]]] = defaultdict(lambda: defaultdict(list))
    for call in calls:
        found[call.about][call.process].append(call)
    return {about: list(processes.values()) for about, processes in found.items()}
