"""The pods behind a service of Kubernetes, told by an API server that is a class of this file."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web
from tritonpy.errors import InvalidArg
from tritonpy.server import Server
from tritonpy_router.endpoint_slices import Service, open_endpoint_slices, places_of
from tritonpy_router.membership import MembershipOptions, open_membership
from tritonpy_router.replica import Place
from tritonpy_sdk.testing import DEADLINE_S, until

from .conftest import BODY, RouterThread, asked

SERVICE = Service("ml", "models")
PATH = "/apis/discovery.k8s.io/v1/namespaces/ml/endpointslices"
PORTS = [{"name": "http", "port": 8000}, {"name": "grpc", "port": 8001}]


def endpoint(pod: str, address: str, **more: Any) -> dict[str, Any]:
    return {
        "addresses": [address],
        "conditions": {"ready": True, "serving": True, "terminating": False},
        "targetRef": {"kind": "Pod", "name": pod, "namespace": "ml"},
        **more,
    }


def slice_of(name: str, *endpoints: Mapping[str, Any], version: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "ml", "resourceVersion": str(version)},
        "addressType": "IPv4",
        "endpoints": list(endpoints) or None,
        "ports": PORTS,
        **more,
    }


def conditions(**given: bool | None) -> dict[str, Any]:
    return {"conditions": given}


@pytest.mark.parametrize(
    ("given", "is_member"),
    [
        ({}, True),  # nobody knows: taken for ready, as the API says
        ({"ready": True}, True),
        ({"ready": False}, False),
        ({"ready": None, "serving": None}, True),
        ({"ready": False, "serving": True}, True),
        ({"ready": False, "serving": False}, False),
        ({"ready": False, "serving": True, "terminating": True}, False),
        ({"ready": True, "serving": True, "terminating": True}, False),
    ],
)
def test_a_pod_is_a_server_while_it_serves_and_does_not_terminate(
    given: dict[str, bool | None], is_member: bool
) -> None:
    places, fault = places_of(SERVICE, [slice_of("s", endpoint("a", "10.0.0.1", **conditions(**given)))])

    assert ([place.name for place in places], fault) == (["a"] if is_member else [], "")


def test_a_pod_in_two_slices_is_one_server_and_its_address_of_ipv4_counts() -> None:
    slices = [
        slice_of("six", endpoint("a", "fd00::1"), addressType="IPv6"),
        slice_of("four", endpoint("b", "10.0.0.2"), endpoint("a", "10.0.0.1")),
        slice_of("other", endpoint("b", "10.0.0.2")),
    ]

    places, _ = places_of(SERVICE, slices)

    assert places == [Place("a", "10.0.0.1", 8000, 8001), Place("b", "10.0.0.2", 8000, 8001)]


def test_an_endpoint_that_is_no_pod_is_called_by_its_address() -> None:
    bare = {"addresses": ["fd00::7"]}

    places, _ = places_of(SERVICE, [slice_of("s", bare, addressType="IPv6")])

    assert places == [Place("[fd00::7]:8000", "fd00::7", 8000, 8001)]


def test_ports_are_names_or_numbers_and_one_that_is_missing_is_named() -> None:
    ports = [{"name": "web", "port": 80}, {"name": "rpc", "port": 81}]
    slices = [slice_of("s", endpoint("a", "10.0.0.1"), ports=ports)]

    assert places_of(Service("ml", "models", "web", "9001"), slices)[0] == [Place("a", "10.0.0.1", 80, 9001)]
    assert places_of(SERVICE, slices) == ([], "has no port called 'http'; its ports are web:80, rpc:81")
    assert places_of(Service("ml", "models", "web"), slices)[1].startswith("has no port called 'grpc'")


def test_pods_that_are_hinted_for_the_zone_are_preferred_if_all_have_hints() -> None:
    def hint(zone: str) -> dict[str, Any]:
        return {"hints": {"forZones": [{"name": zone}]}}

    hinted = [endpoint("a", "10.0.0.1", **hint("west")), endpoint("b", "10.0.0.2", **hint("east"))]
    unhinted = endpoint("c", "10.0.0.3")

    def names(zone: str, *endpoints: dict[str, Any]) -> list[str]:
        return [
            place.name for place in places_of(Service("ml", "m", zone=zone), [slice_of("s", *endpoints)])[0]
        ]

    assert names("west", *hinted) == ["a"]
    assert names("", *hinted) == ["a", "b"]
    assert names("north", *hinted) == ["a", "b"]
    assert names("west", *hinted, unhinted) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("rest", "text"),
    [
        ("models", "expected k8s://[NAMESPACE]/SERVICE"),
        ("ml/", "expected k8s://[NAMESPACE]/SERVICE"),
        ("ml/models/more", "expected k8s://[NAMESPACE]/SERVICE"),
        ("ml/models:1:2:3", "expected k8s://[NAMESPACE]/SERVICE"),
        ("ml/models:", "expected k8s://[NAMESPACE]/SERVICE"),
        ("ml/models?zones=a", "expected k8s://[NAMESPACE]/SERVICE"),
        ("ml/models", "KUBERNETES_SERVICE_HOST is not set"),
        ("ml/models?api=ftp://x", "API server 'ftp://x' is no URL of http or https"),
        ("/models?api=http://x", "the router's own is not known"),
    ],
)
def test_what_is_no_service_is_refused(rest: str, text: str) -> None:
    with pytest.raises(InvalidArg) as refused:
        open_membership(f"k8s://{rest}", MembershipOptions({}, lambda text: None))

    assert text in refused.value.message


class Api:
    """An API server with one list and answers to watches; it keeps what it was asked."""

    def __init__(self, *items: dict[str, Any], version: int = 10) -> None:
        self.items = list(items)
        self.version = version
        self.asked: list[dict[str, str]] = []
        self.tokens: list[str] = []
        self.refusals: list[web.Response] = []  # answered first
        self.watches: list[Sequence[bytes | None]] = []  # pieces of one watch each; None keeps it open
        self.port = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(dict(request.query))
        self.tokens.append(request.headers.get("Authorization", ""))
        if self.refusals:
            return self.refusals.pop(0)
        if "watch" not in request.query:
            metadata = {"resourceVersion": str(self.version)}
            return web.json_response({"kind": "EndpointSliceList", "metadata": metadata, "items": self.items})
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in self.watches.pop(0) if self.watches else [None]:
            if piece is None:
                await asyncio.Event().wait()
            else:
                await response.write(piece)
        return response

    @asynccontextmanager
    async def running(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
        application = web.Application()
        application.router.add_get(PATH, self.answer)
        runner = web.AppRunner(application, shutdown_timeout=0.01)  # 0 would wait for ever
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        self.port = runner.addresses[0][1]
        try:
            yield f"http://127.0.0.1:{self.port}"
        finally:
            await runner.cleanup()


def line(kind: str, item: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


def bookmark(version: int) -> bytes:
    return line("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


def told(
    api: Api, count: int, during: Callable[[list[list[str]]], Awaitable[None]] | None = None
) -> tuple[list[list[str]], list[str], list[float]]:
    """What is told up to the `count`th time, the faults, and the pauses."""
    seen, faults, pauses = list[list[str]](), list[str](), list[float]()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    async def run() -> None:
        async with api.running() as address, asyncio.timeout(DEADLINE_S):
            options = MembershipOptions({}, faults.append, pause)
            changes = open_endpoint_slices(f"ml/models?api={address}", options).changes()
            async with aclosing(changes) as each:  # type: ignore[type-var]  # it is a generator
                async for places in each:
                    seen.append([place.name for place in places])
                    if len(seen) == count:
                        return

    asyncio.run(run())
    return seen, faults, pauses


def test_changes_arrive_in_pieces_and_no_list_is_asked_for_twice() -> None:
    api = Api(slice_of("s", endpoint("a", "10.0.0.1")))
    # Longer than what aiohttp reads as one line.
    many = [
        endpoint(f"pod-{number:04}", f"10.1.0.{number % 250}", nodeName="n" * 500) for number in range(300)
    ]
    grown = line("MODIFIED", slice_of("s", *many, version=12))
    api.watches = [
        [line("ADDED", slice_of("t", endpoint("b", "10.0.0.2"), version=11)), grown[:100], grown[100:]],
        [line("DELETED", slice_of("t", version=14)), None],
    ]

    seen, faults, _ = told(api, 4)

    assert [len(names) for names in seen] == [1, 2, 301, 300]
    assert (seen[1], faults) == (["a", "b"], [])
    assert [(each.get("watch"), each.get("resourceVersion")) for each in api.asked] == [
        (None, None),
        ("true", "10"),
        ("true", "12"),
    ]
    assert {each["labelSelector"] for each in api.asked} == {"kubernetes.io/service-name=models"}


def test_a_bookmark_moves_the_version_and_tells_nothing() -> None:
    api = Api(slice_of("s", endpoint("a", "10.0.0.1")))
    api.watches = [[bookmark(50)], [line("DELETED", slice_of("s", version=60)), None]]

    seen, _, _ = told(api, 2)

    assert seen == [["a"], []]
    assert [each.get("resourceVersion") for each in api.asked] == [None, "10", "50"]


@pytest.mark.parametrize("how", ["status", "event"])
def test_a_version_that_is_forgotten_is_listed_anew(how: str) -> None:
    api = Api(slice_of("s", endpoint("a", "10.0.0.1")))
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}

    async def answer(request: web.Request) -> web.StreamResponse:
        watches = sum("watch" in each for each in api.asked)
        if "watch" in request.query and watches == 0:
            api.items = [slice_of("s", endpoint("b", "10.0.0.2"))]
            api.version = 90
            if how == "status":
                api.refusals = [web.json_response(status, status=410)]
            else:
                api.watches = [[line("ERROR", status)]]
        return await original(request)

    original, api.answer = api.answer, answer  # type: ignore[method-assign]

    seen, faults, _ = told(api, 2)

    assert (seen, faults) == ([["a"], ["b"]], [])
    assert [each.get("resourceVersion") for each in api.asked] == [None, "10", None]


def test_what_refuses_is_told_once_and_asked_again_after_longer_and_longer() -> None:
    api = Api(slice_of("s", endpoint("a", "10.0.0.1")))
    refusal = {"kind": "Status", "message": "endpointslices is forbidden", "code": 403}
    api.refusals = [web.json_response(refusal, status=403) for _ in range(3)]
    api.refusals.append(web.Response(text="[]"))

    seen, faults, pauses = told(api, 1)

    assert (seen, pauses) == ([["a"]], [1, 2, 4, 8])
    assert len(faults) == 2
    assert "service 'ml/models' cannot be looked up" in faults[0]
    assert "endpointslices is forbidden (the service account of the router needs list and watch" in faults[0]
    assert "no EndpointSliceList" in faults[1]


def test_a_service_that_has_no_slices_is_told() -> None:
    seen, faults, _ = told(Api(), 1)

    assert (seen, faults) == ([[]], ["service 'ml/models' has no EndpointSlices"])


def test_a_router_sends_requests_to_the_pods_that_it_is_told(
    make_server: Callable[..., Server], make_router: Callable[..., RouterThread]
) -> None:
    first, second = make_server("echo"), make_server("echo")
    proceed = threading.Event()

    def pod(name: str, server: Server, **more: Any) -> dict[str, Any]:
        ports = [{"name": "http", "port": server.http_port}, {"name": "grpc", "port": server.grpc_port}]
        return slice_of(name, endpoint(name, "127.0.0.1", **more), ports=ports)

    class Cluster:
        async def changes(self) -> AsyncIterator[Sequence[Place]]:
            api = Api(pod("a", first))
            terminating = conditions(ready=False, serving=True, terminating=True)
            api.watches = [
                [],
                [line("ADDED", pod("b", second)), line("MODIFIED", pod("a", first, **terminating)), None],
            ]

            async def pause(seconds: float) -> None:
                await asyncio.to_thread(proceed.wait, DEADLINE_S)

            async with api.running() as address:
                options = MembershipOptions({}, lambda text: None, pause)
                async for places in open_endpoint_slices(f"ml/models?api={address}", options).changes():
                    yield places

    router = make_router(membership=Cluster(), ready=1)
    status, _, _ = asked(router.http, "/v2/models/echo/infer", BODY)
    proceed.set()
    until(lambda: router.call(lambda: [each.name for each in router.router.view if each.is_ready]) == ["b"])

    assert status == 200
    assert asked(router.http, "/v2/models/echo/infer", BODY)[0] == 200


def test_in_a_pod_token_and_certificates_of_the_service_account_are_used(tmp_path: Path) -> None:
    authority = trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "namespace").write_text("ml\n")
    (tmp_path / "token").write_text("first\n")
    api = Api(slice_of("s", endpoint("a", "10.0.0.1")))
    api.watches = [[], [line("DELETED", slice_of("s", version=60)), None]]

    async def pause(seconds: float) -> None:
        (tmp_path / "token").write_text("second\n")

    async def run() -> list[list[str]]:
        async with api.running(tls), asyncio.timeout(DEADLINE_S):
            environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port)}
            options = MembershipOptions(environ, lambda text: None, pause)
            seen: list[list[str]] = []
            changes = open_endpoint_slices("/models", options, tmp_path).changes()
            async with aclosing(changes) as each:  # type: ignore[type-var]  # it is a generator
                async for places in each:
                    seen.append([place.name for place in places])
                    if len(seen) == 2:
                        break
            return seen

    assert asyncio.run(run()) == [["a"], []]
    assert api.tokens == ["Bearer first", "Bearer first", "Bearer second"]


def test_a_certificate_that_nobody_vouches_for_is_a_fault(tmp_path: Path) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("first")
    api, faults = Api(), list[str]()

    async def pause(seconds: float) -> None:
        raise asyncio.CancelledError

    async def run() -> None:
        async with api.running(tls):
            options = MembershipOptions({}, faults.append, pause)
            url = f"ml/models?api=https://127.0.0.1:{api.port}"
            async for _ in open_endpoint_slices(url, options, tmp_path).changes():
                pass

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    assert "certificate verify failed" in faults[0].lower()
    assert api.asked == []
