"""The logging extension over both protocols: of ours, and, in the parity run, of a real server."""

from __future__ import annotations

import http.client
import itertools
import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy import logs
from tritonpy.server import Server
from tritonpy_sdk.testing import until

from ..servers import local_options

DEFAULTS = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}
MARKERS = itertools.count()
FIELDS = {bool: "bool_param", int: "uint32_param", str: "string_param"}


@dataclass
class Endpoint:
    """A server, of ours or a real one, and how to ask it about its log.

    Attributes:
        log: the file that ours writes.
    """

    http: int
    grpc: int
    log: Path | None = None

    def send(self, method: str, body: str | None = None) -> tuple[int, Any]:
        """Status and JSON of an HTTP request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=30)
        try:
            connection.request(method, "/v2/logging", body)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def call(self, **settings: object) -> dict[str, object]:
        """What `LogSettings` answers; a value of None sends a setting without a value.

        Raises:
            grpc.RpcError: it is refused.
        """
        request = service_pb2.LogSettingsRequest()
        for name, value in settings.items():
            if value is None:
                request.settings[name].SetInParent()
            else:
                setattr(request.settings[name], FIELDS[type(value)], value)
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc}") as channel:
            answer = service_pb2_grpc.GRPCInferenceServiceStub(channel).LogSettings(request, timeout=30)
        return {
            name: getattr(value, value.WhichOneof("parameter_choice"))
            for name, value in answer.settings.items()
        }

    def refused_call(self, **settings: object) -> tuple[str, str]:
        """Code and text of the refusal of `LogSettings`."""
        with pytest.raises(grpc.RpcError) as raised:
            self.call(**settings)
        return raised.value.code().name, str(raised.value.details())


@pytest.fixture(
    scope="module",
    params=["tritonpy", pytest.param("triton", marks=[pytest.mark.parity, pytest.mark.timeout(60)])],
)
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    root = tmp_path_factory.mktemp("models")
    if request.param == "triton":
        real_triton: Callable[..., dict[str, int]] = request.getfixturevalue("real_triton")
        ports = real_triton(root)
        yield Endpoint(ports["http"], ports["grpc"])
        return
    log = root.parent / "server.log"
    options = local_options(root, allow_metrics=False, log_file=str(log))
    with logs.configure(options), Server(options) as server:
        yield Endpoint(server.http_port, server.grpc_port, log)


@pytest.fixture
def server(started: Endpoint) -> Iterator[Endpoint]:
    """With default settings before and after."""
    yield started
    wanted = {name: value for name, value in DEFAULTS.items() if name != "log_file"}
    assert started.send("POST", json.dumps(wanted))[0] == 200


def shown(server: Endpoint, **changes: object) -> dict[str, object]:
    """The settings that a server of the test shows when they are the default beside `changes`."""
    return {**DEFAULTS, "log_file": "" if server.log is None else str(server.log), **changes}


@pytest.mark.parametrize("body", ["{}", "[]", "1", "null", '"log_info"', '{"nope": 1}', '{"log_info": null}'])
def test_a_body_without_settings_changes_nothing_and_shows_all(server: Endpoint, body: str) -> None:
    status, settings = server.send("POST", body)

    assert (status, settings) == (200, shown(server))
    assert list(settings) == list(DEFAULTS)


def test_settings_are_shown_by_both_protocols(server: Endpoint) -> None:
    assert server.send("GET") == (200, shown(server))
    assert server.call() == shown(server)
    assert server.call(nope=True) == shown(server)


CHANGES: list[dict[str, Any]] = [
    {"log_info": False},
    {"log_warning": False, "log_error": False},
    {"log_verbose_level": 2},
    {"log_format": "ISO8601"},
    {
        "log_info": False,
        "log_warning": False,
        "log_error": False,
        "log_verbose_level": 7,
        "log_format": "ISO8601",
    },
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_change_over_http_is_seen_over_both(server: Endpoint, change: dict[str, Any]) -> None:
    assert server.send("POST", json.dumps(change)) == (200, shown(server, **change))

    assert server.send("GET") == (200, shown(server, **change))
    assert server.call() == shown(server, **change)


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_change_over_grpc_is_seen_over_both(server: Endpoint, change: dict[str, Any]) -> None:
    assert server.call(**change) == shown(server, **change)

    assert server.send("GET") == (200, shown(server, **change))


NO_BOOLEAN = (500, "attempt to access JSON non-boolean as boolean")
NO_STRING = (500, "attempt to access JSON non-string as string")
NO_UNSIGNED = (500, "attempt to access JSON non-unsigned-integer as unsigned-integer")
FIXED_FILE = "log file location can not be updated through network protocol"


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ("", 500, "failed to parse the request JSON buffer: The document is empty. at 0"),
        ("x", 500, "failed to parse the request JSON buffer: Invalid value. at 0"),
        ('{"log_file": "x"}', 501, FIXED_FILE),
        ('{"log_file": ""}', 501, FIXED_FILE),
        ('{"log_file": 1, "log_info": "x"}', 501, FIXED_FILE),
        ('{"log_info": "true"}', *NO_BOOLEAN),
        ('{"log_info": 1}', *NO_BOOLEAN),
        ('{"log_warning": "x"}', *NO_BOOLEAN),
        ('{"log_error": []}', *NO_BOOLEAN),
        ('{"log_verbose_level": "1"}', *NO_UNSIGNED),
        ('{"log_verbose_level": 1.5}', *NO_UNSIGNED),
        ('{"log_verbose_level": 2.0}', *NO_UNSIGNED),
        ('{"log_verbose_level": -1}', *NO_UNSIGNED),
        ('{"log_verbose_level": true}', *NO_UNSIGNED),
        ('{"log_verbose_level": 18446744073709551616}', *NO_UNSIGNED),
        ('{"log_format": 1}', *NO_STRING),
        ('{"log_format": "x"}', 503, "invalid argument for --log_format, got: x"),
        ('{"log_format": "iso8601"}', 503, "invalid argument for --log_format, got: iso8601"),
        ('{"log_verbose_level": "x", "log_error": 2}', *NO_BOOLEAN),
        ('{"log_format": 2, "log_verbose_level": "x"}', *NO_UNSIGNED),
    ],
)
def test_a_wrong_setting_is_refused_over_http(server: Endpoint, body: str, status: int, text: str) -> None:
    assert server.send("POST", body) == (status, {"error": text})


@pytest.mark.parametrize("method", ["PUT", "DELETE", "HEAD"])
def test_there_are_get_and_post_only(server: Endpoint, method: str) -> None:
    if method == "HEAD":  # has no body to read
        connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=30)
        connection.request("HEAD", "/v2/logging")
        assert connection.getresponse().status == 405
        connection.close()
    else:
        assert server.send(method, "{}") == (405, {"error": "Method Not Allowed"})


@pytest.mark.parametrize(
    ("settings", "code", "text"),
    [
        ({"log_file": "x"}, "UNIMPLEMENTED", FIXED_FILE),
        ({"log_file": True}, "UNIMPLEMENTED", FIXED_FILE),
        ({"log_file": None}, "UNIMPLEMENTED", FIXED_FILE),
        ({"log_info": "true"}, "INVALID_ARGUMENT", "expect boolean for 'log_info'"),
        ({"log_info": 1}, "INVALID_ARGUMENT", "expect boolean for 'log_info'"),
        ({"log_info": None}, "INVALID_ARGUMENT", "expect boolean for 'log_info'"),
        ({"log_warning": "x"}, "INVALID_ARGUMENT", "expect boolean for 'log_warning'"),
        ({"log_error": "x"}, "INVALID_ARGUMENT", "expect boolean for 'log_error'"),
        ({"log_verbose_level": "2"}, "INVALID_ARGUMENT", "expect int32 for 'log_verbose_level'"),
        ({"log_verbose_level": True}, "INVALID_ARGUMENT", "expect int32 for 'log_verbose_level'"),
        ({"log_verbose_level": None}, "INVALID_ARGUMENT", "expect int32 for 'log_verbose_level'"),
        ({"log_format": True}, "INVALID_ARGUMENT", "expect string for 'log_format'"),
        ({"log_format": "x"}, "INVALID_ARGUMENT", "invalid argument for log_format, got: x"),
        (
            {"log_format": "x", "log_verbose_level": "x", "log_warning": "x"},
            "INVALID_ARGUMENT",
            "expect boolean for 'log_warning'",
        ),
    ],
)
def test_a_wrong_setting_is_refused_over_grpc(
    server: Endpoint, settings: dict[str, object], code: str, text: str
) -> None:
    assert server.refused_call(**settings) == (code, text)


# What follows is ours alone.


@pytest.fixture
def ours(started: Endpoint, server: Endpoint) -> Endpoint:
    if started.log is None:
        pytest.skip("a real server does otherwise")
    return server


@pytest.mark.parametrize(
    "wrong", [{"log_format": "x"}, {"log_verbose_level": "x"}, {"log_warning": 1}], ids=str
)
def test_of_a_request_that_is_refused_nothing_is_done(ours: Endpoint, wrong: dict[str, Any]) -> None:
    assert ours.send("POST", json.dumps({"log_info": False, **wrong}))[0] in (500, 503)
    assert ours.refused_call(log_info=False, **wrong)[0] == "INVALID_ARGUMENT"

    assert ours.send("GET") == (200, shown(ours))


def test_a_level_beyond_what_grpc_can_say_is_refused(ours: Endpoint) -> None:
    status, answer = ours.send("POST", '{"log_verbose_level": 4294967296}')

    assert status == 400
    assert answer["error"] == "log_verbose_level is out of range: got 4294967296, expected 0 to 4294967295"
    assert ours.call(log_verbose_level=4294967295) == shown(ours, log_verbose_level=4294967295)


def test_the_log_follows_its_settings(ours: Endpoint) -> None:
    log = logging.getLogger("tritonpy.test")

    ours.call(log_info=False, log_verbose_level=1)
    log.info("unseen information")
    log.debug("seen detail")
    ours.send("POST", '{"log_info": true, "log_verbose_level": 0, "log_format": "json"}')
    log.info("seen information")
    log.debug("unseen detail")
    last = wait_for_line(ours, "seen information")

    assert json.loads(last)["message"] == "seen information"
    assert ours.log is not None
    text = ours.log.read_text()
    assert '"seen detail"' in text
    assert "unseen" not in text


def test_a_change_leaves_a_line_with_what_was_and_what_is(ours: Endpoint) -> None:
    ours.send("POST", '{"log_verbose_level": 1, "log_format": "ISO8601", "log_info": true}')
    ours.call(log_info=False, log_format="default")
    ours.call(log_warning=False)
    ours.call(log_info=True, log_verbose_level=0)

    assert changes_told(ours)[-3:] == [
        "log_verbose_level from 0 to 1, log_format from default to ISO8601",
        "log_info from true to false, log_format from ISO8601 to default",  # the last line of its kind
        "log_info from false to true, log_verbose_level from 1 to 0",
    ]


def test_what_stays_as_it_was_leaves_no_line(ours: Endpoint) -> None:
    told = changes_told(ours)

    ours.call(log_info=True, log_format="default")
    ours.send("POST", '{"log_verbose_level": 0}')
    ours.send("POST", '{"log_verbose_level": "x", "log_info": false}')

    assert changes_told(ours) == told


def changes_told(server: Endpoint) -> list[str]:
    """What the log tells of changes, once it has written all that it was given; information must be on."""
    marker = f"marker {next(MARKERS)}"
    logging.getLogger("tritonpy.test").info(marker)
    wait_for_line(server, f'"{marker}"')
    assert server.log is not None
    return re.findall(r'"log settings changed: (.*)"$', server.log.read_text(), re.MULTILINE)


def wait_for_line(server: Endpoint, text: str) -> str:
    assert server.log is not None

    def found() -> list[str]:
        whole, _, _ = server.log.read_text().rpartition("\n")
        return [line for line in whole.splitlines() if text in line]

    return until(found)[-1]
