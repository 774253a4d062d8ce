"""What a server makes of a model: asked over both protocols, and told by its index and its log."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from ..differential.servers import Server
from .cases import Case

JsonValue = Any  # Any: JSON

_POLL_FAILED = "failed to load '{name}', failed to poll from model repository"
_BACKENDS = re.compile(r"'[^']*/backends-[0-9.]+/")
_UNAVAILABLE = re.compile(
    r"load failed for model '[^']*': version \d+ is at UNAVAILABLE state: (.*);\n", re.DOTALL
)
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_TIMEOUT_S = 60


@dataclass(frozen=True)
class Verdict:
    """What came of a load.

    Attributes:
        http, grpc: the status of the answers: a number, and a name or "" for a model that serves.
        stage: `poll` for a model that is refused before it is tried, `load` for one whose version fails, ""
            for one that serves.
        reason: why it is refused, as the answer over HTTP says it or, where that is silent, the log.
        grpc_reason: the same as the answer over gRPC says it.
        index: version, state and reason of each entry in the index.
        config: the configuration as it is shown; None for a model that does not serve.
    """

    http: int
    grpc: str
    stage: str
    reason: str
    grpc_reason: str
    index: list[list[str]]
    config: dict[str, JsonValue] | None = field(repr=False)


def lay_out(repository: Path, name: str, case: Case) -> None:
    """Write the model's directory."""
    directory = repository / name
    directory.mkdir(parents=True)
    if case.text is not None:
        (directory / "config.pbtxt").write_text(case.text.replace("@", name))
    for file in case.files:
        path, content = (file, "") if isinstance(file, str) else file
        if path.endswith("/"):
            (directory / path).mkdir(parents=True)
        else:
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_text(content)


def ask_all(server: Server, names: list[str], repository: Path, *, at_once: int) -> dict[str, Verdict]:
    """Load every model; each that serves is unloaded again. The real server crashes over several at once.

    Raises:
        ServerEnded: names the model; see `Server.try_twice`.
    """

    def ask_for(name: str) -> Verdict:
        return server.try_twice(name, lambda: ask(server, name, repository))

    with ThreadPoolExecutor(at_once) as pool:
        return dict(zip(names, pool.map(ask_for, names), strict=True))


def ask(server: Server, name: str, repository: Path) -> Verdict:
    """Load one model, over gRPC too if it is refused; paths are told as `<models>` and `<backends>`."""
    status, body = _http(server, f"repository/models/{name}/load", b"{}")
    http_error = json.loads(body)["error"] if status != 200 else ""
    grpc_code, grpc_error = _grpc_load(server, name) if status != 200 else ("", "")
    entries = json.loads(_http(server, "repository/index", b"{}")[1])
    config = None
    if status == 200:
        config = json.loads(_http(server, f"models/{name}/config")[1])
        _http(server, f"repository/models/{name}/unload", b"{}")

    def told(text: str) -> str:
        return _BACKENDS.sub("'<backends>/", text.replace(str(repository), "<models>"))

    index = [
        [entry.get("version", ""), entry.get("state", ""), told(entry.get("reason", ""))]
        for entry in entries
        if entry["name"] == name
    ]
    stage, reason = _why(name, http_error, lambda: server.log)
    _, grpc_reason = _why(name, grpc_error, lambda: server.log)
    return Verdict(status, grpc_code, stage, told(reason), told(grpc_reason), index, config)


def _why(name: str, error: str, read_log: Callable[[], str]) -> tuple[str, str]:
    """Stage and reason of an error that answered a load."""
    polling = _POLL_FAILED.format(name=name)
    if error.startswith(polling):
        said = error.removeprefix(polling).removeprefix(": ")
        return "poll", said or _logged(name, read_log())
    if match := _UNAVAILABLE.fullmatch(error):
        return "load", match[1]
    return "load" if error else "", error.removeprefix(f"load failed for model '{name}': ").removesuffix("\n")


def _logged(name: str, log: str) -> str:
    found = re.search(rf'"Poll failed for model directory \'{name}\': (.*)"\n', log)
    return found[1] if found else ""


def _http(server: Server, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    request = urllib.request.Request(f"http://127.0.0.1:{server.ports['http']}/v2/{path}", body)
    try:
        with _OPENER.open(request, timeout=_TIMEOUT_S) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def _grpc_load(server: Server, name: str) -> tuple[str, str]:
    with InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") as client:
        try:
            client.load_model(name, client_timeout=_TIMEOUT_S)
        except InferenceServerException as error:
            return error.status().removeprefix("StatusCode."), error.message()
        return "OK", ""
