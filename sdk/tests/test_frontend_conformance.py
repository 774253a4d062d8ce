"""A right frontend passes every check of the kit; each wrong one is named with what to do about it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import signal
import socket
import time
from collections import namedtuple

import numpy as np
import pytest
from tritonpy.plugin import (
    Address,
    ErrorCode,
    InferRequest,
    Internal,
    InvalidArg,
    Tensor,
    TritonError,
    hookimpl,
)
from tritonpy_sdk.testing import DEADLINE_S, FrontendConformance, PluginFault
from tritonpy_sdk.testing.rules import rules_of

State = namedtuple("State", "listener connections")
LIMIT = 1024 * 1024
PATIENCE_S = DEADLINE_S / 60  # that the kit has with frontends which take their time


class Lines:
    """Each line is a request as JSON, and each answer another line."""

    limit = LIMIT

    @hookimpl
    def frontend_initialize(self, frontend):
        self.check(frontend)
        frontend.addresses = [Address("127.0.0.1", int(frontend.settings.get("port", "0")))]

    def check(self, frontend):
        port = frontend.settings.get("port", "0")
        if not port.isdecimal():
            raise InvalidArg(f"'port' is '{port}', expected a number")

    @hookimpl
    async def frontend_start(self, frontend):
        tasks = set()

        def connected(reader, writer):
            task = asyncio.ensure_future(self.serve(frontend, reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        host, port, _ = frontend.addresses[0]
        listener = await asyncio.start_server(connected, host, port, limit=self.limit)
        frontend.addresses = self.told(listener)
        frontend.state = State(listener, tasks)

    def told(self, listener):
        return [Address(*listener.sockets[0].getsockname()[:2])]

    @hookimpl
    async def frontend_stop(self, frontend):
        self.refuse(frontend)
        await frontend.drained()
        await self.close(frontend)

    def refuse(self, frontend):
        frontend.state.listener.close()

    async def close(self, frontend):
        await asyncio.sleep(0.01)  # the last answers are on their way
        for task in list(frontend.state.connections):
            task.cancel()
        await asyncio.gather(*frontend.state.connections, return_exceptions=True)

    async def serve(self, frontend, reader, writer):
        try:
            with contextlib.suppress(ConnectionError, ValueError):
                while line := await reader.readline():
                    writer.write(json.dumps(await self.answer(frontend, line)).encode() + b"\n")
                    await writer.drain()
        finally:
            writer.close()

    async def answer(self, frontend, line):
        try:
            with frontend.admission.holding(len(line)):
                return {"values": await self.infer(frontend, json.loads(line))}
        except TritonError as error:
            return {"error": self.text(error)}

    def text(self, error):
        return str(error)

    async def infer(self, frontend, asked):
        model = frontend.dataplane.find(asked["model"])
        tensor = Tensor.from_numpy("INPUT0", np.array(asked["values"], "f4"))
        response = await frontend.infer(model, InferRequest(model.name, {"INPUT0": tensor}))
        return response.outputs[0].numpy().tolist()


class TellsNothing(Lines):
    def told(self, listener):
        return []


class TellsThePortThatItWanted(Lines):
    def told(self, listener):
        return [Address("127.0.0.1", 0)]


class TellsTuples(Lines):
    @hookimpl
    async def frontend_start(self, frontend):
        await super().frontend_start(frontend)
        frontend.state.listener.close()


class TakesAnySetting(Lines):
    @hookimpl
    def frontend_initialize(self, frontend):
        frontend.addresses = [Address("127.0.0.1", 0)]


class StumblesOverSettings(Lines):
    def check(self, frontend):
        int(frontend.settings.get("port", "0"))


class LooksWhenItStarts(Lines):
    @hookimpl
    def frontend_initialize(self, frontend):
        pass

    @hookimpl
    async def frontend_start(self, frontend):
        Lines.frontend_initialize(self, frontend)
        await super().frontend_start(frontend)


class HasAShortLimit(Lines):
    limit = 2**16


class DropsEmptyOnes(Lines):
    async def infer(self, frontend, asked):
        return await super().infer(frontend, asked) or None


class HangsUpOnErrors(Lines):
    async def answer(self, frontend, line):
        with frontend.admission.holding(len(line)):
            return {"values": await self.infer(frontend, json.loads(line))}

    async def serve(self, frontend, reader, writer):
        with contextlib.suppress(TritonError):
            await super().serve(frontend, reader, writer)


class SaysThatItFailed(Lines):
    def text(self, error):
        return "the request failed"


class ShowsATraceback(Lines):
    def text(self, error):
        return f"Traceback (most recent call last): {error}"


class OneRequestAtATime(Lines):
    def __init__(self):
        self.turn = asyncio.Lock()

    async def answer(self, frontend, line):
        async with self.turn:
            return await super().answer(frontend, line)


class KeepsTheQuestionInItself(Lines):
    def __init__(self):
        self.count = itertools.count()
        self.another = asyncio.Event()

    async def infer(self, frontend, asked):
        self.asked = asked
        if next(self.count) == 0:
            await asyncio.wait_for(self.another.wait(), DEADLINE_S / 10)
        self.another.set()
        return await super().infer(frontend, self.asked)


class OneClientAtATime(Lines):
    """Reads a whole request before it accepts the next connection."""

    def __init__(self):
        self.turn = asyncio.Lock()

    async def serve(self, frontend, reader, writer):
        async with self.turn:
            await super().serve(frontend, reader, writer)


class HoldsForGood(Lines):
    async def answer(self, frontend, line):
        try:
            frontend.admission.hold(len(line))
            values = await self.infer(frontend, json.loads(line))
            frontend.admission.release(len(line))
            return {"values": values}
        except TritonError as error:
            return {"error": str(error)}


class DropsWhatIsUnderWay(Lines):
    def refuse(self, frontend):
        super().refuse(frontend)
        for task in frontend.state.connections:
            task.cancel()


class WaitsForItsClients(Lines):
    async def close(self, frontend):
        while frontend.state.connections:
            await asyncio.wait(frontend.state.connections)


class TriesForGood(WaitsForItsClients):
    async def infer(self, frontend, asked):
        give_up = time.monotonic() + 2 * PATIENCE_S
        while time.monotonic() < give_up:
            try:
                return await super().infer(frontend, asked)
            except TritonError as error:
                if error.code is not ErrorCode.UNAVAILABLE:
                    raise
            await asyncio.sleep(0.01)
        return []


class GoesOnListening(Lines):
    @hookimpl
    async def frontend_stop(self, frontend):
        await frontend.drained()
        KEPT.append(frontend.state.listener.sockets[0].dup())
        await self.close(frontend)
        self.refuse(frontend)


KEPT = []


class OneStateForAll(Lines):
    @hookimpl
    async def frontend_start(self, frontend):
        await super().frontend_start(frontend)
        self.listener = frontend.state.listener
        self.address = getattr(self, "address", None) or frontend.addresses
        frontend.addresses = self.address


class LeavesASocket(Lines):
    async def close(self, frontend):
        KEPT.append(socket.socket())
        await super().close(frontend)


class CannotStop(Lines):
    async def close(self, frontend):
        await super().close(frontend)
        raise Internal("no such thing as an end")


class Prints(Lines):
    async def infer(self, frontend, asked):
        print("asked")
        return await super().infer(frontend, asked)


class SetsATimeoutForAll(Lines):
    @hookimpl
    async def frontend_start(self, frontend):
        await super().frontend_start(frontend)
        socket.setdefaulttimeout((socket.getdefaulttimeout() or 600) + 60)


ALL = "wrong_settings_are_refused_with_words"
WRONG = [
    (TellsNothing, "it_tells_where_it_listens", "set no frontend.addresses", "set Address("),
    (TellsThePortThatItWanted, "it_tells_where_it_listens", "told the port 0", "set Address("),
    (TellsTuples, "it_tells_where_it_listens", "does not listen on 127.0.0.1:", "listen before you return"),
    (TakesAnySetting, ALL, "took {'port': 'many'}", "raise InvalidArg"),
    (StumblesOverSettings, ALL, "ValueError", "with the setting"),
    (LooksWhenItStarts, ALL, "after models had been loaded", "in frontend_initialize"),
    (HasAShortLimit, "it_answers", "raised", "read the whole body"),
    (DropsEmptyOnes, "it_answers", "raised TypeError", "none and many"),
    (HangsUpOnErrors, "an_unknown_model_is_told", "hung up", "catch TritonError"),
    (SaysThatItFailed, "an_error_of_a_model_is_told", "the request failed", "send its text"),
    (ShowsATraceback, "an_error_of_a_model_is_told", "showed a traceback", "send its text"),
    (OneRequestAtATime, "requests_do_not_wait_for_each_other", "let a request wait", "hold no lock"),
    (KeepsTheQuestionInItself, "many_clients_get_their_own_answers", "while others asked", "of its task"),
    (OneClientAtATime, "odd_clients_hold_up_nobody", "did not answer a client", "in a task of"),
    (HoldsForGood, "what_is_held_is_given_back", "still holds", "in a finally"),
    (
        DropsWhatIsUnderWay,
        "requests_under_way_are_answered_at_the_end",
        "hung up",
        "close connections behind it",
    ),
    (WaitsForItsClients, "odd_clients_hold_up_nobody", "does not stop", "end that task with"),
    (TriesForGood, "it_stops_although_a_request_is_not_answered", "does not stop", "without a limit"),
    (GoesOnListening, "nobody_gets_in_after_the_end", "still listens on", "before the first await"),
    (OneStateForAll, "two_servers_live_in_one_process", "one address of two servers", "in frontend.state"),
    (LeavesASocket, "nothing_grows_with_the_number_of_servers", "file descriptors", "close sockets"),
    (CannotStop, "nobody_gets_in_after_the_end", "no such thing as an end", "close the sockets"),
    (Prints, "nothing_is_printed", "wrote 'asked", "logging.getLogger"),
    (SetsATimeoutForAll, "the_process_stays_as_it_was", "changed the timeout of sockets", "your library"),
]
TAKES_ITS_TIME = {OneRequestAtATime, OneClientAtATime, HoldsForGood, WaitsForItsClients, TriesForGood}
CHECKS = [name for name, _ in rules_of(FrontendConformance)]


@pytest.fixture
def little_patience(monkeypatch):
    monkeypatch.setattr("tritonpy_sdk.testing.traces._GRACE_S", 0.0)
    timeout = socket.getdefaulttimeout()
    yield
    socket.setdefaulttimeout(timeout)
    while KEPT:
        KEPT.pop().close()


def run(plugin, check):
    class Suite(
        FrontendConformance, frontend=plugin(), settings={"port": "0"}, wrong_settings=[{"port": "many"}]
    ):
        def ask(self, addresses, model, values):
            line = json.dumps({"model": model, "values": values}).encode() + b"\n"
            with socket.create_connection(addresses[0][:2], timeout=DEADLINE_S) as client:
                client.sendall(line)
                answered = client.makefile().readline()
            if not answered:
                raise ConnectionError("it hung up")
            answer = json.loads(answered)
            if "error" in answer:
                raise RuntimeError(answer["error"])
            return answer["values"]

    getattr(Suite(), check)()


@pytest.mark.parametrize("check", CHECKS)
def test_right_frontend_passes(check):
    run(Lines, check)


@pytest.mark.parametrize(
    ("plugin", "check", "did", "remedy"), WRONG, ids=lambda each: getattr(each, "__name__", "")
)
def test_wrong_frontend_is_named_with_what_to_do(plugin, check, did, remedy, little_patience, monkeypatch):
    if plugin in TAKES_ITS_TIME:
        monkeypatch.setattr("tritonpy_sdk.testing.frontend_conformance._PATIENCE_S", PATIENCE_S)
    with pytest.raises(PluginFault) as caught:
        run(plugin, f"test_{check}")

    assert did in caught.value.did
    assert remedy in caught.value.rule.remedy


def test_every_check_of_the_kit_can_fail():
    assert {f"test_{check}" for _, check, _, _ in WRONG} == set(CHECKS)


def test_signals_are_not_touched_by_a_kit():
    handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    run(Lines, "test_it_answers")

    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == handlers
