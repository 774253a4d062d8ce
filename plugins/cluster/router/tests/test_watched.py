"""Replicas that tell of themselves: how the router hears it, and what it does with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from tritonpy.server import Server
from tritonpy_router.control import Control, desired_model
from tritonpy_router.dispatcher import Dispatcher, QueueLimits
from tritonpy_router.membership import FileMembership
from tritonpy_router.model_facts import ModelFacts
from tritonpy_router.picking import POLICIES
from tritonpy_router.probe import Prober
from tritonpy_router.protos import (
    AppliedModel,
    ApplyRequest,
    ApplyResponse,
    DesiredModel,
    IndexEntry,
    WatchResponse,
)
from tritonpy_router.replica import Place, Replica
from tritonpy_router.replica_client import ReplicaClient
from tritonpy_router.replica_watch import ReplicaWatch, Report
from tritonpy_router.scan import Asked
from tritonpy_router.traffic import Traffic
from tritonpy_router.view import View
from tritonpy_router.wishes import Wanted
from tritonpy_sdk.testing import DEADLINE_S, until

from .conftest import BODY, ECHO, RouterThread, asked

TOKEN = "0123456789abcdef-of-the-tests"
Make = Callable[..., Any]


@pytest.fixture
def make_telling(make_server: Make, tmp_path: Path) -> Callable[..., tuple[Server, Place]]:
    """Starts servers that have the frontend `replica`; with each its place."""
    file = tmp_path / "token"
    file.write_text(TOKEN)
    config = (("replica", "port", "0"), ("replica", "token-file", str(file)))

    def make(name: str, *models: str, **options: Any) -> tuple[Server, Place]:
        server = make_server(*models, frontend_config=config, **options)
        place = Place(name, "127.0.0.1", server.http_port, server.grpc_port, server.port("replica"))
        return server, place

    return make


def hears(router: RouterThread, count: int = 1) -> bool:
    return router.call(lambda: sum(each.heard_s is not None for each in router.router.view)) == count


def replica_of(router: RouterThread, name: str) -> Replica:
    found: Replica = router.router.view.replicas[name]
    return found


def load_body(**more: Any) -> bytes:
    return json.dumps({"parameters": {"config": json.dumps({**ECHO, **more})}}).encode()


def test_a_replica_that_tells_of_itself_is_not_asked_over_http(
    make_telling: Make, make_router: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Replica, "is_suspect", lambda *_: False)  # however busy the machine is
    server, place = make_telling("a", "echo", "seq")
    router = make_router(places=[place], replica_token=TOKEN, probe_interval_s=0.01)
    until(lambda: hears(router))
    until(lambda: router.call(lambda: set(replica_of(router, "a").models)) == {"echo", "seq"})
    prober = router.router._prober
    questions: list[object] = []

    async def noted(*given: object) -> tuple[int, bytes]:
        questions.append(given)
        return 200, b"{}"

    ask = prober.ask
    router.call(lambda: setattr(prober, "ask", noted))
    asked(f"127.0.0.1:{server.http_port}", "/v2/repository/models/echo/unload", b"")
    until(lambda: router.call(lambda: set(replica_of(router, "a").models)) == {"seq"})

    assert router.call(lambda: list(questions)) == []
    router.call(lambda: setattr(prober, "ask", ask))
    assert router.call(lambda: router.router.view.facts("seq")) == ModelFacts(True, 60.0, instance_count=1)
    assert asked(router.http, "/v2/models/echo/infer", BODY)[0] == 404
    assert asked(router.http, "/v2/models/seq/config")[0] == 200


def test_without_the_right_token_it_is_asked_over_http(make_telling: Make, make_router: Make) -> None:
    _, place = make_telling("a", "echo")
    router = make_router(places=[place], replica_token="another-token-of-nobody")

    status = asked(router.http, "/v2/models/echo/infer", BODY)[0]

    assert status == 200
    assert hears(router, 0)


def test_a_replica_that_is_about_to_stop_gets_nothing_new(make_telling: Make, make_router: Make) -> None:
    going, place = make_telling("a", "echo", drain_delay_s=2)
    _, other = make_telling("b", "echo")
    router = make_router(places=[place, other], replica_token=TOKEN, probe_interval_s=60)
    until(lambda: hears(router, 2))

    stop = asyncio.run_coroutine_threadsafe(_become_unready(going), going.loop)
    until(lambda: router.call(lambda: replica_of(router, "a").is_draining))
    before = router.call(lambda: replica_of(router, "a").request_count)
    answers = {asked(router.http, "/v2/models/echo/infer", BODY)[0] for _ in range(8)}
    stop.cancel()

    assert answers == {200}
    assert router.call(lambda: replica_of(router, "a").request_count) == before


async def _become_unready(server: Server) -> None:
    await server.runtime._become_unready()


def test_loads_reach_all_with_their_revision_and_those_that_join_later(
    make_telling: Make, make_router: Make, tmp_path: Path
) -> None:
    members = tmp_path / "members"
    one, first = make_telling("a", "echo")
    two, second = make_telling("b", "echo")
    members.write_text(line(first))
    membership = FileMembership(members, 0.02, print)
    router = make_router(membership=membership, ready=1, replica_token=TOKEN)
    until(lambda: hears(router))

    loaded = asked(router.http, "/v2/repository/models/echo/load", load_body(max_batch_size=3))[0]
    members.write_text(f"{line(first)}\n{line(second)}")
    router.wait_until_ready(2)
    until(lambda: hears(router, 2))
    sizes = {_max_batch_size(server) for server in (one, two)}
    # On a busy machine the second one may have been asked over HTTP, and been caught up without a revision.
    asked(router.http, "/v2/repository/models/echo/load", load_body(max_batch_size=3))
    failed = asked(router.http, "/v2/repository/models/nobody/load", b"")

    assert (loaded, sizes) == (200, {3})
    direct = asked(f"127.0.0.1:{one.http_port}", "/v2/repository/models/nobody/load", b"")
    assert (failed[0], failed[2]) == (direct[0], direct[2])
    assert len({_revision(server) for server in (one, two)}) == 1
    until(lambda: router.call(lambda: replica_of(router, "a").revision) == _revision(one))


class Swallower:
    """Passes bytes on to a port until it is told to lose them, for the connections that there are then."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._flows: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []
        self.count = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.count += 1
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, back]
        for source, sink in ((reader, back), (there, writer)):
            self._flows.append(asyncio.create_task(self._pass(source, sink)))

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data)

    def swallow(self) -> None:
        for flow in self._flows:
            flow.cancel()

    async def close(self) -> None:
        self.swallow()
        await asyncio.gather(*self._flows, return_exceptions=True)
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)


def test_a_connection_that_was_lost_without_a_word_is_replaced(make_telling: Make) -> None:
    _, place = make_telling("a", "echo")

    async def check() -> None:
        swallower = Swallower(place.replica_port)
        async with (
            await asyncio.start_server(swallower.accept, "127.0.0.1", 0) as port,
            asyncio.timeout(DEADLINE_S),
        ):
            replica = Replica(place)
            client = ReplicaClient(place, port.sockets[0].getsockname()[1], TOKEN, None)
            clock = asyncio.get_running_loop().time
            watch = ReplicaWatch(replica, client, clock, _ignore, silent_s=0.5)
            following = asyncio.create_task(watch.run())
            await asyncio.to_thread(until, lambda: replica.heard_s is not None)
            before = swallower.count
            swallower.swallow()
            request = ApplyRequest(models=[DesiredModel(name="echo", revision=1)])
            applying = asyncio.create_task(client.apply(request, 10 * DEADLINE_S))
            await asyncio.to_thread(until, lambda: replica.heard_s is None)
            await asyncio.to_thread(until, lambda: replica.heard_s is not None)
            answer = await applying
            assert swallower.count > before
            assert [model.code for model in answer.models] == [0]
            following.cancel()
            await asyncio.wait([following])
            await swallower.close()

    asyncio.run(check())


async def _ignore(replica: Replica, report: Report) -> None:
    pass


def test_a_report_that_cannot_be_taken_up_does_not_keep_later_ones_from_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def check() -> None:
        taken = []

        async def take(replica: Replica, report: Report) -> None:
            taken.append(report.server_id)
            if len(taken) == 1:
                raise RuntimeError("out of order")

        watch = ReplicaWatch(Replica(Place("a", "a", 1, 2)), None, lambda: 0.0, take)  # type: ignore[arg-type]
        handing_on = asyncio.create_task(watch._hand_on())
        for number in ("1", "2"):
            watch._came = Report(WatchResponse(server_id=number))
            watch._has_come.set()
            for _ in range(4):
                await asyncio.sleep(0)
        handing_on.cancel()
        await asyncio.wait([handing_on])
        assert taken == ["1", "2"]
        assert watch.tried.is_set()

    asyncio.run(check())
    assert "out of order" in caplog.text


def test_calls_of_a_replica_that_hangs_are_ended_with_its_requests() -> None:
    view, _, a, _ = two()
    ended: list[Any] = []
    prober = Prober(view, 1.0, None, {}, ended.append, lambda: None, _ignore)  # type: ignore[arg-type]
    prober._watches[a] = SimpleNamespace(client=SimpleNamespace(drop=lambda: ended.append("calls")))  # type: ignore[assignment]

    for misses in (1, 2, 3, 4):
        prober._missed(a, TimeoutError(), misses)

    assert ended == [a, "calls"]


def line(place: Place) -> str:
    return f"{place.name}={place.host}:{place.http_port}:{place.grpc_port}:{place.replica_port}"


def _max_batch_size(server: Server) -> int:
    return int(
        json.loads(asked(f"127.0.0.1:{server.http_port}", "/v2/models/echo/config")[2])["max_batch_size"]
    )


def _revision(server: Server) -> int:
    port = server.runtime.frontends.by_name["replica"].state
    return int(port._applier.revision)


# What is done with it, without sockets.


def heard(replica: Replica, now_s: float, inflight: int = 0, **counts: int) -> None:
    replica.heard(
        now_s,
        0.75,
        inflight_count=inflight,
        pending_count=0,
        queue_ms=0.0,
        inflight_counts=counts,
        is_draining=False,
    )


def two(policy: str = "two-choices") -> tuple[View, list[float], Replica, Replica]:
    clock = [0.0]
    view = View(lambda: clock[0], POLICIES[policy], Random(7))
    view.set_members([Place("a", "a", 1, 2), Place("b", "b", 1, 2)])
    for replica in view:
        replica.is_ready = True
        replica.models = {"m": frozenset("1")}
    return view, clock, view.replicas["a"], view.replicas["b"]


def share(view: View, name: str, count: int = 400) -> float:
    """The share of picks that a replica has, with nothing under way but what is."""
    picked = [view.pick(Asked("m")) for _ in range(count)]
    return sum(replica.name == name for replica in picked) / count


@pytest.mark.parametrize("policy", ["two-choices", "least-busy"])
def test_requests_that_others_have_there_count(policy: str) -> None:
    view, _, a, b = two(policy)
    heard(a, 0.0, inflight=5)
    heard(b, 0.0)
    b.inflight = 3

    assert share(view, "b") == 1.0
    assert a.others == 5


def test_its_own_requests_are_not_those_of_others() -> None:
    _, _, a, _ = two()
    for _ in range(4):
        a.begin()
    heard(a, 0.0, inflight=6)

    assert (a.others, a.load) == (2, 6)


def test_its_own_requests_that_were_answered_since_are_not_those_of_others_either() -> None:
    _, _, a, _ = two()
    heard(a, 0.0)
    for _ in range(20):
        a.begin()
    a.inflight = 1  # the report was made before the others were answered
    heard(a, 0.25, inflight=20)
    first = a.others
    heard(a, 0.5, inflight=4)

    assert (first, a.others) == (0, 3)


def test_requests_that_others_have_there_count_for_their_model() -> None:
    view, _, a, b = two()
    for replica in (a, b):
        replica.load_of("m").begin()
        replica.begin()
    heard(a, 0.0, inflight=9, m=2, other=7)
    heard(b, 0.0, inflight=3, m=3)

    assert (a.loads["m"].others, b.loads["m"].others) == (1, 2)
    assert share(view, "a") == 1.0  # though it has more to do, all in all
    for replica in (a, b):
        replica.forget_report()
    assert 0.3 < share(view, "a") < 0.7


def test_one_that_is_silent_gets_nothing_that_another_can_have() -> None:
    view, clock, a, b = two()
    heard(a, 0.0)
    heard(b, 0.0)
    clock[0] = 0.8
    heard(b, 0.8)

    assert share(view, "b") == 1.0
    clock[0] = 2.0  # all are: it may be the router that heard nothing
    assert 0.3 < share(view, "a") < 0.7
    a.forget_report()  # it is asked over HTTP
    assert share(view, "a") == 1.0


def test_an_index_counts_until_another_one_comes() -> None:
    first = Report(WatchResponse(has_index=True, index=[entry("m", "READY"), entry("n", "LOADING")]))
    second = Report(WatchResponse())
    second.keep_index(first)

    assert first.models == second.models == {"m": frozenset("1")}


def entry(name: str, state: str) -> IndexEntry:
    return IndexEntry(name=name, version="1", state=state)


def test_a_wish_that_cannot_be_read_is_the_replicas_to_refuse() -> None:
    config = json.dumps({"parameters": {"config": "{}", "file:1/m": "eA==", "force": True}}).encode()

    made = desired_model("m", Wanted("load", config, 5))
    unload = desired_model("m", Wanted("unload", b'{"parameters":{"unload_dependents":true}}', 6))

    assert made == DesiredModel(name="m", revision=5, config="{}", files={"file:1/m": b"x"}, force=True)
    assert unload == DesiredModel(name="m", action=DesiredModel.UNLOAD, revision=6, unload_dependents=True)
    for body in (b"{", b'{"parameters":{"nonsense":"x"}}'):
        assert desired_model("m", Wanted("load", body, 7)) is None


def test_one_that_was_given_up_has_its_models_again_when_it_tells_of_itself_again() -> None:
    async def check() -> None:
        view, _, a, _ = two()
        caught_up = []

        async def catch_up(replica: Replica) -> None:
            caught_up.append(replica.name)

        prober = Prober(view, 1.0, None, {}, lambda replica: None, lambda: None, catch_up)
        report = Report(
            WatchResponse(is_taking=True, server_id="1", has_index=True, index=[entry("m", "READY")])
        )
        await prober._take(a, report)
        view.gone(a, "does not answer")
        await prober._take(a, report)
        assert (a.is_ready, a.models, caught_up) == (True, {"m": frozenset("1")}, ["a"])

        again = Report(WatchResponse(is_taking=True, server_id="2"))
        again.keep_index(report)
        await prober._take(a, again)
        assert (a.is_ready, caught_up) == (True, ["a", "a"])  # it was started anew meanwhile
        assert a.models == {"m": frozenset("1")}

    asyncio.run(check())


# The end.


class HeldProber:
    """Answers loads when it is told to."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()

    def client(self, replica: Replica) -> None:
        return None

    async def look(self, replica: Replica, changed: str = "") -> None:
        pass

    async def ask(self, *_: Any) -> tuple[int, bytes]:
        await self.may_answer.wait()
        return 200, b""


def test_a_load_that_is_under_way_is_waited_for_at_the_end() -> None:
    async def check() -> None:
        view, *_ = two()
        prober = HeldProber()
        control = Control(view, prober, 60.0)  # type: ignore[arg-type]
        load = asyncio.create_task(control.change("m", "load", b""))
        await asyncio.sleep(0)
        idle = asyncio.create_task(control.idle())
        await asyncio.sleep(0)
        assert not idle.done()
        prober.may_answer.set()
        await idle
        await load

    asyncio.run(check())


def test_later_wishes_have_higher_revisions_whatever_the_clock_says() -> None:
    view, *_ = two()
    clock = iter((100, 90, 90))
    control = Control(view, HeldProber(), 60.0, wall_ms=clock.__next__)  # type: ignore[arg-type]

    assert [control._next_revision() for _ in range(3)] == [100, 101, 102]


def test_connections_to_a_replica_that_left_are_kept_by_nobody() -> None:
    async def check() -> None:
        view, _, a, _ = two()
        traffic = Traffic(view, Dispatcher(view, QueueLimits()), None, None, None)  # type: ignore[arg-type]
        kept = traffic.pools(a)
        assert traffic.pools(a) is kept
        traffic.leave(a)
        late = traffic.pools(a)
        assert late is not traffic.pools(a)
        assert late.grpc._is_closed
        assert late.http._is_closed

    asyncio.run(check())


def test_what_a_load_changes_of_a_model_is_known_when_it_is_answered(
    make_server: Make, make_router: Make
) -> None:
    router = make_router(make_server("echo"), probe_interval_s=60)

    loaded = asked(
        router.http,
        "/v2/repository/models/echo/load",
        load_body(parameters={"retry_on_replica_loss": {"string_value": "true"}}),
    )[0]

    assert loaded == 200
    assert router.call(lambda: replica_of(router, "a").facts["echo"].is_retriable)


def test_what_somebody_else_has_loaded_anew_is_known_a_few_questions_later(
    make_server: Make, make_router: Make
) -> None:
    server = make_server("echo")
    router = make_router(server)
    group = [{"count": 3, "kind": "KIND_CPU"}]

    loaded = asked(
        f"127.0.0.1:{server.http_port}",
        "/v2/repository/models/echo/load",
        load_body(
            parameters={"retry_on_replica_loss": {"string_value": "true"}},
            instance_group=group,
            sequence_batching={"max_sequence_idle_microseconds": 7_000_000},
        ),
    )[0]

    assert loaded == 200
    wanted = ModelFacts(True, 7.0, True, 3)
    until(lambda: router.call(lambda: replica_of(router, "a").facts["echo"]) == wanted)


def test_configurations_are_read_again_in_turns() -> None:
    names = [f"m{number:02}" for number in range(20)]
    read: list[str] = []

    async def ask(place: Place, method: str, path: str, *rest: object) -> tuple[int, bytes]:
        if path.endswith("/config"):
            read.append(path.split("/")[3])
            return (404, b"") if path.endswith("m07/config") else (200, b"{}")
        rows = [{"name": name, "version": "1", "state": "READY"} for name in names]
        return 200, json.dumps(rows if path.endswith("/index") else {}).encode()

    async def check() -> None:
        view, _, a, _ = two()
        prober = Prober(view, 1.0, None, {}, print, lambda: None, catch_up=lambda _: asyncio.sleep(0))
        prober.ask = ask  # type: ignore[method-assign,assignment]
        await prober.look(a)
        assert read == names  # all are new
        a.facts["m07"] = kept = ModelFacts(is_sequence=True)
        for begin in (8, 16, 0):
            read.clear()
            await prober.look(a)
            assert read == names[begin : begin + 8]
        assert a.facts["m07"] is kept  # nobody could tell

    asyncio.run(check())


class AheadClient:
    """A replica that has met a wish of a router whose clock is ahead."""

    def __init__(self, met: int) -> None:
        self.met = met

    async def apply(self, request: ApplyRequest, timeout_s: float) -> ApplyResponse:
        (model,) = request.models
        if model.revision < self.met:
            outcome = AppliedModel(name=model.name, code=9, message="older", revision=self.met)
        else:
            self.met = model.revision
            outcome = AppliedModel(name=model.name, revision=self.met)
        return ApplyResponse(models=[outcome])


def test_a_new_wish_has_a_revision_above_what_replicas_have_met() -> None:
    async def check() -> None:
        view, _, a, b = two()
        prober = HeldProber()
        clients = {a: AheadClient(5000), b: AheadClient(0)}
        prober.client = clients.__getitem__  # type: ignore[assignment]
        control = Control(view, prober, 60.0, wall_ms=lambda: 100)  # type: ignore[arg-type]

        await control.change("m", "load", b"")  # nothing was told yet: it is refused, and made anew
        assert {client.met for client in clients.values()} == {5001}
        b.revision = 9000  # as it has told
        assert control._next_revision() == 9001

    asyncio.run(check())
