"""One worker from its start to its end, whose other end the test plays, in virtual time."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tritonpy.errors import ErrorCode, Internal, TritonError
from tritonpy.ipc import frame
from tritonpy.ipc.frame import Message
from tritonpy.workers.in_flight import InFlight, UnansweredWatch

from ..simulator.virtual_loop import turns
from .hand_driven import Workers, played


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Workers:
    return Workers(monkeypatch)


def now() -> float:
    return asyncio.get_running_loop().time()


@played
async def test_start_is_over_when_the_program_says_so(workers: Workers) -> None:
    worker = await workers.start()
    starting = asyncio.create_task(worker.started(30, "late"))
    await turns()
    assert not starting.done()

    workers.programs[0].say(frame.STARTED)
    await starting

    assert (worker.is_connected, worker.pid) == (True, workers.programs[0].pid)


@played
async def test_start_that_takes_too_long_is_told_in_the_words_given(workers: Workers) -> None:
    worker = await workers.start()
    began = now()

    with pytest.raises(Internal, match="the words"):
        await worker.started(30, "the words")

    assert now() - began == pytest.approx(30, abs=0.1)


@played
async def test_program_that_ends_before_it_has_started_is_told_with_its_exit_code(workers: Workers) -> None:
    worker = await workers.start()
    starting = asyncio.create_task(worker.started(30, "late"))
    await turns()

    await workers.programs[0].end(3)

    with pytest.raises(Internal, match=r"Stub process 'm_0' is not healthy\. It exited with code 3"):
        await starting
    with pytest.raises(Internal, match="It exited with code 3"):  # and so is whatever is asked later
        await worker.ask(frame.INITIALIZE)


@played
async def test_program_that_cannot_be_started_is_told_as_an_error_of_the_instance(workers: Workers) -> None:
    workers.error = FileNotFoundError(2, "No such file", "python9")

    with pytest.raises(Internal, match=r"cannot start the worker of instance 'm_0': .*No such file"):
        await workers.start()


@played
async def test_questions_are_answered_or_refused(workers: Workers, caplog: pytest.LogCaptureFixture) -> None:
    worker = await workers.start()
    [program] = workers.programs

    asking = asyncio.create_task(worker.ask(frame.COMPLETE))
    await turns()
    assert program.kinds() == [frame.COMPLETE]
    program.say(frame.COMPLETED, "{}")
    assert (await asking)[2] == "{}"

    asking = asyncio.create_task(worker.ask(frame.INITIALIZE, "{}"))
    await turns()
    program.say(frame.FAILED, int(ErrorCode.INVALID_ARG), "no\nsuch layer", "Traceback: deep")
    with pytest.raises(TritonError, match="such layer") as refused:
        await asking
    assert refused.value.code is ErrorCode.INVALID_ARG
    await turns()
    assert [record.message for record in caplog.records] == ["instance 'm_0' failed: no"]
    assert caplog.records[0].exc_text == "Traceback: deep"


@played
async def test_question_that_is_not_answered_in_time_says_how_long_it_waited(workers: Workers) -> None:
    worker = await workers.start()

    with pytest.raises(Internal, match="the worker of instance 'm_0' did not answer within 5 s"):
        await worker.ask(frame.COMPLETE, timeout_s=5)
    with pytest.raises(Internal, match="too late"):
        await worker.ask(frame.COMPLETE, timeout_s=5, late="too late")


@played
async def test_probes_at_the_same_time_are_one_question(workers: Workers) -> None:
    worker = await workers.start()
    [program] = workers.programs

    probes = [asyncio.create_task(worker.probe(5)) for _ in range(3)]
    await turns()
    assert program.kinds() == [frame.PROBE]
    program.say(frame.PROBED, True, None)

    assert await asyncio.gather(*probes) == [True] * 3


@played
async def test_probe_fails_with_an_exception_with_silence_and_with_the_worker(
    workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await workers.start()
    [program] = workers.programs

    probe = asyncio.create_task(worker.probe(5))
    await turns()
    program.say(frame.PROBED, False, "KeyError: 'x'")
    assert not await probe
    assert not await worker.probe(5)
    probe = asyncio.create_task(worker.probe(5))
    await turns()
    await program.end(1)
    assert not await probe

    assert [record.message for record in caplog.records] == [
        "instance 'm_0' failed to say whether it is ready: KeyError: 'x'",
        "instance 'm_0' did not say within 5 s whether it is ready",
    ]


@played
async def test_closing_asks_to_finalize_and_waits_for_the_end(
    workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await workers.start()
    [program] = workers.programs

    closing = asyncio.create_task(worker.close())
    await turns()
    assert program.kinds() == [frame.FINALIZE]
    program.say(frame.FINALIZED, "ValueError: open")
    await turns()
    assert not closing.done()
    await program.end(0)

    await closing
    assert not program.was_killed
    assert [record.message for record in caplog.records] == [
        "finalize of instance 'm_0' failed: ValueError: open"
    ]


@pytest.mark.parametrize("has_finalized", [False, True])
@played
async def test_worker_that_does_not_go_is_killed(
    workers: Workers, caplog: pytest.LogCaptureFixture, has_finalized: bool
) -> None:
    worker = await workers.start()
    [program] = workers.programs
    began = now()

    closing = asyncio.create_task(worker.close())
    await turns()
    if has_finalized:
        program.say(frame.FINALIZED, None)
    await closing

    assert program.was_killed
    assert now() - began == pytest.approx(30, abs=0.1)
    reason = "it did not exit" if has_finalized else "the worker of instance 'm_0' did not answer within 30 s"
    assert [record.message for record in caplog.records] == [f"worker of instance 'm_0' is killed: {reason}"]


@played
async def test_worker_whose_end_is_not_waited_for_is_killed(workers: Workers) -> None:
    worker = await workers.start()
    [program] = workers.programs

    closing = asyncio.create_task(worker.close())
    await turns()
    assert not program.was_killed
    closing.cancel()
    await asyncio.wait((closing,))

    assert program.was_killed


@played
async def test_instance_hears_once_of_a_death_and_only_of_one_that_was_not_wanted(workers: Workers) -> None:
    deaths: list[str] = []
    messages: list[Message] = []
    for number, is_wanted in enumerate((False, True)):
        worker = await workers.start()
        program = workers.programs[number]
        work = InFlight(UnansweredWatch(0, lambda request, age_s: None), worker.cancel_flags)
        worker.adopt("m_1", work, messages.append, lambda error: deaths.append(error.message))
        program.say(frame.RESCHEDULE, 7)
        if is_wanted:
            worker.kill()
        await program.end(-9)
        await turns()

    assert deaths == ["Stub process 'm_1' is not healthy. It was killed by signal 9 (SIGKILL)"]
    assert [(message[0], message[2]) for message in messages] == [(frame.RESCHEDULE, 7)] * 2


@played
async def test_last_words_are_logged_before_the_death_is_told(
    workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    worker = await workers.start()
    [program] = workers.programs
    work = InFlight(UnansweredWatch(0, lambda request, age_s: None), worker.cancel_flags)
    worker.adopt(
        "m_0", work, lambda message: None, lambda error: logging.getLogger("test").error("%s", error.message)
    )

    program.say(frame.LOG, 1, "careful", "r1", "model.py", 3, "")
    program.write(0, b"half a line")
    program.write(1, b"Fatal Python error\n")
    await program.end(-11)
    await asyncio.sleep(1)

    told = [(record.levelname, record.message) for record in caplog.records]
    assert told == [
        ("WARNING", "careful"),
        ("INFO", "half a line"),
        ("WARNING", "Fatal Python error"),
        ("ERROR", "Stub process 'm_0' is not healthy. It was killed by signal 11 (SIGSEGV)"),
    ]


@played
async def test_what_is_sent_to_a_worker_that_is_gone_is_dropped(workers: Workers) -> None:
    worker = await workers.start()
    await workers.programs[0].end(0)

    worker.send(frame.PROBE)

    assert not worker.is_connected


@played
async def test_death_is_told_to_who_waits_for_an_answer_and_then_to_nobody_else(workers: Workers) -> None:
    worker = await workers.start()
    deaths: list[str] = []
    work = InFlight(UnansweredWatch(0, lambda request, age_s: None), worker.cancel_flags)
    worker.adopt("m_0", work, lambda message: None, lambda error: deaths.append(error.message))

    asking = asyncio.create_task(worker.ask(frame.INITIALIZE, "{}"))
    await turns()
    await workers.programs[0].end(2)

    with pytest.raises(TritonError, match="It exited with code 2"):
        await asking
    await turns()
    assert deaths == []
