"""The pods behind a service of Kubernetes, from its EndpointSlices: `k8s://NAMESPACE/SERVICE`.

They are listed once and then watched: the answer to a watch is a line of JSON for each change, and goes on
from the version of the list, or of the last line that was read. A server that has forgotten that version says
so (410), and the list is asked for again. A name server tells less of this, and later: it caches, and knows
nothing of names and zones.
"""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from tritonpy.errors import InvalidArg
from yarl import URL

from tritonpy_router.membership import MembershipOptions, bracketed
from tritonpy_router.replica import Place

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token, the certificates of the API server, and its namespace."""

_FORM = "k8s://[NAMESPACE]/SERVICE[:HTTP_PORT[:GRPC_PORT]][?zone=ZONE][&api=URL], ports by name or number"
_OF_SERVICE = "kubernetes.io/service-name"
_GONE = 410

_WATCH_S = 300  # after which the API server ends a watch by itself
_SILENCE_S = 90.0  # without a line; bookmarks come about once a minute
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0

Slice = Mapping[str, Any]  # Any: a document of the API


@dataclass(frozen=True, slots=True)
class Service:
    """The service whose pods are the servers.

    Attributes:
        namespace: of Kubernetes.
        name: of the service.
        http_port, grpc_port: a name, which the slices know, or a number.
        zone: of this router: pods that are hinted for it are preferred; "" for all pods.
    """

    namespace: str
    name: str
    http_port: str = "http"
    grpc_port: str = "grpc"
    zone: str = ""

    def __str__(self) -> str:
        return f"service '{self.namespace}/{self.name}'"


@dataclass(frozen=True, slots=True)
class ApiServer:
    """The way to the API of Kubernetes.

    Attributes:
        url: its address.
        account: the directory with `token` and `ca.crt`, which are read anew for each request, since they are
            replaced while the pod lives. They are used for https only: `kubectl proxy` needs neither.
    """

    url: URL
    account: Path = ACCOUNT

    def headers(self) -> dict[str, str]:
        """Those of a request.

        Raises:
            OSError: the token cannot be read.
        """
        accept = {"Accept": "application/json"}
        if self.url.scheme != "https":
            return accept
        return {**accept, "Authorization": f"Bearer {(self.account / 'token').read_text().strip()}"}

    def tls(self) -> ssl.SSLContext | bool:
        """What its certificate is checked by.

        Raises:
            OSError: the certificates cannot be read.
        """
        if self.url.scheme != "https":
            return True
        return ssl.create_default_context(cafile=str(self.account / "ca.crt"))


def open_endpoint_slices(
    rest: str, options: MembershipOptions, account: Path = ACCOUNT
) -> EndpointSliceMembership:
    """`k8s://[NAMESPACE]/SERVICE[:HTTP_PORT[:GRPC_PORT]]`, and `?zone=ZONE&api=URL`.

    The namespace is the router's own if the URL has none. The API server is the one that the environment of a
    pod names.

    Raises:
        InvalidArg: it has another form, or a pod's variables and files are needed and missing.
    """
    try:
        url = URL(f"k8s://x/{rest.partition('?')[0]}?{rest.partition('?')[2]}")
    except ValueError as exc:
        raise InvalidArg(f"members 'k8s://{rest}' are not understood ({exc}); expected {_FORM}") from None
    query = dict(url.query)
    zone, api = query.pop("zone", ""), query.pop("api", "")
    namespace, slash, service = rest.partition("?")[0].partition("/")
    name, *ports = service.split(":")
    if not slash or not name or "/" in service or len(ports) > 2 or not all(ports) or query:
        raise InvalidArg(f"members 'k8s://{rest}' are not understood; expected {_FORM}")
    if not namespace:
        try:
            namespace = (account / "namespace").read_text().strip()
        except OSError as exc:
            raise InvalidArg(
                f"members 'k8s://{rest}' name no namespace, and the router's own is not known: {exc}"
            ) from None
    http_port, grpc_port = (*ports, *("http", "grpc")[len(ports) :])
    address = _address(api, options.environ, rest)
    return EndpointSliceMembership(
        Service(namespace, name, http_port, grpc_port, zone), ApiServer(address, account), options
    )


def _address(api: str, environ: Mapping[str, str], rest: str) -> URL:
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    if not api and not host:
        raise InvalidArg(
            f"members 'k8s://{rest}': the API server is not known, for KUBERNETES_SERVICE_HOST is not set, "
            f"as it is in pods; elsewhere run `kubectl proxy` and add ?api=http://127.0.0.1:8001"
        )
    text = api or f"https://{bracketed(host)}:{environ.get('KUBERNETES_SERVICE_PORT', '443')}"
    try:
        url = URL(text)
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidArg(f"members 'k8s://{rest}': API server '{text}' is no URL of http or https")
    return url


def places_of(service: Service, slices: Iterable[Slice]) -> tuple[list[Place], str]:
    """The servers in the slices of a service, sorted by name, and what is wrong with the slices, or "".

    A pod is a server while it serves and is not terminating: one that is about to stop gets no new requests,
    and the router lets it keep the sequences that run there. Whether those that are left are ready is asked
    by the router itself. A pod may stand in several slices: in one for each family of addresses, and for a
    moment in two while slices are put together anew.
    """
    endpoints: dict[str, tuple[Place, frozenset[str]]] = {}
    fault = ""
    for each in sorted(slices, key=_order):
        http_port, grpc_port = (_port(each, port) for port in (service.http_port, service.grpc_port))
        serving = [endpoint for endpoint in each.get("endpoints") or () if _serves(endpoint)]
        if serving and not (http_port and grpc_port):
            missing = service.grpc_port if http_port else service.http_port
            names = [f"{port.get('name') or ''}:{port.get('port')}" for port in each.get("ports") or ()]
            fault = f"has no port called '{missing}'; its ports are {', '.join(names) or 'none'}"
            continue
        for endpoint in serving:
            host = str(endpoint["addresses"][0])
            name = str((endpoint.get("targetRef") or {}).get("name") or f"{bracketed(host)}:{http_port}")
            zones = frozenset(
                str(zone.get("name")) for zone in (endpoint.get("hints") or {}).get("forZones") or ()
            )
            endpoints.setdefault(name, (Place(name, host, http_port, grpc_port), zones))
    return [place for place, _ in _for_zone(service.zone, sorted(endpoints.values()))], fault


def _order(of: Slice) -> tuple[str, str]:
    # IPv4 before IPv6, so that a pod with both is always the same server.
    return str(of.get("addressType", "")), str((of.get("metadata") or {}).get("name", ""))


def _port(of: Slice, wanted: str) -> int:
    if wanted.isdecimal():
        return int(wanted)
    numbers = [port.get("port") for port in of.get("ports") or () if port.get("name") == wanted]
    return int(numbers[0] or 0) if numbers else 0


def _serves(endpoint: Mapping[str, Any]) -> bool:
    conditions = endpoint.get("conditions") or {}
    ready, serving = conditions.get("ready"), conditions.get("serving")
    if conditions.get("terminating") or not endpoint.get("addresses"):
        return False
    return bool(ready is None or ready) if serving is None else bool(serving)


def _for_zone(
    zone: str, endpoints: Sequence[tuple[Place, frozenset[str]]]
) -> Sequence[tuple[Place, frozenset[str]]]:
    # As kube-proxy does: a zone without servers, or a server without a hint, and hints count for nothing.
    hinted = [endpoint for endpoint in endpoints if zone in endpoint[1]]
    return hinted if zone and hinted and all(zones for _, zones in endpoints) else endpoints


class EndpointSliceMembership:
    """The pods behind a service; satisfies `membership.Membership`.

    Args:
        service: whose pods.
        api: where its slices are asked for.
        options: as of every membership.
    """

    def __init__(self, service: Service, api: ApiServer, options: MembershipOptions) -> None:
        self._service = service
        self._api = api
        self._options = options
        self._slices: dict[str, Slice] = {}
        self._version = ""
        self._fault = ""

    async def changes(self) -> AsyncIterator[Sequence[Place]]:
        """See `Membership`."""
        told: Sequence[Place] | None = None
        pause_s = _FIRST_PAUSE_S
        self._version = ""
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    async with contextlib.aclosing(self._events(session)) as events:
                        async for _ in events:
                            pause_s = _FIRST_PAUSE_S
                            places, fault = places_of(self._service, self._slices.values())
                            self._tell(fault or ("" if self._slices else "has no EndpointSlices"))
                            if places != told:
                                told = places
                                yield places
                    pause_s = _FIRST_PAUSE_S  # it came to its end as it should, or has to be listed anew
                except (OSError, TimeoutError, ValueError, aiohttp.ClientError, _Refused) as exc:
                    # Those that are known stay: the API server may be restarting, and pods do without it.
                    self._tell(f"cannot be looked up at {self._api.url}: {str(exc) or type(exc).__name__}")
                await self._options.pause(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _tell(self, fault: str) -> None:
        if fault != self._fault:
            self._fault = fault
            if fault:
                self._options.on_fault(f"{self._service} {fault}")

    async def _events(self, session: aiohttp.ClientSession) -> AsyncGenerator[None, None]:
        """List if the version is not known, then watch; yields whenever slices may have changed."""
        if not self._version:
            await self._list(session)
            yield
        parameters = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(_WATCH_S),
        }
        async with self._asked(session, parameters) as answer:
            if answer.status == _GONE:
                self._version = ""
                return
            await _check(answer)
            yield
            rest = b""
            while True:
                try:
                    piece = await answer.content.readany()  # a line may be longer than readline() takes
                except TimeoutError:
                    return  # nothing for long: the connection may be dead
                if not piece:
                    return
                *lines, rest = (rest + piece).split(b"\n")
                for line in filter(None, lines):
                    if not self._take(json.loads(line)):
                        return
                    yield

    async def _list(self, session: aiohttp.ClientSession) -> None:
        async with self._asked(session, {}) as answer:
            await _check(answer)
            document = await answer.json(content_type=None)
        if not isinstance(document, dict) or document.get("kind") != "EndpointSliceList":
            raise _Refused("the answer is no EndpointSliceList")
        items = document.get("items") or ()
        self._slices = {str(item["metadata"]["name"]): item for item in items}
        self._version = str(document["metadata"]["resourceVersion"])

    def _asked(self, session: aiohttp.ClientSession, parameters: Mapping[str, str]) -> Any:  # Any: aiohttp's
        path = f"apis/discovery.k8s.io/v1/namespaces/{self._service.namespace}/endpointslices"
        return session.get(
            self._api.url / path,
            params={"labelSelector": f"{_OF_SERVICE}={self._service.name}", **parameters},
            headers=self._api.headers(),
            ssl=self._api.tls(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=_SILENCE_S),
        )

    def _take(self, event: Mapping[str, Any]) -> bool:
        """Take one line of a watch; returns whether the watch goes on."""
        kind, item = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            self._version = ""  # whatever it is, a new list mends it
            if item.get("code") != _GONE:
                raise _Refused(_refusal(int(item.get("code") or 0), str(item.get("message", item))))
            return False
        metadata = item.get("metadata") or {}
        if kind == "DELETED":
            self._slices.pop(str(metadata.get("name")), None)
        elif kind in ("ADDED", "MODIFIED"):
            self._slices[str(metadata.get("name"))] = item
        self._version = str(metadata.get("resourceVersion") or self._version)
        return True


class _Refused(Exception):
    """The API server answered with an error."""


async def _check(answer: aiohttp.ClientResponse) -> None:
    if answer.status != 200:
        text = (await answer.content.read(2000)).decode(errors="replace")
        raise _Refused(_refusal(answer.status, text))


def _refusal(status: int, text: str) -> str:
    with contextlib.suppress(ValueError, AttributeError):
        text = str(json.loads(text).get("message") or text)
    may = " (the service account of the router needs list and watch for endpointslices of discovery.k8s.io)"
    return f"status {status}: {text.strip()}{may if status in (401, 403) else ''}"
