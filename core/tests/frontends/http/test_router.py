"""Rows of the table of routes, and finding them."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tritonpy.frontends.http.connection.answering import HttpConnection
from tritonpy.frontends.http.connection.message import HttpRequest
from tritonpy.frontends.http.router import Names, Route, RouteTable, get, post


class Connection:
    """Keeps what is written; stands for an `HttpConnection`."""

    keep_alive = True

    def __init__(self) -> None:
        self.written = b""

    def write(self, response: bytes) -> None:
        self.written += response


def answer(request: HttpRequest, connection: HttpConnection, names: Names) -> None:
    raise NotImplementedError


def table(*patterns: str) -> RouteTable:
    return RouteTable(Route(b"GET", pattern, "metadata", answer) for pattern in patterns)


@pytest.mark.parametrize(
    ("pattern", "path", "names"),
    [
        ("/v2", "/v2", ()),
        ("/v2/{name}", "/v2/a.b-c%20", ("a.b-c%20",)),
        ("/v2/{name}[/versions/{version}]/x", "/v2/m/x", ("m", "")),
        ("/v2/{name}[/versions/{version}]/x", "/v2/m/versions/007/x", ("m", "007")),
        ("/v2/r[/{repository}]/models/{model}", "/v2/r/models/models", ("", "models")),
        ("/v2/r[/{repository}]/models/{model}", "/v2/r/q/models/m", ("q", "m")),
    ],
)
def test_a_pattern_gives_the_names_of_a_path(pattern: str, path: str, names: Names) -> None:
    found = table(pattern).find(path)

    assert found is not None
    assert found.names == names


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/v2", "/v2/"),
        ("/v2", "/v2\n"),
        ("/v.2", "/vx2"),
        ("/v2/{name}", "/v2/"),
        ("/v2/{name}", "/v2/a/b"),
        ("/v2/m/versions/{version}", "/v2/m/versions/1x"),
        ("/v2/m/versions/{version}", "/v2/m/versions/\u0661"),
    ],
)
def test_another_path_is_not_found(pattern: str, path: str) -> None:
    assert table(pattern).find(path) is None


def test_the_first_pattern_that_fits_decides() -> None:
    routes = [
        Route(b"GET", "/v2/models/stats", "statistics", answer),
        Route(b"GET", "/v2/models/{model}", "metadata", answer),
        Route(b"POST", "/v2/models/{model}", "metadata", answer),
    ]

    stats = RouteTable(routes).find("/v2/models/stats")
    other = RouteTable(routes).find("/v2/models/other")

    assert stats is not None
    assert (stats.category, list(stats.answers)) == ("statistics", [b"GET"])
    assert other is not None
    assert list(other.answers) == [b"GET", b"POST"]


@pytest.mark.parametrize(
    "second",
    [
        Route(b"GET", "/v2", "metadata", answer),
        Route(b"POST", "/v2", "health", answer),
        Route(b"GET", "/v3", "nonsense", answer),
    ],
    ids=["twice", "another category", "no category"],
)
def test_rows_that_contradict_each_other_are_refused(second: Route) -> None:
    with pytest.raises(ValueError, match="route"):
        RouteTable([Route(b"GET", "/v2", "metadata", answer), second])


def test_paths_that_clients_make_up_fill_no_memory() -> None:
    routes = table("/v2/{name}")
    for number in range(3 * RouteTable.MOST_REMEMBERED):
        assert routes.find(f"/v2/{number}") is not None
    routes.find("/v2/" + "x" * RouteTable.LONGEST_REMEMBERED)
    routes.find("/v3")

    assert len(routes._found) <= RouteTable.MOST_REMEMBERED
    assert max(map(len, routes._found)) <= RouteTable.LONGEST_REMEMBERED
    assert "/v3" not in routes._found


def _answer(route: Route, names: Names = ()) -> tuple[bytes, object]:
    connection = Connection()
    request = HttpRequest(route.method, "/x", {}, b"body", True)
    rest = route.answer(request, cast(HttpConnection, connection), names)
    return connection.written, rest


def test_a_call_that_gives_a_document_is_answered_at_once() -> None:
    assert _answer(get("/x", "health", lambda: {"a": 1}))[0].endswith(b'\r\n\r\n{"a":1}')
    assert b"Content-Length: 0\r\n" in _answer(get("/x", "health", lambda: None))[0]


def test_a_call_gets_the_names_and_of_a_post_the_body() -> None:
    assert _answer(get("/{a}", "health", lambda *given: list(given)), ("a",))[0].endswith(b'["a"]')
    given: list[Any] = []
    _answer(post("/{a}", "health", lambda *names: given.append(names)), ("a",))

    assert given == [(b"body", "a")]


async def _later() -> dict[str, int]:
    return {"a": 1}


async def test_a_call_that_takes_its_time_is_answered_when_it_is_done() -> None:
    connection = Connection()
    route = get("/x", "health", _later)

    rest = route.answer(HttpRequest(b"GET", "/x", {}, b"", True), cast(HttpConnection, connection), ())

    assert connection.written == b""
    assert rest is not None
    await rest
    assert connection.written.endswith(b'{"a":1}')
