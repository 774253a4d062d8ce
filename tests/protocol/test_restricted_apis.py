"""Calls over HTTP that need a key: every category, and what each of them covers."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tritonpy.frontends.restriction import CATEGORIES
from tritonpy.server import Server

from ..servers import local_options

MODELS = Path(__file__).with_name("generate_models")
KEYS = {category: f"Key-Of-{category}" for category in CATEGORIES}
M = "/v2/models/echo"
SHARED = "/v2/systemsharedmemory"
CALLS = [
    ("health", "GET", "/v2/health/live"),
    ("health", "GET", "/v2/health/ready"),
    ("health", "GET", f"{M}/ready"),
    ("health", "GET", f"{M}/versions/1/ready"),
    ("metadata", "GET", "/v2"),
    ("metadata", "GET", M),
    ("inference", "POST", f"{M}/infer"),
    ("inference", "POST", f"{M}/generate"),
    ("inference", "POST", f"{M}/generate_stream"),
    ("shared-memory", "GET", f"{SHARED}/status"),
    ("shared-memory", "POST", f"{SHARED}/region/r/register"),
    ("shared-memory", "POST", f"{SHARED}/unregister"),
    ("shared-memory", "GET", "/v2/cudasharedmemory/status"),
    ("shared-memory", "POST", "/v2/cudasharedmemory/region/r/unregister"),
    ("model-config", "GET", f"{M}/config"),
    ("model-repository", "POST", "/v2/repository/index"),
    ("model-repository", "POST", "/v2/repository/models/x/load"),
    ("model-repository", "POST", "/v2/repository/models/x/unload"),
    ("statistics", "GET", f"{M}/stats"),
    ("statistics", "GET", "/v2/models/stats"),
    ("trace", "GET", "/v2/trace/setting"),
    ("trace", "POST", f"{M}/trace/setting"),
    ("logging", "GET", "/v2/logging"),
    ("logging", "POST", "/v2/logging"),
]


@pytest.fixture(scope="module")
def ours(echo_models: Path) -> Iterator[Server]:
    options = local_options(
        echo_models,
        allow_grpc=False,
        http_restricted_apis=tuple(((category,), key, f"open {category}") for category, key in KEYS.items()),
    )
    with Server(options) as server:
        yield server


@pytest.fixture(scope="module")
def real_port(real_triton: Callable[..., dict[str, int]]) -> int:
    # Without health, which the script that starts it asks.
    restricted = [category for category in CATEGORIES if category != "health"]
    flags = [f"--http-restricted-api={name}:{KEYS[name]}=open {name}" for name in restricted]
    return real_triton(MODELS, *flags)["http"]


def ask(
    port: int, method: str, path: str, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with closing(connection):
        connection.request(method, path, None if method == "GET" else "{}", headers or {})
        response = connection.getresponse()
        body = response.read()
        is_json = response.headers["Content-Type"] == "application/json" or body.startswith(b'{"error"')
        return response.status, json.loads(body) if body and is_json else {}


def assert_restricted(port: int, category: str, method: str, path: str) -> None:
    key = KEYS[category]
    refusal = (403, {"error": f"This API is restricted, expecting header '{key}'"})

    assert ask(port, method, path) == refusal
    assert ask(port, method, path, {key: "open"}) == refusal
    assert ask(port, method, path, {key: f"open {category} "[:-2]}) == refusal
    assert ask(port, method, path, {key: f"open {category}s"}) == refusal
    assert ask(
        port, method, path, {other: f"open {name}" for name, other in KEYS.items() if name != category}
    ) == (refusal)
    assert ask(port, "DELETE", path) == refusal  # the key comes before the method
    assert ask(port, method, path, {key.upper(): f"open {category}"})[0] != 403
    assert ask(port, "DELETE", path, {key: f"open {category}"})[0] == 405


@pytest.mark.parametrize(("category", "method", "path"), CALLS, ids=str)
def test_a_call_needs_the_key_of_its_category(ours: Server, category: str, method: str, path: str) -> None:
    assert_restricted(ours.http_port, category, method, path)


@pytest.mark.parity
@pytest.mark.parametrize(
    ("category", "method", "path"), [call for call in CALLS if call[0] != "health"], ids=str
)
def test_it_needs_it_on_a_real_server(real_port: int, category: str, method: str, path: str) -> None:
    assert_restricted(real_port, category, method, path)


def test_every_category_is_covered() -> None:
    assert {category for category, _, _ in CALLS} == set(CATEGORIES)


def test_unknown_paths_need_no_key(ours: Server) -> None:
    assert ask(ours.http_port, "GET", "/v2/nope") == (404, {"error": "Not Found"})


def test_the_metrics_port_needs_no_key(ours: Server) -> None:
    with urlopen(f"http://127.0.0.1:{ours.metrics_port}/metrics", timeout=30) as answer:
        assert answer.status == 200


def test_one_key_may_open_several_categories(serve: Callable[..., Server], echo_models: Path) -> None:
    port = serve(echo_models, http_restricted_apis=((("metadata", "statistics"), "admin", "1"),)).http_port

    for path in ("/v2", "/v2/models/stats"):
        assert ask(port, "GET", path)[0] == 403
        assert ask(port, "GET", path, {"Admin": "1"})[0] == 200
    assert ask(port, "GET", f"{M}/config")[0] == 200
