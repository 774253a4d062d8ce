"""The frontend xyz, asked over a socket, in a server of this process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import tritonpy_frontend_xyz
from tritonpy.options import ServerOptions
from tritonpy.plugin import Address, InvalidArg
from tritonpy.server import Server
from tritonpy_sdk.testing import DEADLINE_S, FrontendConformance

MODELS = Path(__file__).parents[1] / "models"
NAME = "tested"  # its own name is that of the installed one


def server_with(setting: str) -> Server:
    """A server in this process, which nobody reaches but through this frontend."""
    key, _, value = setting.partition("=")
    options = ServerOptions(
        (str(MODELS),),
        allow_http=False,
        allow_grpc=False,
        allow_metrics=False,
        frontend_config=((NAME, key, value),),
    )
    return Server(options, plugins={"frontends": {NAME: tritonpy_frontend_xyz}})


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_with("port=0") as server:
        [address] = server.runtime.frontends.by_name[NAME].addresses
        yield f"http://127.0.0.1:{address.port}"


def post(url: str, body: str) -> tuple[int, Any]:
    """The status and the JSON of an answer."""
    try:
        with urlopen(url, body.encode(), timeout=DEADLINE_S) as answer:
            return answer.status, json.load(answer)
    except HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)


class TestRules(
    FrontendConformance,
    frontend=tritonpy_frontend_xyz,
    settings={"port": "0"},
    wrong_settings=[{"port": "many"}, {"ports": "1"}],
):
    """What all frontends have in common; a test that fails says what to do."""

    def ask(self, addresses: Sequence[Address], model: str, values: Sequence[float]) -> list[float]:
        body = json.dumps({"INPUT0": list(values)})
        status, answer = post(f"http://127.0.0.1:{addresses[0].port}/{model}", body)
        if status != 200:
            raise RuntimeError(answer["error"])
        output: list[float] = answer["OUTPUT0"]
        return output


def test_lists_go_in_and_lists_come_out(url: str) -> None:
    assert post(f"{url}/echo", '{"INPUT0": [[0], [1.5]]}') == (200, {"OUTPUT0": [[0.0], [1.5]]})


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("nope", "{}", "Request for unknown model: 'nope' is not found"),
        ("echo", "{}", "missing required input(s) ['INPUT0']"),
        ("echo", '{"OTHER": [[1]]}', "expected an object with the inputs INPUT0: KeyError('OTHER')"),
        ("echo", '{"INPUT0": [["x"]]}', "expected an object with the inputs INPUT0: ValueError"),
        ("echo", "[1]", "expected an object with the inputs INPUT0: AttributeError"),
        ("echo", "{", "expected an object with the inputs INPUT0: JSONDecodeError"),
    ],
)
def test_what_is_wrong_is_said_in_words(url: str, path: str, body: str, reason: str) -> None:
    status, answer = post(f"{url}/{path}", body)

    assert status == 400
    assert reason in answer["error"]


@pytest.mark.parametrize("setting", ["port=many", "ports=1"])
def test_wrong_settings_end_the_start(setting: str) -> None:
    with pytest.raises(InvalidArg, match="the one setting of 'tested' is port=NUMBER"):
        server_with(setting).start()
