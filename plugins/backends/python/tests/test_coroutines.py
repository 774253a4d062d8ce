"""Models with `async def execute`."""

from __future__ import annotations

import pytest
from tritonpy.ipc import frame

PREFIX = "Failed to process the request(s) for model 'net_0_0', message: "


def test_an_async_execute_is_awaited(load_execute):
    worker = load_execute(
        """
        async def one(request):
            await asyncio.sleep(0.001)
            return answer(request.inputs()[0].as_numpy()[0])

        return list(await asyncio.gather(*map(one, requests)))
        """,
        is_async=True,
    )

    for _ in range(3):
        answers = worker.infer(worker.request(0, X=[1.0]), worker.request(1, X=[2.0]))
        assert [outputs["OUTPUT0"].tolist() for outputs in answers] == [[1], [2]]


def test_the_event_loop_stays_the_same_from_batch_to_batch(load_execute):
    worker = load_execute(
        """
        loops = self.loops = [*getattr(self, "loops", []), asyncio.get_running_loop()]
        return [answer(len(set(loops)))]
        """,
        is_async=True,
    )

    assert [worker.infer(worker.request())[0]["OUTPUT0"][0] for _ in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("exception", ["ValueError('boom')", "SystemExit('boom')"])
def test_an_exception_says_where_without_the_loop_s_own_lines(load_execute, exception):
    worker = load_execute(
        f"""
        if requests[0].parameters() != "{{}}": return [answer()]
        await asyncio.sleep(0); raise {exception}
        """,
        is_async=True,
    )

    code, text = worker.failure(worker.request())

    name = exception.partition("(")[0]
    assert code == 1
    assert text == f"{PREFIX}{name}: boom\n\nAt:\n  {worker.model_file}(16): execute\n"
    assert worker.infer(worker.request(parameters={"a": 1}))[0]["OUTPUT0"].tolist() == [1]


@pytest.mark.parametrize("decoupled", [False, True])
def test_an_execute_that_is_cancelled_before_it_begins_is_answered(load_execute, decoupled):
    worker = load_execute(
        """
        def cancel():
            for task in asyncio.all_tasks(loop):
                task.cancel()

        create, loop = asyncio.BaseEventLoop.create_task, asyncio.get_running_loop()

        def create_task(*args, **named):
            loop.call_soon(cancel)  # it comes before the first step of a task that is made now
            del loop.create_task
            return create(loop, *args, **named)

        loop.create_task = create_task
        requests[0].get_response_sender().send(answer(), FINAL)
        """,
        is_async=True,
        decoupled=decoupled,
    )

    worker.start(worker.request(4))
    assert {worker.receive()[0], worker.receive()[0]} == {frame.EXECUTED, frame.RESPONSE}
    worker.start(worker.request(5))
    if decoupled:
        messages = sorted([worker.receive(), worker.receive()])
        assert messages[1][2] == 5
        code, text = messages[1][3][2]
    else:
        _, _, responses, (code, text) = worker.expect(frame.EXECUTED)
        assert responses is None
    assert code == 1
    assert text.startswith(f"{PREFIX}CancelledError")


def test_a_decoupled_model_takes_the_next_batch_while_its_coroutines_run(load_execute):
    worker = load_execute(
        """
        sender = requests[0].get_response_sender()
        if not hasattr(self, "gate"):
            self.gate = asyncio.Event()
            await self.gate.wait()  # for the second batch
        self.gate.set()
        sender.send(answer(), FINAL)
        """,
        is_async=True,
        decoupled=True,
    )

    worker.start(worker.request(4))
    assert worker.expect(frame.EXECUTED)[2:] == (None, None)
    worker.start(worker.request(5))
    messages = [worker.receive() for _ in range(3)]

    assert [message[2] for message in messages if message[0] == frame.RESPONSE] == [5, 4]


def test_tasks_of_a_decoupled_model_go_on_after_execute(load_execute):
    worker = load_execute(
        """
        async def run(sender):
            for value in range(3):
                await asyncio.sleep(0.001)
                sender.send(answer(value), FINAL if value == 2 else 0)

        self.tasks = [asyncio.create_task(run(request.get_response_sender())) for request in requests]
        """,
        is_async=True,
        decoupled=True,
    )

    worker.start(worker.request(4))
    messages = [worker.receive() for _ in range(4)]

    answers = [message for message in messages if message[0] == frame.RESPONSE]
    assert [(worker.arrays(answer[3])["OUTPUT0"][0], answer[4]) for answer in answers] == [
        (0, False),
        (1, False),
        (2, True),
    ]


def test_an_exception_in_a_decoupled_coroutine_answers_what_is_unanswered(load_execute):
    worker = load_execute(
        """
        requests[0].get_response_sender().send(answer(), FINAL)
        await asyncio.sleep(0.001); raise ValueError("boom")
        """,
        is_async=True,
        decoupled=True,
    )

    worker.start(worker.request(4), worker.request(5))
    messages = sorted(worker.receive() for _ in range(3))

    assert messages[0][4:] == (None, None)
    assert [(message[2], message[4]) for message in messages[1:]] == [(4, True), (5, True)]
    code, text = messages[2][3][2]
    assert code == 1
    assert text == f"{PREFIX}ValueError: boom\n\nAt:\n  {worker.model_file}(16): execute\n"


def test_a_decoupled_coroutine_must_return_none(load_execute):
    worker = load_execute("return [answer()]", is_async=True, decoupled=True)

    worker.start(worker.request(4))
    messages = sorted([worker.receive(), worker.receive()])

    assert messages[1][2] == 4
    assert messages[1][3][2] == (
        1,
        f"{PREFIX}Python model 'net_0_0' is using the decoupled mode and the execute function "
        f"must return None.",
    )


def test_a_task_that_exits_does_not_end_the_loop(load_execute):
    worker = load_execute(
        """
        async def leave(): raise SystemExit
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        self.task = asyncio.create_task(leave())
        await asyncio.sleep(0.001)
        requests[0].get_response_sender().send(answer(), FINAL)
        """,
        is_async=True,
        decoupled=True,
    )

    for slot in (4, 5):
        worker.start(worker.request(slot))
        answers = sorted([worker.receive(), worker.receive()])
        assert answers[1][2] == slot
        assert answers[1][3][2] is None


def test_a_forgotten_request_of_a_coroutine_is_answered_with_an_error(load_execute):
    worker = load_execute("await asyncio.sleep(0.001)", is_async=True, decoupled=True)

    worker.start(worker.request(4, id="rid"))
    messages = sorted([worker.receive(), worker.receive()])

    text = "[request id: rid] model 'net' dropped the request without a final response"
    assert messages[1][2:5] == (4, ([], None, (1, text)), True)


def test_tasks_that_execute_leaves_behind_go_on(load_execute):
    worker = load_execute(
        """
        async def run(sender):
            await asyncio.sleep(0.001)
            sender.send(answer(7))

        self.tasks = [asyncio.create_task(run(request.get_response_sender())) for request in requests]
        """,
        is_async=True,
    )

    worker.start(worker.request(4), worker.request(5))
    messages = [worker.receive() for _ in range(3)]

    answers = [message for message in messages if message[0] == frame.RESPONSE]
    assert [(answer[2], answer[4]) for answer in answers] == [(4, True), (5, True)]
    assert worker.arrays(answers[0][3])["OUTPUT0"].tolist() == [7]


def test_the_event_loop_runs_while_nothing_executes_and_in_finalize(load_execute):
    worker = load_execute(
        """
        self.loop, self.is_set = asyncio.get_running_loop(), asyncio.Event()
        def later(): time.sleep(0.001); self.loop.call_soon_threadsafe(finish)
        sender = requests[0].get_response_sender()
        def finish(): sender.send(answer()); self.is_set.set()
        def finalize():
            asyncio.run_coroutine_threadsafe(self.is_set.wait(), self.loop).result()
            pb_utils.Logger.log_info("it was set")
        self.finalize = finalize
        threading.Thread(target=later).start()
        """,
        is_async=True,
    )

    worker.start(worker.request(4))
    assert {worker.receive()[0], worker.receive()[0]} == {frame.EXECUTED, frame.RESPONSE}
    assert worker.ask(frame.FINALIZE)[2] is None
    assert [text for _, text, _ in worker.logs] == ["it was set"]


def test_what_a_model_left_behind_is_cancelled_when_it_has_been_finalized(load_execute):
    worker = load_execute(
        """
        async def run():
            try:
                await asyncio.Event().wait()
            finally:
                pb_utils.Logger.log_info(f"finalized: {self.is_final}")

        def finalize(): self.is_final = True
        self.is_final, self.finalize, self.task = False, finalize, asyncio.create_task(run())
        await asyncio.sleep(0)
        return [answer()]
        """,
        is_async=True,
    )

    assert worker.infer(worker.request())[0]["OUTPUT0"].tolist() == [1]
    assert worker.ask(frame.FINALIZE)[2] is None
    assert [text for _, text, _ in worker.logs] == ["finalized: True"]


def test_calls_for_many_responses_wait_side_by_side_though_each_takes_its_own_with_a_plain_for(load_execute):
    worker = load_execute(
        """
        async def call():
            request = pb_utils.InferenceRequest(model_name="m", inputs=[], requested_output_names=["Y"])
            responses = await request.async_exec(decoupled=True)
            return [response.has_error() for response in responses]

        calls = []
        for _ in range(3):
            calls.append(asyncio.create_task(call()))
            for _ in range(9): await asyncio.sleep(0)
        return [answer(sum(map(len, await asyncio.gather(*calls))))]
        """,
        is_async=True,
    )

    batch = worker.start(worker.request())
    numbers = [worker.expect(frame.CALL)[0] for _ in range(3)]
    for is_final in (False, True):
        for number in numbers:
            worker.send(frame.CALLED, number, ([], None, None), is_final)
    answered, _, responses, error = worker.expect(frame.EXECUTED)

    assert (answered, error) == (batch, None)
    assert worker.arrays(responses[0])["OUTPUT0"].tolist() == [6]
