"""Configuration of Envoy before several servers, for traffic that needs none of what the router does.

Envoy knows nothing of models: it gives a request to the less busy of two servers, and those with a header
for sequences to one that follows from it. What no server can have seen is sent to another one, and nothing
else: nobody but the model knows whether a request may be executed twice.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tritonpy.errors import InvalidArg

from tritonpy_router.header_names import is_header_name
from tritonpy_router.replica import Place

Part: TypeAlias = dict[str, Any]  # Any: JSON

PROTOCOLS = ("grpc", "http")
_EXTENSIONS = "type.googleapis.com/envoy.extensions."
_CONNECT_S = 1
_PROBE_TIMEOUT_S = 2
_LOOK_UP_S = 2
_IDLE_S = 300  # less than servers wait, so that none closes a connection on which a request is on its way
_MOST = 1_000_000  # requests and connections: servers have queues and limits of their own
_OF_ENVOY = "x-envoy-"  # headers by which requests tell Envoy what to do with them


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvoyPlan:
    """What Envoy is to do; the help of `corectl cluster envoy` says what each is for.

    Attributes:
        places: the servers, or one name whose addresses are the servers.
        address: on which it listens.
        http_port, grpc_port: likewise; the same for both protocols on one port.
        admin_port: of Envoy's own pages, on this machine alone; None for none.
        probe_interval_s: between two questions to one server.
        sequence_header: requests that have it go to one server for each value of it; "" for no such header.
        certificate, key: files that are shown to clients; "" for no TLS.
        client_ca: file with the certificates that those of clients are checked by; "" if they need none.
        replica_ca: file with the certificates that those of servers are checked by; "" for no TLS.
        replica_certificate, replica_key: files that are shown to servers.
        replica_headers: of the questions whether servers are ready.
    """

    places: Sequence[Place]
    address: str = "0.0.0.0"
    http_port: int = 8000
    grpc_port: int = 8001
    admin_port: int | None = None
    probe_interval_s: float = 1.0
    sequence_header: str = "x-sequence-id"
    certificate: str = ""
    key: str = ""
    client_ca: str = ""
    replica_ca: str = ""
    replica_certificate: str = ""
    replica_key: str = ""
    replica_headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        if not self.places:
            raise InvalidArg("got no server, expected one at least")
        for flag, one, other in (
            ("--tls", self.certificate, self.key),
            ("--replica", self.replica_certificate, self.replica_key),
        ):
            if bool(one) != bool(other):
                given, lacks = ("cert", "key") if one else ("key", "cert")
                raise InvalidArg(f"got {flag}-{given} without {flag}-{lacks}")
        if self.client_ca and not self.certificate:
            raise InvalidArg("got --tls-client-ca without --tls-cert and --tls-key")
        if self.replica_certificate and not self.replica_ca:
            raise InvalidArg("got --replica-cert without --replica-tls and --replica-ca")
        if not (math.isfinite(self.probe_interval_s) and self.probe_interval_s > 0):
            raise InvalidArg(
                f"got --probe-interval-secs {self.probe_interval_s:g}, expected a number of seconds above 0"
            )
        header = self.sequence_header
        if header and not is_header_name(header):
            raise InvalidArg(
                f"got --sequence-header '{header}', expected the name of an HTTP header: letters, digits and "
                "!#$%&'*+-.^_`|~"
            )
        if header.lower().startswith(_OF_ENVOY):
            raise InvalidArg(
                f"got --sequence-header '{header}', expected one that does not begin with {_OF_ENVOY}: "
                "those are taken out of requests"
            )


def configuration(plan: EnvoyPlan) -> Part:
    """The configuration, as JSON and YAML have it."""
    if plan.http_port == plan.grpc_port:
        listeners = [_listener(plan, "clients", plan.http_port, PROTOCOLS)]
    else:
        ports = (plan.grpc_port, plan.http_port)
        listeners = [
            _listener(plan, protocol, port, (protocol,))
            for protocol, port in zip(PROTOCOLS, ports, strict=True)
        ]
    clusters = [_cluster(plan, "servers", protocol, "LEAST_REQUEST") for protocol in PROTOCOLS]
    if plan.sequence_header:
        clusters += [_cluster(plan, "sequences", protocol, "RING_HASH") for protocol in PROTOCOLS]
    found: Part = {} if plan.admin_port is None else {"admin": _at("127.0.0.1", plan.admin_port)}
    return {**found, "static_resources": {"listeners": listeners, "clusters": clusters}}


def _listener(plan: EnvoyPlan, name: str, port: int, protocols: Sequence[str]) -> Part:
    manager = {
        "stat_prefix": name,
        "codec_type": "AUTO",
        "stream_idle_timeout": "0s",  # a model may be long at work, and a stream long silent
        "early_header_mutation_extensions": [_without_orders()],
        "http_filters": [_typed("envoy.filters.http.router", "filters.http.router.v3.Router")],
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "retry_policy": _retries(),
                    "routes": _routes(plan, protocols),
                }
            ]
        },
    }
    network = "filters.network.http_connection_manager"
    kind = f"{network}.v3.HttpConnectionManager"
    chain: Part = {"filters": [_typed(f"envoy.{network}", kind, manager)]}
    if plan.certificate:
        common: Part = {
            "tls_certificates": [_certificate(plan.certificate, plan.key)],
            "alpn_protocols": ["h2", "http/1.1"] if "http" in protocols else ["h2"],
        }
        context: Part = {"common_tls_context": common}
        if plan.client_ca:
            common["validation_context"] = {"trusted_ca": {"filename": plan.client_ca}}
            context["require_client_certificate"] = True
        chain["transport_socket"] = _tls("DownstreamTlsContext", context)
    return {"name": name, **_at(plan.address, port), "filter_chains": [chain]}


def _without_orders() -> Part:
    """Takes out of requests what would have Envoy repeat them, or end them early.

    Envoy obeys whom it takes for internal, by an address that clients may even name themselves: so these
    headers go whoever sends them, before Envoy looks at them.
    """
    kind = "http.early_header_mutation.header_mutation"
    removed = {"remove_on_match": {"key_matcher": {"prefix": _OF_ENVOY, "ignore_case": True}}}
    return _typed(f"envoy.{kind}", f"{kind}.v3.HeaderMutation", {"mutations": [removed]})


def _routes(plan: EnvoyPlan, protocols: Sequence[str]) -> list[Part]:
    """Where requests go: those of gRPC first where one port has both, and all that is left is HTTP."""
    routes: list[Part] = []
    for protocol in protocols:
        match: Part = {"prefix": "/", "grpc": {}} if protocol == "grpc" else {"prefix": "/"}
        if plan.sequence_header:
            has_header = {"headers": [{"name": plan.sequence_header, "present_match": True}]}
            by_header = {"hash_policy": [{"header": {"header_name": plan.sequence_header}}]}
            to = {"cluster": f"sequences_{protocol}", "timeout": "0s", **by_header}
            routes.append({"match": {**match, **has_header}, "route": to})
        routes.append({"match": match, "route": {"cluster": f"servers_{protocol}", "timeout": "0s"}})
    return routes


def _retries() -> Part:
    """Only what no server can have seen: no connection, or a stream that HTTP/2 says was refused."""
    name = "retry.host.previous_hosts.v3.PreviousHostsPredicate"
    return {
        "retry_on": "connect-failure,refused-stream",
        "num_retries": 2,
        "retry_host_predicate": [_typed("envoy.retry_host_predicates.previous_hosts", name)],
        "host_selection_retry_max_attempts": 3,
    }


def _cluster(plan: EnvoyPlan, kind: str, protocol: str, policy: str) -> Part:
    hosts = [place.host for place in plan.places]
    found: Part = {
        "name": f"{kind}_{protocol}",
        "type": "STATIC" if all(map(_is_address, hosts)) else "STRICT_DNS",
        "lb_policy": policy,
        "connect_timeout": _duration(_CONNECT_S),
    }
    if found["type"] == "STRICT_DNS":
        found |= {"dns_refresh_rate": _duration(_LOOK_UP_S), "respect_dns_ttl": False}
    found |= {
        # If no server is ready, say so, instead of trying all that are not.
        "common_lb_config": {
            "healthy_panic_threshold": {"value": 0},
            "ignore_new_hosts_until_first_hc": True,
        },
        "health_checks": [_health_check(plan, protocol)],
        "outlier_detection": _outliers(),
        "circuit_breakers": {"thresholds": [_limits()]},
        "upstream_connection_options": {
            "tcp_keepalive": {"keepalive_probes": 3, "keepalive_time": 10, "keepalive_interval": 3}
        },
        "typed_extension_protocol_options": _protocol_options(protocol),
    }
    if plan.replica_ca:
        found["transport_socket"] = _tls("UpstreamTlsContext", _to_servers(plan, protocol, hosts))
    endpoints = [
        {"endpoint": _at(place.host, place.http_port if protocol == "http" else place.grpc_port)}
        for place in plan.places
    ]
    found["load_assignment"] = {
        "cluster_name": found["name"],
        "endpoints": [{"lb_endpoints": endpoints}],
    }
    return found


def _health_check(plan: EnvoyPlan, protocol: str) -> Part:
    interval = _duration(plan.probe_interval_s)
    found: Part = {
        "timeout": _duration(_PROBE_TIMEOUT_S),
        "interval": interval,
        # Else a server that is not ready at first is asked again after a minute, while there are no requests.
        "no_traffic_interval": interval,
        "unhealthy_threshold": 2,
        "healthy_threshold": 1,
    }
    headers = [
        {"header": {"key": key, "value": value.replace("%", "%%")}}  # a single one begins a command of Envoy
        for key, value in plan.replica_headers.items()
    ]
    if protocol == "http":
        more: Part = {"request_headers_to_add": headers} if headers else {}
        return {**found, "http_health_check": {"path": "/v2/health/ready", **more}}
    more = {"initial_metadata": headers} if headers else {}
    return {**found, "grpc_health_check": more}


def _outliers() -> Part:
    """Servers whose connections fail get none for a while; answers count for nothing.

    An answer of 503 says that a queue is full, or that a model is not there, and no other server is the
    better for that.
    """
    return {
        "split_external_local_origin_errors": True,
        "consecutive_local_origin_failure": 3,
        "enforcing_consecutive_local_origin_failure": 100,
        "enforcing_consecutive_5xx": 0,
        "enforcing_consecutive_gateway_failure": 0,
        "enforcing_success_rate": 0,
        "enforcing_local_origin_success_rate": 0,
        "interval": "1s",
        "base_ejection_time": "1s",
        "max_ejection_time": "30s",
        "max_ejection_percent": 50,
    }


def _limits() -> Part:
    """No limits but for retries: as the router, one for ten requests, and three at any time."""
    return {
        "max_connections": _MOST,
        "max_pending_requests": _MOST,
        "max_requests": _MOST,
        "retry_budget": {"budget_percent": {"value": 10}, "min_retry_concurrency": 3},
    }


def _protocol_options(protocol: str) -> Part:
    spoken = {"http": "http_protocol_options", "grpc": "http2_protocol_options"}[protocol]
    kind = "upstreams.http.v3.HttpProtocolOptions"
    options = {
        "@type": _EXTENSIONS + kind,
        "common_http_protocol_options": {"idle_timeout": _duration(_IDLE_S)},
        "explicit_http_config": {spoken: {}},
    }
    return {f"envoy.extensions.{kind}": options}


def _to_servers(plan: EnvoyPlan, protocol: str, hosts: Sequence[str]) -> Part:
    """TLS towards servers, whose certificates have to be for the host by which they are known."""
    validation: Part = {"trusted_ca": {"filename": plan.replica_ca}}
    common: Part = {
        "alpn_protocols": ["h2" if protocol == "grpc" else "http/1.1"],
        "validation_context": validation,
    }
    if plan.replica_certificate:
        common["tls_certificates"] = [_certificate(plan.replica_certificate, plan.replica_key)]
    context: Part = {"common_tls_context": common}
    if any(map(_is_address, hosts)):
        validation["match_typed_subject_alt_names"] = [
            {"san_type": "IP_ADDRESS" if _is_address(host) else "DNS", "matcher": {"exact": host}}
            for host in dict.fromkeys(hosts)
        ]
    else:
        context |= {"auto_host_sni": True, "auto_sni_san_validation": True}
    return context


def _duration(seconds: float) -> str:
    """As JSON has durations: without an exponent, and to the nanosecond."""
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _certificate(certificate: str, key: str) -> Part:
    return {"certificate_chain": {"filename": certificate}, "private_key": {"filename": key}}


def _tls(kind: str, context: Part) -> Part:
    return _typed("envoy.transport_sockets.tls", f"transport_sockets.tls.v3.{kind}", context)


def _typed(name: str, kind: str, options: Part | None = None) -> Part:
    return {"name": name, "typed_config": {"@type": _EXTENSIONS + kind, **(options or {})}}


def _at(host: str, port: int) -> Part:
    return {"address": {"socket_address": {"address": host, "port_value": port}}}
