"""The service that a server offers to routers: what it tells, what it applies, and whom it answers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from tritonpy.errors import InvalidArg
from tritonpy.options import ServerOptions
from tritonpy.plugin import ModelActivity
from tritonpy.protos import ModelInferRequest
from tritonpy.server import Server
from tritonpy_router import protos
from tritonpy_router.protos import ApplyRequest, ApplyResponse, DesiredModel, WatchRequest, WatchResponse
from tritonpy_router.replica_service.meters import Meters
from tritonpy_sdk.testing import DEADLINE_S

from .conftest import ECHO, local_ports

TOKEN = "a token of the tests, which nobody guesses".replace(" ", "-")
KEY = (("authorization", f"Bearer {TOKEN}"),)


def options(models: Path, *settings: tuple[str, str], **more: Any) -> ServerOptions:
    given = {"port": "0", **dict(settings)}
    config = tuple(("replica", key, value) for key, value in given.items())
    ports = local_ports(model_control_mode="explicit", exit_timeout_s=0, **more)
    return ServerOptions((str(models),), frontend_config=config, **ports)


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("secret") / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture(scope="module")
def server(models: Path, token_file: Path) -> Iterator[Server]:
    given = options(models, ("token-file", str(token_file)), load_models=("echo", "slow", "seq"))
    with Server(given) as running:
        yield running


@pytest.fixture(scope="module")
def channel(server: Server) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{server.port('replica')}") as made:
        yield made


def watch(channel: grpc.Channel, interval_ms: int = 50, metadata: Any = KEY) -> Any:
    call = channel.unary_stream(
        "/tritonpy.cluster.v1.Replica/Watch",
        request_serializer=WatchRequest.SerializeToString,
        response_deserializer=WatchResponse.FromString,
    )
    return call(WatchRequest(interval_ms=interval_ms), metadata=metadata, timeout=DEADLINE_S)


def apply(channel: grpc.Channel, *models: DesiredModel, metadata: Any = KEY) -> Any:
    call = channel.unary_unary(
        "/tritonpy.cluster.v1.Replica/Apply",
        request_serializer=ApplyRequest.SerializeToString,
        response_deserializer=ApplyResponse.FromString,
    )
    return call(ApplyRequest(models=models), metadata=metadata, timeout=DEADLINE_S).models


def first(messages: Any, wanted: Any) -> WatchResponse:
    """The first message that has what is wanted."""
    return next(message for message in messages if wanted(message))


def test_the_first_message_has_the_index_and_the_facts_that_routers_need(channel: grpc.Channel) -> None:
    said = next(watch(channel))

    assert said.is_taking
    assert not said.is_draining
    assert said.server_id
    assert said.has_index
    entries = {entry.name: entry for entry in said.index}
    assert (entries["echo"].state, entries["echo"].version) == ("READY", "1")
    assert not entries["echo"].is_sequence
    assert entries["seq"].is_sequence
    assert entries["seq"].max_sequence_idle_us == 60_000_000


def test_messages_come_though_nothing_changes_and_without_the_index(channel: grpc.Channel) -> None:
    messages = watch(channel)

    index = [next(messages).has_index for _ in range(3)]

    assert index == [True, False, False]


def test_no_report_waits_for_a_storage_that_does_not_answer(
    server: Server, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async def silent() -> Any:
        asked.append(None)
        await asyncio.Event().wait()

    monkeypatch.setattr(server.runtime.dataplane._control._listed, "get", silent)
    messages = watch(channel)

    told = [next(messages) for _ in range(8)]

    assert {entry.name for entry in told[0].index} >= {"echo", "slow", "seq"}
    assert not asked


def test_requests_under_way_are_counted(server: Server, channel: grpc.Channel) -> None:
    messages = watch(channel)
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as inference:
        infer = inference.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=ModelInferRequest.SerializeToString,
        )
        request = ModelInferRequest(model_name="slow", raw_input_contents=[bytes(8)])
        request.inputs.add(name="INPUT0", datatype="FP32", shape=[1, 2])
        calls = [infer.future(request) for _ in range(3)]
        found = first(messages, lambda said: said.inflight_count == 3)
        for call in calls:
            call.cancel()
        after = first(messages, lambda said: said.inflight_count < 3)

    activity = {row.name: row for row in found.activity}
    assert activity["slow"].inflight_count == 3
    assert found.pending_count == activity["slow"].pending_count <= 3  # it may not have begun with any yet
    assert after.inflight_count < 3


def test_a_load_and_an_unload_are_applied_once_and_told_to_those_who_watch(channel: grpc.Channel) -> None:
    messages = watch(channel)
    config = json.dumps({**ECHO, "parameters": {"retry_on_replica_loss": {"string_value": "true"}}})
    load = DesiredModel(name="new", revision=7, config=config, files={"file:1/model": b"x"})

    (loaded,) = apply(channel, load)
    (again,) = apply(channel, load)
    said = first(messages, lambda said: said.revision == 7 and said.has_index)
    (unloaded,) = apply(channel, DesiredModel(name="new", action=DesiredModel.UNLOAD, revision=8))
    gone = first(messages, lambda said: said.revision == 8)

    assert [(each.code, each.revision) for each in (loaded, again, unloaded)] == [(0, 7), (0, 7), (0, 8)]
    (entry,) = (entry for entry in said.index if entry.name == "new" and entry.state == "READY")
    assert entry.retry_on_replica_loss
    assert gone.server_id == said.server_id


def test_what_a_load_has_changed_of_a_model_that_serves_is_told(channel: grpc.Channel) -> None:
    config = json.dumps(ECHO)
    retried = json.dumps({**ECHO, "parameters": {"retry_on_replica_loss": {"string_value": "true"}}})
    messages = watch(channel)
    files = {"file:1/model": b"x"}
    apply(channel, DesiredModel(name="again", revision=1, config=config, files=files))
    first(messages, lambda said: any(entry.name == "again" for entry in said.index))

    apply(channel, DesiredModel(name="again", revision=2, config=retried, files=files))

    entries = (entry for said in messages for entry in said.index if entry.name == "again")
    assert next(entries).retry_on_replica_loss
    apply(channel, DesiredModel(name="again", revision=3, action=DesiredModel.UNLOAD))


def test_a_wish_that_is_older_than_one_that_was_met_is_refused(channel: grpc.Channel) -> None:
    apply(channel, DesiredModel(name="echo", revision=20))

    refused, other = apply(
        channel,
        DesiredModel(name="echo", action=DesiredModel.UNLOAD, revision=19),
        DesiredModel(name="seq", revision=1),
    )

    assert (refused.code, refused.revision) == (grpc.StatusCode.FAILED_PRECONDITION.value[0], 20)
    assert refused.message == "revision 19 for model 'echo' is older than 20, which was applied"
    assert other.code == 0


def test_one_model_that_cannot_be_loaded_does_not_keep_another_from_it(channel: grpc.Channel) -> None:
    failed, done = apply(
        channel, DesiredModel(name="nobody", revision=1), DesiredModel(name="echo", revision=30)
    )

    assert failed.code != 0
    assert "nobody" in failed.message
    assert failed.revision == 0
    assert done.code == 0


def test_who_has_not_the_token_is_told_nothing(channel: grpc.Channel) -> None:
    for metadata in ((), (("authorization", "Bearer wrong-wrong-wrong-wrong"),)):
        with pytest.raises(grpc.RpcError) as watched:
            next(watch(channel, metadata=metadata))
        with pytest.raises(grpc.RpcError) as applied:
            apply(channel, DesiredModel(name="echo", revision=99), metadata=metadata)

        assert watched.value.code() is applied.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_a_server_that_stops_says_so_before_it_is_gone(models: Path, token_file: Path) -> None:
    given = options(models, ("token-file", str(token_file)), load_models=("echo",), drain_delay_s=0.5)
    with Server(given) as running, grpc.insecure_channel(f"127.0.0.1:{running.port('replica')}") as made:
        messages = watch(made)
        next(messages)
        with ThreadPoolExecutor(1) as pool:
            stopped = pool.submit(running.stop)
            draining = first(messages, lambda said: said.is_draining)
            with pytest.raises(grpc.RpcError) as ended:
                list(messages)
            stopped.result(DEADLINE_S)

    assert not draining.is_taking
    assert "stopping" in draining.unready_reason
    assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_certificate_says_who_may_ask(models: Path, tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    own = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    own.private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    files = {name: str(tmp_path / file) for name, file in _FILES.items()}
    with Server(options(models, *files.items(), load_models=("echo",))) as running:
        found = [_asked_with(authority, each, running.port("replica")) for each in (authority, stranger)]

    assert found == [True, False]


_FILES = {"tls-certificate": "own.pem", "tls-key": "own.pem", "tls-client-ca": "ca.pem"}


def _asked_with(authority: trustme.CA, issuer: trustme.CA, port: int) -> bool:
    client = issuer.issue_cert("router@example.org")
    credentials = grpc.ssl_channel_credentials(
        authority.cert_pem.bytes(),
        client.private_key_pem.bytes(),
        b"".join(pem.bytes() for pem in client.cert_chain_pems),
    )
    with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
        try:
            return bool(next(watch(channel, metadata=())).is_taking)
        except grpc.RpcError:
            return False


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "--frontend-config replica,token-file: missing"),
        ({"port": "70000"}, "replica,port: got '70000', expected 65535 at most"),
        ({"tokenfile": "x"}, "replica,tokenfile: not known, expected address, port, token-file"),
        ({"token-file": "/nowhere"}, "replica,token-file: cannot read '/nowhere'"),
        ({"tls-certificate": "c.pem"}, "replica,tls-key: missing: TLS needs a certificate and"),
        ({"tls-certificate": "/no.pem", "tls-key": "/no.pem", "tls-client-ca": "/no"}, "tls-certificate"),
    ],
)
def test_settings_that_do_not_go_together_end_the_start(
    settings: dict[str, str], text: str, models: Path
) -> None:
    with pytest.raises(InvalidArg) as refused:
        Server(options(models, *settings.items(), load_models=("echo",))).start()

    assert text in refused.value.message


def row(executed: int, compute_s: float, queue_s: float = 0.0, **more: int) -> ModelActivity:
    given = {"inflight_count": 0, "pending_count": 0, "instance_count": 2, **more}
    return ModelActivity(
        "m", 1, executed_count=executed, queue_ns=int(queue_s * 1e9), compute_ns=int(compute_s * 1e9), **given
    )


def measured(meters: Meters) -> tuple[float, float]:
    (activity,) = meters.activity()
    return round(activity.service_rate, 3), round(activity.queue_ms, 3)


def test_the_service_rate_is_what_all_instances_get_through() -> None:
    meters = Meters()
    meters.note([row(0, 0)], 0.0)
    meters.note([row(10, 1.0, 0.05)], 0.1)

    assert measured(meters) == (20.0, 5.0)
    assert round(meters.queue_ms(), 3) == 5.0


def test_a_mean_follows_what_has_changed_within_seconds() -> None:
    meters = Meters()
    meters.note([row(0, 0)], 0.0)
    meters.note([row(100, 10.0)], 1.0)
    for second in range(2, 12):  # five times as slow from now on
        meters.note([row(80 + 20 * second, 10.0 * second)], float(second))

    assert measured(meters)[0] == pytest.approx(4.0, rel=0.05)


def test_how_quick_a_model_was_long_ago_is_not_told() -> None:
    meters = Meters()
    meters.note([row(0, 0)], 0.0)
    meters.note([row(1, 5.0, 1.0)], 1.0)
    meters.note([row(1, 5.0, 1.0, inflight_count=1)], 12.0)

    assert measured(meters) == (0.0, 0.0)


def test_counters_that_begin_anew_are_not_taken_for_a_negative_count() -> None:
    meters = Meters()
    meters.note([row(100, 10.0)], 0.0)
    meters.note([row(3, 0.3)], 1.0)
    meters.note([row(5, 0.5)], 2.0)

    assert measured(meters)[0] == 20.0


def test_the_messages_are_those_of_the_committed_proto(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    committed = Path(protos.__file__).parent
    script = Path(__file__).parents[1] / "build_protos.py"

    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True)

    assert (tmp_path / "messages.pyi").read_text() == (committed / "messages.pyi").read_text()
    built, kept = ((folder / "descriptors.binpb").read_bytes() for folder in (tmp_path, committed))
    assert FileDescriptorSet.FromString(built) == FileDescriptorSet.FromString(kept)
