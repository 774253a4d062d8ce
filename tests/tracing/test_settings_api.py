"""The trace extension over both protocols: of ours, and, in the parity run, of a real server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from ..servers import OURS_AND_REAL
from .asking import Endpoint

GLOBAL, OF_MODEL = "/v2/trace/setting", "/v2/models/echo/trace/setting"
WORDS = ("rate=7", "count=9", "level=TIMESTAMPS")
FILE_REFUSED = "trace file location can not be updated through network protocol"
OFF_ALONE = "Expect only one trace level 'OFF' is specified"
INVALID = "Attempting to set invalid trace setting :"
NO_STRING = "attempt to access JSON non-string as string"
OUT_OF_UINT = "value is out of range [ 0, 4294967295 ], got: "


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("settings") / "traces.json")


@pytest.fixture(scope="module")
def our_server(ours: Callable[..., Endpoint], path: str) -> Endpoint:
    return ours(f"triton,file={path}", *WORDS)


@pytest.fixture(scope="module")
def real_server(real: Callable[..., Endpoint], path: str) -> Endpoint:
    return real(f"triton,file={path}", *WORDS)


@pytest.fixture(params=OURS_AND_REAL)
def server(request: pytest.FixtureRequest) -> Iterator[Endpoint]:
    """A server whose settings are those it was started with, before the test and after it."""
    endpoint: Endpoint = request.getfixturevalue("our_server" if request.param == "ours" else "real_server")
    yield endpoint
    cleared = {"trace_level": None, "trace_rate": None, "trace_count": None, "log_frequency": None}
    for where in (OF_MODEL, GLOBAL):
        assert endpoint.send("POST", where, cleared)[0] == 200


def settings(path: str, **changed: Any) -> dict[str, Any]:
    return {
        "trace_level": ["TIMESTAMPS"],
        "trace_rate": "7",
        "trace_count": "9",
        "log_frequency": "0",
        "trace_file": path,
        "trace_mode": "triton",
        **changed,
    }


@pytest.mark.parametrize("where", [GLOBAL, OF_MODEL])
def test_all_settings_are_shown_in_their_order(server: Endpoint, path: str, where: str) -> None:
    status, text = server.send("GET", where)

    assert (status, list(json.loads(text).items())) == (200, list(settings(path).items()))


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        ({}, {}),
        (b"[]", {}),
        (b"3", {}),
        (b"null", {}),
        ({"trace_rate": "5"}, {"trace_rate": "5"}),
        ({"trace_rate": " 5"}, {"trace_rate": "5"}),
        ({"trace_count": "-1"}, {"trace_count": "-1"}),
        ({"trace_count": "2147483647"}, {"trace_count": "2147483647"}),
        ({"log_frequency": "3"}, {"log_frequency": "3"}),
        ({"trace_level": ["OFF"]}, {"trace_level": ["OFF"]}),
        ({"trace_level": []}, {}),
        ({"trace_level": ["TENSORS", "TIMESTAMPS"]}, {"trace_level": ["TIMESTAMPS", "TENSORS"]}),
        ({"trace_level": ["nope", "TENSORS"]}, {"trace_level": ["TENSORS"]}),
        ({"trace_level": ["TENSORS", "TENSORS"]}, {"trace_level": ["TENSORS"]}),
        ({"trace_level": ["nope"]}, {}),
        ({"trace_level": ["MIN"]}, {}),
        ({"trace_level": ["tensors"]}, {}),
        ({"trace_mode": "opentelemetry", "url": "x", "unknown": 5}, {}),
        ({"trace_level": ["OFF"], "trace_count": "0"}, {"trace_level": ["OFF"], "trace_count": "0"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("where", [GLOBAL, OF_MODEL])
def test_a_change_is_answered_with_all_settings(
    server: Endpoint, path: str, where: str, body: object, changed: dict[str, Any]
) -> None:
    status, text = server.send("POST", where, body)

    assert (status, json.loads(text)) == (200, settings(path, **changed))


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ({"trace_rate": 5}, 500, NO_STRING),
        ({"trace_rate": ["5"]}, 500, NO_STRING),
        ({"trace_rate": "abc"}, 400, "Unable to parse 'trace_rate', got: abc"),
        ({"trace_rate": ""}, 400, "Unable to parse 'trace_rate', got: "),
        ({"trace_rate": "0"}, 400, f"{INVALID}sample rate must be non-zero"),
        ({"trace_rate": "4294967296"}, 400, f"Unable to parse 'trace_rate', {OUT_OF_UINT}4294967296"),
        ({"trace_rate": "9" * 30}, 400, f"Unable to parse 'trace_rate', {OUT_OF_UINT}{'9' * 30}"),
        ({"trace_count": 3}, 500, NO_STRING),
        ({"trace_count": "x"}, 400, "Unable to parse 'trace_count', got: x"),
        ({"trace_count": "-2"}, 400, "Unable to parse 'trace_count'. Expecting value >= -1, got:-2"),
        (
            {"trace_count": "2147483648"},
            400,
            "Unable to parse 'trace_count', value is out of range [ -1, 2147483647 ], got: 2147483648",
        ),
        ({"log_frequency": 3}, 500, NO_STRING),
        ({"log_frequency": "x"}, 400, "Unable to parse 'log_frequency', got: x"),
        ({"trace_level": "TENSORS"}, 500, "attempt to access JSON non-array as array"),
        ({"trace_level": [5]}, 500, NO_STRING),
        ({"trace_level": ["OFF", "TENSORS"]}, 400, OFF_ALONE),
        ({"trace_level": ["TENSORS", "OFF"]}, 400, OFF_ALONE),
        ({"trace_level": ["OFF", "OFF"]}, 400, OFF_ALONE),
        ({"trace_file": "x"}, 501, FILE_REFUSED),
        ({"trace_file": None}, 501, FILE_REFUSED),
        ({"trace_rate": "5", "trace_count": "bad"}, 400, "Unable to parse 'trace_count', got: bad"),
        ({"trace_level": 5, "trace_rate": "x", "trace_file": "f"}, 501, FILE_REFUSED),
        ({"trace_level": 5, "trace_rate": "x"}, 500, "attempt to access JSON non-array as array"),
        ({"log_frequency": "z", "trace_count": "bad"}, 400, "Unable to parse 'trace_count', got: bad"),
    ],
    ids=str,
)
@pytest.mark.parametrize("where", [GLOBAL, OF_MODEL])
def test_a_change_that_makes_no_sense_changes_nothing(
    server: Endpoint, path: str, where: str, body: object, status: int, error: str
) -> None:
    answer, text = server.send("POST", where, body)

    assert (answer, json.loads(text)) == (status, {"error": error})
    assert json.loads(server.send("GET", where)[1]) == settings(path)


@pytest.mark.parametrize("body", [b"", b"nonsense"])
def test_a_body_that_is_no_json_is_refused(server: Endpoint, body: bytes) -> None:
    status, text = server.send("POST", GLOBAL, body)

    assert status == 500
    assert json.loads(text)["error"].startswith("failed to parse the request JSON buffer: ")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_model_that_is_not_there_has_no_settings(server: Endpoint, method: str) -> None:
    where = "/v2/models/nosuch/trace/setting"
    status, text = server.send(method, where, {"trace_rate": "x"} if method == "POST" else None)

    assert (status, json.loads(text)) == (400, {"error": "Request for unknown model : nosuch"})


def shown(server: Endpoint, where: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(server.send("GET", where)[1])
    return document


def test_a_model_follows_the_server_in_what_it_does_not_set(server: Endpoint, path: str) -> None:
    server.send("POST", OF_MODEL, {"trace_rate": "11"})
    server.send("POST", GLOBAL, {"trace_rate": "12", "trace_count": "77"})
    assert shown(server, OF_MODEL) == settings(path, trace_rate="11", trace_count="77")

    server.send("POST", GLOBAL, {"trace_rate": None, "trace_count": None})
    assert shown(server, OF_MODEL) == settings(path, trace_rate="11")
    server.send("POST", OF_MODEL, {"trace_rate": None})
    assert shown(server, OF_MODEL) == shown(server, GLOBAL) == settings(path)


def test_the_count_that_is_shown_is_what_is_left(server: Endpoint, path: str) -> None:
    server.send("POST", OF_MODEL, {"trace_rate": "2", "trace_count": "5"})
    for _ in range(5):
        assert server.infer("echo")[0] == 200

    assert shown(server, OF_MODEL) == settings(path, trace_rate="2", trace_count="3")
    assert shown(server, GLOBAL) == settings(path)


def test_a_change_gives_a_count_back_that_was_not_set(server: Endpoint, path: str) -> None:
    server.send("POST", GLOBAL, {"trace_rate": "1"})
    assert server.infer("echo")[0] == 200
    assert shown(server, GLOBAL)["trace_count"] == "8"

    server.send("POST", GLOBAL, {})
    assert shown(server, GLOBAL) == settings(path, trace_rate="1")


def test_a_level_needs_a_file(ours: Callable[..., Endpoint]) -> None:
    server = ours()

    assert server.send("POST", GLOBAL, {"trace_level": ["TIMESTAMPS"]}) == (
        400,
        json.dumps({"error": f"{INVALID}trace file name is not given"}, separators=(",", ":")),
    )


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"trace_rate": "5x"}, "Unable to parse 'trace_rate', got: 5x"),
        ({"trace_rate": "1.5"}, "Unable to parse 'trace_rate', got: 1.5"),
        ({"trace_rate": "-1"}, f"Unable to parse 'trace_rate', {OUT_OF_UINT}-1"),
        ({"log_frequency": "-3"}, f"Unable to parse 'log_frequency', {OUT_OF_UINT}-3"),
        ({"trace_count": "0"}, f"{INVALID}trace count must be non-zero"),
    ],
    ids=str,
)
def test_numbers_are_read_whole_here(our_server: Endpoint, path: str, body: object, error: str) -> None:
    """A real server reads as far as there are digits, and takes -1 for 4294967295."""
    assert our_server.send("POST", GLOBAL, body) == (400, json.dumps({"error": error}, separators=(",", ":")))
    assert shown(our_server, GLOBAL) == settings(path)


# gRPC


def call(server: Endpoint, model: str = "", **values: list[str]) -> dict[str, list[str]]:
    request = service_pb2.TraceSettingRequest(model_name=model)
    for name, texts in values.items():
        request.settings[name].SetInParent()
        request.settings[name].value.extend(texts)
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        answer = server.stub(channel).TraceSetting(request, timeout=30)
    return {name: list(value.value) for name, value in answer.settings.items()}


def listed(path: str, **changed: Any) -> dict[str, list[str]]:
    return {
        name: value if isinstance(value, list) else [value]
        for name, value in settings(path, **changed).items()
    }


@pytest.mark.parametrize("model", ["", "echo"])
def test_a_message_without_settings_asks_for_them(server: Endpoint, path: str, model: str) -> None:
    assert call(server, model) == listed(path)


@pytest.mark.parametrize(
    ("values", "changed"),
    [
        ({"trace_rate": ["5"]}, {"trace_rate": "5"}),
        ({"trace_level": ["TENSORS", "TIMESTAMPS"]}, {"trace_level": ["TIMESTAMPS", "TENSORS"]}),
        ({"trace_level": ["OFF"]}, {"trace_level": ["OFF"]}),
        ({"trace_level": ["nope"]}, {}),
        ({"trace_mode": ["opentelemetry"], "unknown": []}, {}),
        ({"log_frequency": ["4"], "trace_count": ["-1"]}, {"log_frequency": "4", "trace_count": "-1"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("model", ["", "echo"])
def test_a_message_changes_settings(
    server: Endpoint, path: str, model: str, values: dict[str, list[str]], changed: dict[str, Any]
) -> None:
    assert call(server, model, **values) == listed(path, **changed)

    assert call(server, model, **{key: [] for key in values}) == listed(path)  # nothing clears


@pytest.mark.parametrize(
    ("values", "code", "text"),
    [
        ({"trace_rate": ["5", "6"]}, "INVALID_ARGUMENT", "expect only 1 value for 'trace_rate'"),
        ({"log_frequency": ["1", "2"]}, "INVALID_ARGUMENT", "expect only 1 value for 'log_frequency'"),
        ({"trace_rate": ["abc"]}, "INVALID_ARGUMENT", "Unable to parse 'trace_rate', got: abc"),
        ({"trace_rate": ["0"]}, "INVALID_ARGUMENT", f"{INVALID}sample rate must be non-zero"),
        (
            {"trace_count": ["-2"]},
            "INVALID_ARGUMENT",
            "Unable to parse 'trace_count'. Expecting value >= -1, got: -2",
        ),
        ({"trace_level": ["OFF", "TENSORS"]}, "INVALID_ARGUMENT", OFF_ALONE),
        ({"trace_file": ["x"]}, "UNIMPLEMENTED", FILE_REFUSED),
        ({"trace_file": []}, "UNIMPLEMENTED", FILE_REFUSED),
        ({"trace_rate": ["y"], "trace_level": ["OFF", "MIN"]}, "INVALID_ARGUMENT", OFF_ALONE),
    ],
    ids=str,
)
def test_a_message_that_makes_no_sense_changes_nothing(
    server: Endpoint, path: str, values: dict[str, list[str]], code: str, text: str
) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        call(server, **values)

    assert (refused.value.code().name, refused.value.details()) == (code, text)
    assert call(server) == listed(path)


def test_a_message_for_a_model_that_is_not_there_is_refused(server: Endpoint) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        call(server, "nosuch", trace_rate=["x"])

    assert (refused.value.code().name, refused.value.details()) == (
        "INVALID_ARGUMENT",
        "Request for unknown model : nosuch",
    )


def test_tritons_clients_show_and_change_settings(server: Endpoint, path: str) -> None:
    with httpclient.InferenceServerClient(f"127.0.0.1:{server.http}") as client:
        changed = client.update_trace_settings("echo", {"trace_rate": "3", "trace_level": ["TENSORS"]})
        assert changed == settings(path, trace_rate="3", trace_level=["TENSORS"])
        assert client.get_trace_settings("echo") == changed
        assert client.get_trace_settings() == settings(path)
        assert client.update_trace_settings("echo", {"trace_rate": None, "trace_level": None}) == settings(
            path
        )
        with pytest.raises(InferenceServerException, match="Unable to parse 'trace_rate'"):
            client.update_trace_settings(settings={"trace_rate": "x"})
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        answer = client.update_trace_settings("echo", {"trace_rate": "3", "trace_level": ["TENSORS"]})
        assert list(answer.settings["trace_level"].value) == ["TENSORS"]
        assert client.get_trace_settings("echo", as_json=True)["settings"]["trace_rate"] == {"value": ["3"]}
        answer = client.update_trace_settings("echo", {"trace_rate": None, "trace_level": None})
        assert list(answer.settings["trace_rate"].value) == ["7"]


def test_the_extension_is_listed(server: Endpoint) -> None:
    extensions = json.loads(server.send("GET", "/v2")[1])["extensions"]

    assert extensions.index("statistics") < extensions.index("trace") < extensions.index("logging")


def test_a_change_is_logged(our_server: Endpoint, path: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tritonpy.frontends")
    our_server.send("POST", OF_MODEL, {"trace_rate": "3"})
    our_server.send("POST", OF_MODEL, {"trace_rate": None})

    assert "trace settings of model 'echo' changed: trace_level" in caplog.text
