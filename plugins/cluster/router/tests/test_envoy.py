"""`corectl cluster envoy`: what it says; `tests/deploy/test_envoy.py` has an Envoy that does it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tritonpy_router.cluster_cli import cluster


def written(*arguments: str) -> Any:  # Any: YAML
    result = CliRunner().invoke(cluster, ["envoy", *arguments])
    assert result.exit_code == 0, result.output
    return yaml.safe_load(result.stdout)["static_resources"]


def clusters(*arguments: str) -> dict[str, Any]:
    return {each["name"]: each for each in written(*arguments)["clusters"]}


def routes(listener: Any) -> list[tuple[bool, bool, str]]:
    """Of each route whether it is for gRPC only, whether for sequences only, and the cluster."""
    [chain] = listener["filter_chains"]
    [host] = chain["filters"][0]["typed_config"]["route_config"]["virtual_hosts"]
    return [
        ("grpc" in each["match"], "headers" in each["match"], each["route"]["cluster"])
        for each in host["routes"]
    ]


def endpoints(cluster: Any) -> list[tuple[str, int]]:
    found = [each["endpoint"]["address"]["socket_address"] for each in _lb_endpoints(cluster)]
    return [(each["address"], each["port_value"]) for each in found]


def _lb_endpoints(cluster: Any) -> Any:
    return cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "expected one of --server, --servers-file and --servers-name"),
        (["--server=a", "--servers-name=b"], "expected one of --server, --servers-file and --servers-name"),
        (["--server=a:b"], "server 'a:b' is not understood; expected [NAME=]HOST"),
        (["--server=x=a", "--server=x=b"], "two servers are called 'x'"),
        (["--servers-file=/nonexistent"], "--servers-file '/nonexistent' cannot be read"),
        (["--servers-file=/dev/null"], "got no server, expected one at least"),
        (["--server=a", "--tls-cert=c"], "got --tls-cert without --tls-key"),
        (["--server=a", "--tls-key=k"], "got --tls-key without --tls-cert"),
        (["--server=a", "--tls-client-ca=k"], "got --tls-client-ca without --tls-cert"),
        (["--server=a", "--replica-tls"], "got --replica-tls without --replica-ca"),
        (["--server=a", "--replica-ca=c"], "got --replica-ca without --replica-tls"),
        (["--server=a", "--replica-cert=c"], "got --replica-cert without --replica-key"),
        (["--server=a", "--replica-cert=c", "--replica-key=k"], "got --replica-cert without --replica-tls"),
        (["--server=a", "--replica-header=nothing"], "--replica-header 'nothing' is not understood"),
        (["--server=a", "--replica-header=x y:v"], "--replica-header has the name 'x y'; expected"),
        (["--server=a", "--replica-header= :v"], "--replica-header has the name ''; expected"),
        (["--server=a", "--replica-header=key:a\nb"], "--replica-header 'key' has a value with a control"),
        (["--server=a", "--sequence-header=x y"], "got --sequence-header 'x y', expected"),
        (["--server=a", "--sequence-header=:path"], "got --sequence-header ':path', expected"),
        (["--server=a", "--sequence-header=sequé"], "got --sequence-header 'sequé', expected"),
        (
            ["--server=a", "--sequence-header=X-Envoy-A"],
            "got --sequence-header 'X-Envoy-A', expected one that",
        ),
        (["--server=a", "--probe-interval-secs=nan"], "got --probe-interval-secs nan, expected"),
        (["--server=a", "--probe-interval-secs=inf"], "--probe-interval-secs"),
        (["--server=a", "--http-port=70000"], "--http-port"),
    ],
)
def test_what_it_cannot_do_is_refused(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(cluster, ["envoy", *arguments])

    assert (result.exit_code, text in result.output) == (2, True), result.output


def test_members_are_addresses_names_or_all_addresses_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "servers").write_text("# two\na=10.0.0.1\nb=10.0.0.2:9000:9001\n")
    of_file = clusters("--servers-file", str(tmp_path / "servers"))
    of_names = clusters("--server=gpu1", "--server=10.0.0.2")
    of_name = clusters("--servers-name=models-headless.inference:80:81")

    assert endpoints(of_file["servers_http"]) == [("10.0.0.1", 8000), ("10.0.0.2", 9000)]
    assert endpoints(of_file["sequences_grpc"]) == [("10.0.0.1", 8001), ("10.0.0.2", 9001)]
    assert endpoints(of_name["servers_grpc"]) == [("models-headless.inference", 81)]
    types = [{each["type"] for each in found.values()} for found in (of_file, of_names, of_name)]
    assert types == [{"STATIC"}, {"STRICT_DNS"}, {"STRICT_DNS"}]


def test_each_protocol_has_a_port_or_both_have_one() -> None:
    http, grpc = sorted(written("--server=a")["listeners"], key=lambda each: each["name"], reverse=True)
    [both] = written("--server=a", "--http-port=9000", "--grpc-port=9000")["listeners"]

    assert routes(http) == [(False, True, "sequences_http"), (False, False, "servers_http")]
    assert routes(grpc) == [(True, True, "sequences_grpc"), (True, False, "servers_grpc")]
    assert routes(both) == routes(grpc) + routes(http)
    assert both["address"]["socket_address"] == {"address": "0.0.0.0", "port_value": 9000}


def test_without_a_header_there_are_no_clusters_for_sequences() -> None:
    found = written("--server=a", "--sequence-header=")

    assert {each["name"] for each in found["clusters"]} == {"servers_http", "servers_grpc"}
    assert "sequences" not in json.dumps(found["listeners"])


def test_nothing_that_a_server_may_have_seen_is_sent_again() -> None:
    """Neither after an answer nor after a connection was lost: `reset`, `5xx`, `gateway-error` and so on."""
    text = json.dumps(written("--server=a"))
    retried = {part.split('"')[2] for part in text.split('"retry_on')[1:]}

    assert retried == {"connect-failure,refused-stream"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("1000000", "1000000s"),
        ("0.01", "0.01s"),
        ("100", "100s"),
        ("2.50", "2.5s"),
        ("1234567.125", "1234567.125s"),
    ],
)
def test_intervals_have_no_exponent_and_lose_nothing(given: str, expected: str) -> None:
    for each in clusters("--server=a", f"--probe-interval-secs={given}").values():
        [check] = each["health_checks"]
        assert (check["interval"], check["no_traffic_interval"]) == (expected, expected)


def test_every_listener_takes_out_what_clients_tell_envoy_to_do() -> None:
    for listener in written("--server=a")["listeners"]:
        [chain] = listener["filter_chains"]
        [mutation] = chain["filters"][0]["typed_config"]["early_header_mutation_extensions"]
        [removed] = mutation["typed_config"]["mutations"]
        assert removed["remove_on_match"]["key_matcher"]["prefix"] == "x-envoy-"


def test_keys_of_restricted_calls_are_sent_with_questions() -> None:
    found = clusters("--server=a", "--replica-header=key:sec%ret")
    [http], [grpc] = found["servers_http"]["health_checks"], found["servers_grpc"]["health_checks"]

    header = [{"header": {"key": "key", "value": "sec%%ret"}}]
    assert http["http_health_check"]["request_headers_to_add"] == header
    assert grpc["grpc_health_check"]["initial_metadata"] == header


def test_certificates_of_servers_have_to_be_for_the_host_that_was_named() -> None:
    tls = ("--replica-tls", "--replica-ca=ca.pem")

    def context(*servers: str) -> Any:
        return clusters(*servers, *tls)["servers_grpc"]["transport_socket"]["typed_config"]

    names, addresses = context("--server=gpu1"), context("--server=10.0.0.1", "--server=gpu2")
    assert names["auto_host_sni"]
    assert names["auto_sni_san_validation"]
    validation = addresses["common_tls_context"]["validation_context"]
    assert [each["san_type"] for each in validation["match_typed_subject_alt_names"]] == ["IP_ADDRESS", "DNS"]
