"""`corectl cluster --engine`: what an engine is told, and what is refused before."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tritonpy.cli.serve import options_of
from tritonpy.errors import Unavailable
from tritonpy_router import engines
from tritonpy_router.cluster_cli import cluster
from tritonpy_router.engines import GROUP, FleetChange, FleetPlan, FleetTls, read_plan
from tritonpy_router.route_cli import route, router_options


class FakeEngine:
    """Satisfies `engines.Engine`; notes what it is asked."""

    def __init__(self, address: str) -> None:
        self.asked: list[Any] = [address]
        if address == "nowhere":
            raise Unavailable("no cluster answers at 'nowhere'")
        FAKES.append(self)

    def up(self, name: str, plan: FleetPlan) -> None:
        self.asked += ["up", name, plan]

    def status(self, name: str) -> list[dict[str, Any]]:
        self.asked += ["status", name]
        print("(library) a node has died")
        return [{"name": "server-1", "host": "10.0.0.1", "state": "ready"}]

    def scale(self, name: str, count: int) -> None:
        self.asked += ["scale", name, count]

    def update(self, name: str, change: FleetChange) -> None:
        self.asked += ["update", name, change]

    def down(self, name: str) -> None:
        self.asked += ["down", name]


FAKES: list[FakeEngine] = []
UP = ("up", "--engine=fake", "-r", "m")
TLS = ("--server-cert=s.pem", "--server-key=/s.key")
BROKEN = EntryPoint("broken", "tritonpy_router.nosuch:connect", GROUP)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs `corectl cluster` where engine `fake` is installed; returns its output, and what it was asked."""
    fake = EntryPoint("fake", f"{__name__}:FakeEngine", GROUP)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[FakeEngine.__module__])
    monkeypatch.setattr(engines, "entry_points", lambda *, group: [fake, BROKEN] if group == GROUP else [])

    def run(*words: str, status: int = 0) -> tuple[str, list[Any]]:
        FAKES.clear()
        result = CliRunner().invoke(cluster, words)
        assert result.exit_code == status, result.output
        return result.stdout, FAKES[0].asked if FAKES else []

    return run


def test_an_engine_is_told_a_plan(engine: Callable[..., Any]) -> None:
    output, asked = engine(
        *("up", "--engine=fake", "--address=head:6379", "--name=n", "-r", "models", "-r", "s3://b/m"),
        *(
            "--replicas=4",
            "--max-replicas=6",
            "--target-queue-ms=20",
            "--scale-up-secs=5",
            "--scale-down-secs=6",
            "--spare=1",
            "--resource=gpu=0.5",
        ),
        *("--http-port", "0", "--exit-timeout-secs=7", "--drain-delay-secs=2", "--load-model=a"),
        *("--model-control-mode=explicit", "--policy=least-busy", "--start-timeout-secs=9"),
    )

    plan = FleetPlan(
        server_flags=(
            f"--model-repository={Path('models').absolute()}",
            "--model-repository=s3://b/m",
            "--exit-timeout-secs=7",
            "--load-model=a",
            "--model-control-mode=explicit",
        ),
        router_flags=(
            "--http-port",
            "0",
            "--exit-timeout-secs=7",
            "--drain-delay-secs=2",
            "--policy=least-busy",
        ),
        replica_count=4,
        most_replicas=6,
        target_queue_ms=20,
        scale_up_s=5,
        scale_down_s=6,
        spare_count=1,
        resources={"gpu": 0.5},
        start_timeout_s=9,
        exit_timeout_s=9,
    )
    assert asked == ["head:6379", "up", "n", plan, "status", "n"]
    assert output.splitlines() == ["name      host      state", "server-1  10.0.0.1  ready"]
    assert read_plan(plan.as_text()) == plan


def test_a_plan_has_defaults(engine: Callable[..., Any]) -> None:
    plan = engine("up", "--engine=fake", "-r", "/m", "--no-router")[1][3]

    assert plan == FleetPlan(
        server_flags=("--model-repository=/m",), router_flags=None, most_replicas=1, resources={"cpu": 1.0}
    )
    assert not plan.follows_load
    assert read_plan(plan.as_text()) == plan


def test_what_a_fleet_is_told_of_tls_and_its_token_is_not_among_the_flags_of_programs(
    engine: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text("a-token-of-this-test\n")
    for name in ("c.pem", "k.pem"):
        (tmp_path / name).touch()
    plan = engine(
        *(*UP, *TLS, "--server-client-ca=routers.pem", "--replica-ca", "servers.pem", "--policy=least-busy"),
        *("--replica-cert=/r.pem", "--replica-key", "/r.key", "--replica-tls-name=fleet.example"),
        *("--replica-token-file", "token", "--https-certificate=c.pem", "--https-key", "k.pem"),
    )[1][3]

    assert plan.router_flags == (
        "--policy=least-busy",
        f"--https-certificate={tmp_path / 'c.pem'}",
        "--https-key",
        str(tmp_path / "k.pem"),
    )
    assert plan.server_flags == (f"--model-repository={tmp_path / 'm'}",)
    assert plan.replica_token == "a-token-of-this-test"
    assert "a-token-of-this-test" not in repr(plan)
    assert read_plan(plan.as_text()) == plan
    assert plan.tls == FleetTls(
        server_certificate=str(tmp_path / "s.pem"),
        server_key="/s.key",
        server_client_ca=str(tmp_path / "routers.pem"),
        replica_ca=str(tmp_path / "servers.pem"),
        replica_name="fleet.example",
        replica_certificate="/r.pem",
        replica_key="/r.key",
    )


def test_what_programs_are_told_of_tls_is_understood_by_them(tmp_path: Path) -> None:
    names = ("server_certificate", "server_key", "server_client_ca")
    own, key, clients = (str(tmp_path / name) for name in names)
    for path in (own, key, clients):
        Path(path).touch()
    tls = FleetTls(
        **dict(zip(names, (own, key, clients), strict=True)),
        replica_ca="/ca",
        replica_name="n",
        replica_certificate="/c",
        replica_key="/k",
    )
    server = options_of(["--model-repository=/m", *tls.server_flags()])
    with route.make_context("route", ["--server=a", *tls.router_flags()]) as context:
        router = router_options(context, context.params)
    plain = FleetTls(server_certificate=own, server_key=key)

    assert (server.https_certificate, server.https_key, server.https_client_ca) == (own, key, clients)
    assert (server.grpc_server_cert, server.grpc_server_key, server.grpc_root_cert) == (own, key, clients)
    assert (server.grpc_use_ssl, server.grpc_use_ssl_mutual) == (True, True)
    assert (router.replica_tls, router.replica_tls_name, router.replica_ca) == (True, "n", "/ca")
    assert (router.replica_certificate, router.replica_key) == ("/c", "/k")
    assert not options_of(["--model-repository=/m", *plain.server_flags()]).grpc_use_ssl_mutual
    assert plain.router_flags() == ["--replica-tls"]


def test_an_update_changes_of_a_plan_what_it_tells() -> None:
    plan = FleetPlan(server_flags=("a",), router_flags=("b",), exit_timeout_s=30)

    assert FleetChange().of(plan) == plan
    assert FleetChange(server_flags=("c",), exit_timeout_s=60).of(plan) == replace(
        plan, server_flags=("c",), exit_timeout_s=60
    )
    assert FleetChange(server_flags=("c",), router_flags=("d",), exit_timeout_s=5).of(plan) == replace(
        plan, server_flags=("c",), router_flags=("d",), exit_timeout_s=5
    )
    assert FleetChange(router_flags=("d",)).of(replace(plan, router_flags=None)).router_flags is None


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (("scale", "3"), ["scale", "default", 3]),
        (("update",), ["update", "default", FleetChange(exit_timeout_s=30)]),
        (
            ("update", "-r", "/m", "--reload", "--exit-timeout-secs=60"),
            [
                "update",
                "default",
                FleetChange(
                    server_flags=("--model-repository=/m", "--reload", "--exit-timeout-secs=60"),
                    exit_timeout_s=60,
                ),
            ],
        ),
        (
            ("update", "--http-port=0", "--state-file", "k", "--exit-timeout-secs=3"),
            [
                "update",
                "default",
                FleetChange(
                    router_flags=(
                        "--http-port=0",
                        "--state-file",
                        str(Path("k").absolute()),
                        "--exit-timeout-secs=3",
                    ),
                    exit_timeout_s=3,
                ),
            ],
        ),
        (("down", "--name=n"), ["down", "n"]),
        (("status", "--json"), ["status", "default"]),
    ],
)
def test_commands_reach_an_engine(engine: Callable[..., Any], words: list[str], asked: list[Any]) -> None:
    output, found = engine(*words, "--engine=fake")

    assert found == ["auto", *asked]
    assert words[0] != "status" or json.loads(output)[0]["state"] == "ready"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("down", "--engine=nosuch"), "there is no cluster engine 'nosuch' (installed: broken, fake)"),
        (("down", "--engine=ray"), "; pip install tritonpy-ray"),
        (("down", "--engine=broken"), "cluster engine 'broken' cannot be imported: No module named"),
        (("down", "--engine=fake", "--address=nowhere"), "no cluster answers at 'nowhere'"),
        (("up", "-r", "m"), "Missing option '--engine'"),
        (("up", "--engine=fake"), "--model-repository must be specified"),
        (("up", "--engine=fake", "-r", "m", "--servers-file=f"), "--servers-file is not for fleets"),
        (("up", "--engine=fake", "-r", "m", "--members=k8s://a/b"), "--members is not for fleets"),
        (("up", "--engine=fake", "-r", "m", "--log-file=f"), "the engine keeps the logs"),
        (("up", "--engine=fake", "-r", "m", "--resource=gpu"), "--resource 'gpu' is not understood"),
        (("up", "--engine=fake", "-r", "m", "--resource=gpu=-1"), "--resource 'gpu=-1' is not understood"),
        (("up", "--engine=fake", "-r", "m", "--resource=gpu=nan"), "--resource 'gpu=nan' is not understood"),
        (("up", "--engine=fake", "-r", "m", "--replicas=3", "--max-replicas=2"), "is less than --replicas 3"),
        (("up", "--engine=fake", "-r", "m", "--nosuch"), "unrecognized option '--nosuch'"),
        (("update", "-r", "m"), "--model-repository needs --engine"),
        (("update", "--engine=fake", "--reload"), "got --reload without --model-repository"),
        (("update", "--engine=fake", "--http-port=1", "--reload"), "got --reload without --model-repository"),
        (("update", "--engine=fake", "--replica-ca=f"), "--replica-ca is not for updates"),
        (("update", "--http-port=1"), "--http-port=1 needs --engine"),
        ((*UP, "--replica-service-port=1"), "--replica-service-port is not for fleets"),
        ((*UP, "--frontend-config", "replica,port=1"), "the frontend 'replica' is not for fleets"),
        (
            (*UP, "--replica-tls"),
            "TLS between routers and servers needs the files of servers, --server-cert and",
        ),
        ((*UP, "--server-cert=c"), "TLS between routers and servers needs the files of servers"),
        ((*UP, *TLS, "--replica-cert=c"), "--replica-cert and --replica-key need each other"),
        ((*UP, *TLS, "--server-client-ca=c"), "--server-client-ca needs --replica-cert and --replica-key"),
    ],
)
def test_what_engines_cannot_do_is_refused(engine: Callable[..., Any], words: list[str], text: str) -> None:
    FAKES.clear()
    result = CliRunner().invoke(cluster, words)

    assert result.exit_code != 0
    assert text in " ".join(result.output.split())
    assert not FAKES
