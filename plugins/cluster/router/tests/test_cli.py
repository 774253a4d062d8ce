"""`corectl route`: what it is told, and what it refuses."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tritonpy.server import Server
from tritonpy_router import cluster_cli, route_cli
from tritonpy_router.envoy_cli import envoy
from tritonpy_router.options import RouterOptions

from .conftest import BODY, asked

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "expected one of --server, --servers-file, --servers-name and --members"),
        (["--server=a", "--servers-name=b"], "expected one of --server, --servers-file, --servers-name"),
        (["--server=a", "--members=static://b"], "expected one of --server, --servers-file, --servers-name"),
        (["--members=gpu1"], "members 'gpu1' are not understood; expected SCHEME://REST"),
        (["--members=k8s://ml/models"], "KUBERNETES_SERVICE_HOST is not set"),
        (["--members=file://servers", "--servers-file="], "--servers-file"),
        (["--server=a:b"], "server 'a:b' is not understood; expected [NAME=]HOST"),
        (["--server=x=a", "--server=x=b"], "two servers are called 'x'"),
        (["--server=a", "--model-repository=m"], "unrecognized option '--model-repository'"),
        (["--server=a", "stray"], "unrecognized option 'stray'"),
        (["--server=a", "--http-port=x"], "--http-port"),
        (["--server=a", "--trace-config=rate=x"], "--trace-config"),
        (["--server=a", "--replica-header=nothing"], "--replica-header 'nothing' is not understood"),
        (["--server=a", "--replica-header=x y:v"], "--replica-header has the name 'x y'; expected"),
        (["--server=a", "--policy=best"], "two-choices"),
    ],
)
def test_what_it_cannot_do_is_refused(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(route_cli.route, arguments)

    assert (result.exit_code, text in result.output) == (2, True), result.output


def test_options_of_ports_mean_what_they_mean_to_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[RouterOptions] = []
    monkeypatch.setattr("tritonpy_router.program.run", lambda options, *_: seen.append(options) or 0)
    arguments = [
        "--server=a",
        "--http-port",
        "81",
        "--grpc-port=82",
        "--exit-timeout-secs=3",
        "--drain-delay-s=2",
        *("--trace-config", "mode=opentelemetry", "--trace-config=rate=7"),
    ]

    CliRunner().invoke(route_cli.route, [*arguments, "--replica-header=key:v", "--max-replica-inflight=4"])

    [options] = seen
    assert (options.ports.http_port, options.ports.grpc_port) == (81, 82)
    assert (options.exit_timeout_s, options.drain_delay_s) == (3, 2)
    assert options.ports.trace_config == (("", "mode", "opentelemetry"), ("", "rate", "7"))
    assert (options.replica_headers, options.limits.replica_inflight) == ({"key": "v"}, 4)


def test_each_option_of_its_page_is_there() -> None:
    page = (ROOT / "docs/how-to/route-to-several-servers.md").read_text()
    options = [*route_cli.route.params, *cluster_cli.local.params, *cluster_cli.up.params, *envoy.params]
    known = {name for option in options if isinstance(option, click.Option) for name in option.opts}

    named = set(re.findall(r"(--[a-z][a-z-]+)", page))

    unknown = {flag for flag in named - known if not route_cli.PORT_FLAG.fullmatch(flag)}
    assert unknown <= {"--frontend-config", "--load-model", "--help"}


def test_the_program_says_where_it_listens_and_ends_with_a_signal(tmp_path: Path) -> None:
    ports = ["--http-port=0", "--grpc-port=0", "--metrics-port=0"]
    command = [sys.executable, "-m", "tritonpy.cli.main", "route", "--server=127.0.0.1:9:9", *ports]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "Routing" in line)
        found = re.search(r"HTTP on port (\d+), gRPC on port (\d+)", line)
        assert found is not None
        status, _, answer = asked(f"127.0.0.1:{found[1]}", "/v2/models/echo/infer", BODY)
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()

    assert (status, b"no replica is ready: '127.0.0.1:9'" in answer) == (503, True), answer
    assert process.returncode == 0
    assert "Router stopped" in rest


def test_a_router_that_awaits_its_servers_listens_when_they_are_there_and_ends_before_if_it_is_told_to(
    tmp_path: Path, make_server: Callable[..., Server]
) -> None:
    file = tmp_path / "servers"
    file.write_text("a=127.0.0.1:9:9\n")
    ports = ["--http-port=0", "--grpc-port=0", "--metrics-port=0", "--await-servers-secs=600"]
    command = [sys.executable, "-m", "tritonpy.cli.main", "route", f"--servers-file={file}", *ports]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        joined = next(line for line in process.stderr if "has joined" in line or "Routing" in line)
        server = make_server("echo")
        file.write_text(f"a=127.0.0.1:{server.http_port}:{server.grpc_port}\n")
        line = next(line for line in process.stderr if "Routing" in line)
        found = re.search(r"HTTP on port (\d+)", line)
        assert found is not None
        status, _, answer = asked(f"127.0.0.1:{found[1]}", "/v2/models/echo/infer", BODY)
        process.send_signal(signal.SIGTERM)
    with subprocess.Popen(
        [*command[:4], "--server=127.0.0.1:9:9", *ports], stderr=subprocess.PIPE, text=True
    ) as waits:
        assert waits.stderr is not None
        next(line for line in waits.stderr if "has joined" in line)
        waits.send_signal(signal.SIGTERM)
        rest = waits.stderr.read()

    assert "has joined" in joined
    assert (status, process.returncode) == (200, 0), answer
    assert ("Routing" in rest, waits.returncode) == (False, 0)
