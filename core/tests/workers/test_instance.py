"""An instance that feeds, supervises and restarts its workers, which the test plays; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tritonpy.errors import Internal, InvalidArg
from tritonpy.handles import Backend, Model
from tritonpy.ipc import frame
from tritonpy.ipc.frame import Message
from tritonpy.model.execution import WarmUp
from tritonpy.model.placement import Slot
from tritonpy.request import InferRequest
from tritonpy.workers.in_flight import UnansweredWatch
from tritonpy.workers.instance import ProcessInstance, WorkerEvents
from tritonpy.workers.worker_process import WorkerProcess

from ..simulator.virtual_loop import turns
from .hand_driven import Asked, FakeProgram, Workers, answer, batch_of, executed, played


class Bench:
    """An instance and everybody around it.

    Attributes:
        told: what its scheduler and its model's owner have heard.
        is_probed: what workers say at their initialisation.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.workers = Workers(monkeypatch)
        self.told: list[str] = []
        self.rescheduled: list[InferRequest] = []
        self.is_probed = False
        self.start_errors: list[Exception] = []
        self.start_times: list[float] = []
        self.instances: list[ProcessInstance] = []

    def instance(self, concurrency: int = 1, warm_up: WarmUp | None = None) -> ProcessInstance:
        model = Model("m", 1, {"name": "m", "max_batch_size": 2}, Path("/"), Backend("b"))
        made = ProcessInstance(
            self._start_worker,
            Slot("m_0", 0, "KIND_CPU", 0),
            model,
            concurrency,
            events=WorkerEvents(
                lambda error: self.told.append(f"down: {error.message}"),
                lambda: self.told.append("restarted"),
                on_death=lambda instance, error: self.told.append("died"),
            ),
            on_idle=lambda: self.told.append("idle"),
            on_reschedule=self.rescheduled.append,
            unanswered=UnansweredWatch(0, lambda request, age_s: None),
            warm_up=warm_up,
        )
        self.instances.append(made)
        return made

    async def close(self) -> None:
        """Close all instances, and end what is left."""
        for instance in self.instances:
            await instance.close(Internal("the test is over"))
        await self.workers.close()

    async def opened(self, **more: Any) -> ProcessInstance:
        made = self.instance(**more)
        await made.open()
        return made

    @property
    def program(self) -> FakeProgram:
        """The newest worker's."""
        return self.workers.programs[-1]

    async def _start_worker(
        self, worker: WorkerProcess | None, hand_over: Callable[[WorkerProcess], None]
    ) -> WorkerProcess:
        self.start_times.append(asyncio.get_running_loop().time())
        if self.start_errors:
            raise self.start_errors.pop(0)
        worker = worker or await self.workers.start()
        hand_over(worker)
        worker.is_probed = self.is_probed
        return worker


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


@played
async def test_batch_travels_with_a_slot_for_each_request_and_is_answered(bench: Bench) -> None:
    instance = await bench.opened()
    one, other = Asked(7), Asked(8)

    instance.submit(batch_of(one, other))
    [(kind, batch, requests)] = bench.program.received()
    assert kind == frame.EXECUTE
    assert len({request[0] for request in requests}) == 2  # slots
    assert instance.depth == 1
    bench.program.say(*executed(batch, answer(70), answer(80)))

    assert (one.value, other.value) == (70, 80)
    assert instance.depth == 0
    assert bench.told == ["idle"]


@played
async def test_batch_that_failed_is_answered_with_the_models_error(bench: Bench) -> None:
    instance = await bench.opened()
    asked = Asked()

    instance.submit(batch_of(asked))
    bench.program.say(*executed(1, error=(int(InvalidArg("").code), "not like this")))

    assert asked.error == "not like this"


@played
async def test_answers_of_another_number_fail_the_batch_and_nothing_else(bench: Bench) -> None:
    instance = await bench.opened()
    one, other, next_one = Asked(), Asked(), Asked()

    instance.submit(batch_of(one, other))
    bench.program.say(*executed(1, answer(1)))
    instance.submit(batch_of(next_one))
    bench.program.say(*executed(2, answer(5)))

    assert one.error == other.error == "1 responses for a batch of 2 requests"
    assert next_one.value == 5


@pytest.mark.parametrize(
    "sent",
    [executed(1, ([], None, (99, "no such code"))), executed(1, error=(99, "no such code"))],
)
@played
async def test_answer_that_cannot_be_read_fails_the_batch_and_nothing_else(
    bench: Bench, sent: Message
) -> None:
    instance = await bench.opened()
    one, next_one = Asked(), Asked()

    instance.submit(batch_of(one))
    bench.program.say(*sent)
    instance.submit(batch_of(next_one))
    bench.program.say(*executed(2, answer(5)))

    assert one.error == "instance 'm_0' answered with what cannot be read: 99 is not a valid ErrorCode"
    assert next_one.value == 5


@played
async def test_model_that_answers_later_keeps_the_slot_until_its_final_response(bench: Bench) -> None:
    instance = await bench.opened()
    slow, quick = Asked(), Asked()

    instance.submit(batch_of(slow))
    [(_, _, [(slot, *_)])] = bench.program.received()
    bench.program.say(*executed(1))
    draining = asyncio.create_task(instance.drain())
    await turns()
    instance.submit(batch_of(quick))
    [(_, _, [(other_slot, *_)])] = bench.program.received()
    assert other_slot != slot
    bench.program.say(*executed(2, answer(2)))
    bench.program.say(frame.RESPONSE, slot, answer(1), False, None)
    await turns()
    assert not draining.done()
    bench.program.say(frame.RESPONSE, slot, None, True, None)
    await draining

    assert [response.outputs[0].numpy()[0] for response in slow.responses if response is not None] == [1]
    assert slow.is_over
    assert quick.value == 2
    bench.program.say(frame.RESPONSE, slot, answer(9), False, None)  # of a request that is over: dropped


@played
async def test_death_fails_what_was_begun_and_the_successor_gets_the_rest(bench: Bench) -> None:
    instance = await bench.opened()
    warm = Asked()
    instance.submit(batch_of(warm))
    bench.program.say(*executed(1, answer(0)))
    begun, waiting, late = Asked(), Asked(4), Asked(5)
    instance.submit(batch_of(begun))
    instance.submit(batch_of(waiting))

    await bench.program.end(-9)
    instance.submit(batch_of(late))
    await turns()

    assert begun.error == (
        "Stub process 'm_0' is not healthy. It was killed by signal 9 (SIGKILL) "
        "while it executed this request"
    )
    assert len(bench.workers.programs) == 2
    [(_, first, _), (_, second, _)] = bench.program.received()
    bench.program.say(*executed(first, answer(40)))
    bench.program.say(*executed(second, answer(50)))
    assert (waiting.value, late.value) == (40, 50)
    assert instance.depth == 0
    assert bench.told.count("died") == bench.told.count("restarted") == 1


@played
async def test_batch_of_a_sequence_is_not_given_to_a_worker_that_knows_nothing_of_it(bench: Bench) -> None:
    class Sequences:
        def batch_finished(self, execution: object) -> None: ...

        def stand_in(self, request: object) -> None: ...

    instance = await bench.opened()
    begun, waiting, others = Asked(), Asked(), [Asked(request_id="a"), Asked(request_id="b")]
    instance.submit(batch_of(begun))
    instance.submit(batch_of(others[0]))
    instance.submit(batch_of(waiting, owner=Sequences()))
    instance.submit(batch_of(others[1]))

    await bench.program.end(1)
    await turns()

    assert waiting.error == "Stub process 'm_0' is not healthy. It exited with code 1"
    assert instance.depth == 2
    assert [requests[0][1] for _, _, requests in bench.program.received()] == ["a", "b"]


@played
async def test_request_answered_later_fails_with_its_worker(bench: Bench) -> None:
    instance = await bench.opened()
    asked = Asked()
    instance.submit(batch_of(asked))
    bench.program.say(*executed(1))

    await bench.program.end(0)

    assert asked.error == (
        "Stub process 'm_0' is not healthy. It exited with code 0 before this request had its final response"
    )


@played
async def test_a_worker_that_cannot_be_started_for_hours_is_tried_again_all_the_same(
    bench: Bench,
) -> None:
    await bench.opened()
    bench.start_errors = [Internal("not yet")] * 2000

    await bench.program.end(1)
    await asyncio.sleep(2000 * 30)

    assert bench.start_errors == []
    assert round(bench.start_times[-1] - bench.start_times[-2]) == 30


@played
async def test_pauses_between_starts_grow_until_a_batch_is_completed(bench: Bench) -> None:
    instance = await bench.opened()
    waiting = Asked()
    bench.start_errors = [Internal(f"start {number} failed") for number in range(4)]

    await bench.program.end(1)
    instance.submit(batch_of(waiting))
    await asyncio.sleep(20)

    _, *restarts = bench.start_times
    pauses = [later - earlier for earlier, later in pairwise(restarts)]
    assert [round(pause) for pause in pauses] == [1, 2, 4, 8]
    assert waiting.error == "start 1 failed"  # it came after the first attempt
    assert [each for each in bench.told if each.startswith("down")] == [
        f"down: start {number} failed" for number in range(4)
    ]
    instance.submit(batch_of(Asked()))
    bench.program.say(*executed(1, answer(1)))
    restarted = len(bench.start_times)
    await bench.program.end(1)  # and now the first restart is at once again
    await turns()
    assert len(bench.start_times) == restarted + 1


@played
async def test_cancellation_is_a_byte_of_shared_memory_until_the_slot_is_free(bench: Bench) -> None:
    instance = await bench.opened()
    asked = Asked()
    instance.submit(batch_of(asked))
    [(_, batch, [(slot, *_)])] = bench.program.received()
    flags = bench.program.worker.cancel_flags

    asked.request.cancel()
    assert flags[slot] == 1
    bench.program.say(*executed(batch, answer(1)))

    assert flags[slot] == 0


@played
async def test_instance_is_not_ready_while_open_requests_leave_no_room_for_a_batch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tritonpy.workers.in_flight.CONTROL_SLOTS", 3)
    instance = await bench.opened()
    asked = [Asked(), Asked()]
    instance.submit(batch_of(*asked))
    [(_, _, requests)] = bench.program.received()
    assert not instance.is_ready  # one slot is left, and a batch may need two
    bench.program.say(*executed(1))
    assert not instance.is_ready

    bench.program.say(frame.RESPONSE, requests[0][0], answer(1), True, None)

    assert instance.is_ready
    assert bench.told[-1] == "idle"


@played
async def test_request_to_be_executed_again_goes_back_to_its_scheduler(bench: Bench) -> None:
    instance = await bench.opened()
    asked = Asked()
    execution = batch_of(asked)
    instance.submit(execution)
    [(_, _, [(slot, *_)])] = bench.program.received()

    bench.program.say(frame.RESCHEDULE, slot)
    bench.program.say(*executed(1))

    assert bench.rescheduled == [asked.request]
    assert execution.rescheduled_count == 1
    assert asked.responses == []
    assert asked.responses == []


@played
async def test_closing_ends_a_restart_and_answers_what_waits_for_it(bench: Bench) -> None:
    instance = await bench.opened()
    bench.start_errors = [Internal("no")] * 100
    await bench.program.end(1)
    await asyncio.sleep(0.5)
    waiting = Asked()
    instance.submit(batch_of(waiting))

    await instance.close()

    assert waiting.error == "instance 'm_0' was closed before it answered"
    assert (instance.depth, instance.is_ready, instance.pid) == (0, False, 0)


@played
async def test_closing_with_an_error_answers_what_runs_and_kills_the_worker(bench: Bench) -> None:
    instance = await bench.opened()
    running, left_open = Asked(), Asked()
    instance.submit(batch_of(left_open))
    bench.program.say(*executed(1))
    instance.submit(batch_of(running))

    await instance.close(Internal("the server stops"))

    assert running.error == left_open.error == "the server stops"
    assert bench.program.was_killed
    left_open.request.cancel()  # and nothing comes of it


@played
async def test_worker_is_warmed_up_before_the_instance_is_ready_and_given_up_if_it_fails(
    bench: Bench,
) -> None:
    async def warm_up(instance: Any) -> None:
        asked = Asked()
        instance.submit(batch_of(asked))
        assert not instance.is_ready
        bench.program.say(*executed(bench.program.received()[-1][1], answer(len(bench.workers.programs))))
        if asked.value == 2:
            raise Internal("not warm")

    instance = await bench.opened(warm_up=warm_up)
    assert instance.is_ready

    second = bench.instance(warm_up=warm_up)
    opening = asyncio.create_task(second.open())
    await turns()
    await turns()
    assert bench.program.kinds() == [frame.FINALIZE]
    await bench.program.end(0)
    with pytest.raises(Internal, match="not warm"):
        await opening
    assert not second.is_ready


@played
async def test_worker_that_ends_in_its_warmup_fails_the_start(bench: Bench) -> None:
    asked = [Asked(), Asked()]

    async def warm_up(instance: Any) -> None:
        instance.submit(batch_of(asked[0]))
        await bench.program.end(-11)
        instance.submit(batch_of(asked[1]))
        raise Internal(asked[1].error)

    with pytest.raises(Internal, match="instance 'm_0': its worker has ended while it was warmed up"):
        await bench.opened(warm_up=warm_up)
    assert "SIGSEGV" in asked[0].error


@played
async def test_only_an_idle_model_that_can_be_asked_is_probed(bench: Bench) -> None:
    instance = await bench.opened()
    assert await instance.probe()
    assert bench.program.kinds() == []
    bench.program.worker.is_probed = True

    probing = asyncio.create_task(instance.probe())
    await turns()
    assert bench.program.kinds() == [frame.PROBE]
    bench.program.say(frame.PROBED, False, None)
    assert not await probing
    instance.submit(batch_of(Asked()))
    assert await instance.probe()  # busy: it is not disturbed


@played
async def test_batches_that_end_their_workers_one_after_the_other_hold_up_no_restart(bench: Bench) -> None:
    instance = await bench.opened()
    instance.submit(batch_of(Asked()))
    bench.program.say(*executed(1, answer(1)))
    began = asyncio.get_running_loop().time()

    for _ in range(3):
        poison = Asked()
        instance.submit(batch_of(poison))
        await bench.program.end(-6)
        await turns()
        assert "was killed by signal 6 (SIGABRT) while it executed this request" in poison.error

    assert len(bench.workers.programs) == 4
    assert asyncio.get_running_loop().time() - began < 0.1
    assert not any(each.startswith("down") for each in bench.told)
    assert instance.is_ready


@played
async def test_restart_whose_worker_ends_in_its_warmup_is_tried_again(bench: Bench) -> None:
    async def warm_up(instance: Any) -> None:
        if len(bench.workers.programs) == 2:  # the first and the third are well
            await bench.program.end(-9)
        asked = Asked()
        instance.submit(batch_of(asked))
        if not asked.responses:
            bench.program.say(*executed(bench.program.received()[-1][1], answer(1)))
        if asked.error:
            raise Internal(asked.error)

    instance = await bench.opened(warm_up=warm_up)
    await bench.program.end(-9)
    early = Asked()
    instance.submit(batch_of(early))
    await asyncio.sleep(20)

    assert len(bench.workers.programs) == 3
    assert "has ended while it was warmed up" in early.error
    late = Asked()
    instance.submit(batch_of(late))
    bench.program.say(*executed(bench.program.received()[-1][1], answer(9)))
    assert late.value == 9
    assert instance.depth == 0


@played
async def test_instance_comes_back_whatever_kept_the_system_from_starting_its_worker(bench: Bench) -> None:
    instance = await bench.opened()
    bench.start_errors = [RuntimeError("can't start new thread")]

    await bench.program.end(-9)
    await turns()
    assert not instance.is_ready
    await asyncio.sleep(20)

    assert instance.is_ready
    assert bench.told == ["died", "down: RuntimeError: can't start new thread", "restarted", "idle"]
