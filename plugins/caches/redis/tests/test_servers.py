"""Servers that share a Redis: one of the tests' own, and a real one."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme
from tritonpy.options import ServerOptions
from tritonpy.plugin import InferRequest, InferResponse, TritonError, hookimpl
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, until

from .redis_server import RedisServer
from .resp_server import RespServer


class OwnRedis(RespServer):
    """The tests' own, with what the tests ask of a real one."""

    def hang(self) -> None:
        self.gate.clear()

    def resume(self) -> None:
        self.gate.set()


Redis = OwnRedis | RedisServer


# The first one is fetched.
REAL = pytest.param("real", marks=[pytest.mark.emulator, pytest.mark.timeout(300)])


@pytest.fixture(params=["own", REAL])
def redis(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Redis]:
    (tmp_path / "redis").mkdir()
    server: Redis = OwnRedis() if request.param == "own" else RedisServer(tmp_path / "redis")
    yield server
    server.stop()


class Asked:
    """A tritonpy server with a model that tells who has executed, and how often."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def ask(self, number: int) -> str:
        """Who has answered, and which of his executions it was."""
        tensor = {"name": "X", "datatype": "INT32", "shape": [1], "data": [number]}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.server.http_port}/v2/models/telling/infer",
            json.dumps({"inputs": [tensor]}).encode(),
        )
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            data: list[str] = json.load(answer)["outputs"][0]["data"]
        return data[0]

    def kept(self, number: int) -> str:
        """Ask until the answer comes from the cache: it is kept after a client has it."""
        return until(lambda: (answer := self.ask(number)) == self.ask(number) and answer)

    def metric(self, name: str) -> float:
        """The sum of a family's lines."""
        url = f"http://127.0.0.1:{self.server.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as page:
            lines = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", page.read().decode(), re.MULTILINE)
        return sum(map(float, lines))


def telling(name: str) -> object:
    """A backend that answers `<name> <number of the execution>`."""
    import numpy as np

    counts = [0]

    def execute(requests: Sequence[InferRequest]) -> list[InferResponse]:
        counts[0] += 1
        answer = np.array([f"{name} {counts[0]}".encode()], object)
        return [InferResponse().add("Y", answer) for _ in requests]

    def model_instance_execute(instance: object, requests: Sequence[InferRequest]) -> list[InferResponse]:
        return execute(requests)

    return SimpleNamespace(model_instance_execute=hookimpl(model_instance_execute))


CONFIG: dict[str, Any] = {
    "backend": "telling",
    "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [1]}],
    "output": [{"name": "Y", "data_type": "TYPE_STRING", "dims": [1]}],
    "response_cache": {"enable": True},
}

Serve = Callable[..., Asked]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start servers whose models are made of the same files, unless `weights` says otherwise."""
    with ExitStack() as stack:

        def start(
            name: str, port: int, *, weights: str = "w", timeout_ms: int = 5000, **settings: str
        ) -> Asked:
            models = ModelRepository(tmp_path / f"models-{name}")
            models.model("telling", CONFIG, {"weights": weights})
            # With one connection, on which a lookup waits for the insertion before it: so an answer is kept
            # when its client asks again, and no other one comes later.
            alone = {"pool_size": "1", "wait_timeout": "0"}
            given = {"host": "127.0.0.1", "port": str(port), **alone, **settings}
            options = ServerOptions(
                (str(models.path),),
                cache_config=tuple(("redis", key, value) for key, value in given.items()),
                cache_timeout_ms=timeout_ms,
                allow_grpc=False,
                http_address="127.0.0.1",
                metrics_address="127.0.0.1",
                http_port=0,
                metrics_port=0,
            )
            return Asked(
                stack.enter_context(Server(options, plugins={"backends": {"telling": telling(name)}}))
            )

        yield start


def test_two_servers_share_their_answers(redis: Redis, serve: Serve) -> None:
    one, other = serve("one", redis.port), serve("other", redis.port)

    assert one.kept(1).startswith("one ")
    assert other.ask(1) == one.ask(1)
    assert other.kept(2).startswith("other ")
    assert one.ask(2) == other.ask(2)
    assert one.metric("nv_cache_num_hits") >= 2
    assert one.metric("tritonpy_cache_errors_total") == 0


def test_servers_with_other_files_share_nothing(redis: Redis, serve: Serve) -> None:
    one, other = serve("one", redis.port), serve("other", redis.port, weights="W")
    one.kept(1)

    assert other.ask(1) == "other 1"


def test_answers_survive_the_server(redis: Redis, serve: Serve) -> None:
    first = serve("first", redis.port)
    answer = first.kept(1)
    first.server.stop()

    assert serve("second", redis.port).ask(1) == answer


def test_a_redis_that_hangs_holds_no_request_up_for_long(
    redis: Redis, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve("one", redis.port, timeout_ms=500)
    server.kept(1)
    redis.hang()

    answers = [server.ask(1) for _ in range(20)]  # it is asked no more after three times

    assert len(set(answers)) == 20
    assert server.metric("tritonpy_cache_errors_total") > 15
    assert sum("has failed 3 times in a row" in record.message for record in caplog.records) == 1
    redis.resume()
    server.kept(1)


def test_a_redis_that_dies_fails_no_request_and_is_used_when_it_is_back(redis: Redis, serve: Serve) -> None:
    server = serve("one", redis.port)
    server.kept(1)
    redis.die()
    assert len({server.ask(1) for _ in range(10)}) == 10

    redis.revive()

    server.kept(1)


def test_a_server_does_not_start_without_the_redis_it_needs(redis: Redis, serve: Serve) -> None:
    redis.die()

    with pytest.raises(TritonError, match="Failed to initialize RedisCache: cannot reach Redis"):
        serve("one", redis.port)
    assert serve("other", redis.port, required="false").ask(1) == "other 1"
    redis.revive()


@pytest.mark.emulator
def test_keys_tell_their_model_and_may_have_an_end(tmp_path: Path, serve: Serve) -> None:
    redis = RedisServer(tmp_path)
    try:
        server = serve("one", redis.port, ttl="60", key_prefix="mine:")
        server.ask(1)
        until(lambda: redis.ask("DBSIZE") == ":1\r\n")

        key = redis.ask("KEYS", "*").splitlines()[2]
        assert re.fullmatch("mine:telling:1:[0-9a-f]{32}", key)
        assert 0 < int(redis.ask("PTTL", key)[1:]) <= 60_000
    finally:
        redis.stop()


@pytest.mark.emulator
def test_a_full_redis_refuses_and_nothing_fails(
    tmp_path: Path, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    redis = RedisServer(tmp_path, "--maxmemory", "1", "--maxmemory-policy", "noeviction")
    try:
        server = serve("one", redis.port)
        assert len({server.ask(1) for _ in range(5)}) == 5
        until(lambda: server.metric("tritonpy_cache_errors_total") == 5)
        refusals = [record.message for record in caplog.records if "Redis refuses it" in record.message]
        assert len(refusals) == 1
    finally:
        redis.stop()


@pytest.mark.emulator
def test_users_and_their_passwords(tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    users = "--user me on >secret ~tritonpy:* +get +set +ping --user default off"
    redis = RedisServer(tmp_path, *users.split())
    try:
        monkeypatch.setenv("TRITONREDIS_USERNAME", "me")
        monkeypatch.setenv("TRITONREDIS_PASSWORD", "secret")
        server = serve("one", redis.port)
        server.kept(1)

        with pytest.raises(TritonError, match="invalid username-password"):
            serve("other", redis.port, password="wrong")
    finally:
        redis.stop()


@pytest.mark.emulator
def test_tls_with_certificates_on_both_sides(tmp_path: Path, serve: Serve) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    names = ("ca", "stranger", "cert", "key", "my_cert", "my_key")
    paths = {name: str(tmp_path / f"{name}.pem") for name in names}
    for certificate, cert, key in (
        (authority.issue_cert("redis.example.org"), "cert", "key"),
        (authority.issue_cert("tritonpy.example.org"), "my_cert", "my_key"),
    ):
        certificate.cert_chain_pems[0].write_to_path(paths[cert])
        certificate.private_key_pem.write_to_path(paths[key])
    authority.cert_pem.write_to_path(paths["ca"])
    stranger.cert_pem.write_to_path(paths["stranger"])
    redis = RedisServer(
        tmp_path,
        *("--port", "0", "--tls-port", "{port}", "--tls-cert-file", paths["cert"]),
        *("--tls-key-file", paths["key"], "--tls-ca-cert-file", paths["ca"]),
    )
    mine = {"tls_enabled": "true", "cert": paths["my_cert"], "key": paths["my_key"], "cacert": paths["ca"]}
    right = {"sni": "redis.example.org", **mine}
    try:
        server = serve("one", redis.port, **right)
        server.kept(1)

        for wrong in ({"sni": "other.example.org"}, {"cacert": paths["stranger"]}):
            with pytest.raises(TritonError, match="cannot reach Redis"):
                serve("other", redis.port, **(right | wrong))
    finally:
        redis.stop()
