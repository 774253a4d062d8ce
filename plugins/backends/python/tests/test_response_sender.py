"""Answers by the response sender: decoupled models, and one answer by hand from any other."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from tritonpy.ipc import frame

PREFIX = "Failed to process the request(s) for model 'net_0_0', message: "
CLOSED = "Unable to send response. Response sender has been closed."
TWICE = "Unable to send response. Non-decoupled model cannot send more than one response."


def executed(worker):
    """The rest of EXECUTED: responses and error."""
    return worker.expect(frame.EXECUTED)[2:]


def values(response):
    """The slot, the answered value (None for none), the error and the final flag of a RESPONSE."""
    slot, outputs, error, final = response
    return slot, outputs["OUTPUT0"].tolist() if outputs else None, error, final


def test_a_decoupled_model_sends_any_number_of_responses(load_execute):
    worker = load_execute(
        """
        for request in requests:
            sender = request.get_response_sender()
            for value in request.inputs()[0].as_numpy():
                sender.send(answer(value))
            sender.send(flags=FINAL)
        """,
        decoupled=True,
    )

    worker.start(
        worker.request(4, X=np.array([1, 2], np.float32)), worker.request(6, X=np.array([], np.float32))
    )

    assert [values(worker.response()) for _ in range(4)] == [
        (4, [1], None, False),
        (4, [2], None, False),
        (4, None, None, True),
        (6, None, None, True),
    ]
    assert executed(worker) == (None, None)


def test_the_last_response_may_carry_the_final_flag(load_execute):
    worker = load_execute("requests[0].get_response_sender().send(answer(3), FINAL)", decoupled=True)

    worker.start(worker.request(4))

    assert values(worker.response()) == (4, [3], None, True)
    assert executed(worker) == (None, None)


def test_responses_come_from_other_threads_after_execute_has_returned(load_execute):
    worker = load_execute(
        """
        gate = threading.Event()

        def run(sender):
            gate.wait()
            for value in range(3):
                sender.send(answer(value), flags=FINAL if value == 2 else 0)

        for request in requests:
            threading.Thread(target=run, args=(request.get_response_sender(),)).start()
        gate.set()
        """,
        decoupled=True,
    )
    slots = [1, 2, 3, 4]

    for _ in range(5):
        worker.start(*[worker.request(slot) for slot in slots])
        messages = [worker.receive() for _ in range(3 * len(slots) + 1)]

        answered = {slot: [] for slot in slots}
        for message in messages:
            if message[0] == frame.RESPONSE:
                answered[message[2]].append((worker.arrays(message[3])["OUTPUT0"][0], message[4]))
        assert answered == {slot: [(0, False), (1, False), (2, True)] for slot in slots}


def test_a_large_response_of_a_thread_travels_through_shared_memory(load_execute):
    worker = load_execute(
        """
        def run(sender):
            array = np.arange(100_000, dtype=np.float32)
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", array)]), FINAL)

        threading.Thread(target=run, args=(requests[0].get_response_sender(),)).start()
        """,
        decoupled=True,
    )

    for _ in range(20):
        worker.start(worker.request())
        messages = [worker.receive(), worker.receive()]
        [response] = [message for message in messages if message[0] == frame.RESPONSE]
        assert (worker.arrays(response[3])["OUTPUT0"] == np.arange(100_000)).all()
        del messages, response
        gc.collect()

    assert len(worker.endpoint.peer._segments) == 1


def test_the_sender_drops_outputs_nobody_asked_for(load_execute):
    worker = load_execute(
        """
        tensors = [pb_utils.Tensor(name, np.ones(1)) for name in ("OUTPUT0", "B", "NOPE")]
        requests[0].get_response_sender().send(pb_utils.InferenceResponse(tensors), FINAL)
        """,
        decoupled=True,
        outputs={"OUTPUT0": "TYPE_FP64", "B": "TYPE_FP64"},
    )

    worker.start(worker.request(outputs=("B",)))

    _, outputs, _, _ = worker.response()
    assert list(outputs) == ["B"]


def test_an_error_may_be_sent(load_execute):
    worker = load_execute(
        """
        error = pb_utils.TritonError("bad", pb_utils.TritonError.NOT_FOUND)
        requests[0].get_response_sender().send(pb_utils.InferenceResponse(error=error), FINAL)
        """,
        decoupled=True,
    )

    worker.start(worker.request(4))

    assert values(worker.response()) == (4, None, (2, "bad"), True)


@pytest.mark.parametrize("asked", ["sender", "requests[0]"])
def test_a_sender_hears_of_a_cancellation(load_execute, asked):
    worker = load_execute(
        f"""
        sender = requests[0].get_response_sender()

        def run(requests):
            while not {asked}.is_cancelled():
                time.sleep(0.001)
            error = pb_utils.TritonError("stopped", pb_utils.TritonError.CANCELLED)
            sender.send(pb_utils.InferenceResponse(error=error), FINAL)
            pb_utils.Logger.log_info(str({asked}.is_cancelled()))  # the slot may be another request's by now

        if hasattr(self, "thread"):
            self.thread.join()
            return
        self.thread = threading.Thread(target=run, args=(requests,))
        self.thread.start()
        """,
        decoupled=True,
    )
    worker.start(worker.request(8))
    assert executed(worker) == (None, None)

    worker.cancel_flags[8] = 1

    assert values(worker.response()) == (8, None, (7, "stopped"), True)
    worker.start(worker.request(9))
    worker.receive()
    assert worker.logs == [(0, "False", "")]


SAYS = """
sender = requests[0].get_response_sender()
try:
    {body}
except Exception as exc:
    pb_utils.Logger.log_error(f"{{type(exc).__name__}}: {{exc}}")
"""


@pytest.mark.parametrize("decoupled", [True, False])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("sender.send(answer(), 7)", "Unable to send response. Unsupported flag provided."),
        (
            "sender.send()",
            "Inference Response object must be provided when the response flags is set to zero.",
        ),
        ("sender.send(answer(), FINAL); sender.send(flags=FINAL)", CLOSED),
    ],
)
def test_what_a_sender_refuses(load_execute, decoupled, body, message):
    worker = load_execute(SAYS.format(body=body), decoupled=decoupled)

    worker.start(worker.request())
    while worker.receive()[0] != frame.EXECUTED:
        pass

    assert worker.logs == [(2, f"TritonModelException: {message}", "")]


@pytest.mark.parametrize(
    ("decoupled", "body", "message"),
    [
        (True, "sender.send(answer(), FINAL); sender.send(answer())", CLOSED),
        (False, "sender.send(answer()); sender.send(answer(), FINAL)", TWICE),
        (False, "sender.send(answer(), FINAL); sender.send(answer(), FINAL)", TWICE),
    ],
)
def test_a_response_too_many_is_refused(load_execute, decoupled, body, message):
    worker = load_execute(SAYS.format(body=body), decoupled=decoupled)

    worker.start(worker.request(3))

    assert values(worker.response()) == (3, [1], None, True)
    assert executed(worker) == (None, None)
    assert worker.logs == [(2, f"TritonModelException: {message}", "")]


def test_a_model_that_is_not_decoupled_cannot_finish_without_a_response(load_execute):
    worker = load_execute("requests[0].get_response_sender().send(flags=FINAL)")

    code, text = worker.failure(worker.request())

    assert code == 1
    assert text.startswith(
        f"{PREFIX}TritonModelException: Unable to send response. Non-decoupled model cannot send complete "
        f"final before sending a response.\n\nAt:\n"
    )


def test_only_responses_can_be_sent(load_execute):
    worker = load_execute("requests[0].get_response_sender().send('x')", decoupled=True)

    _, text = worker.failure(worker.request())

    assert text.startswith(f"{PREFIX}TypeError: send: response must be an InferenceResponse, got str\n")


def test_an_output_that_cannot_be_sent_leaves_the_sender_open(load_execute):
    worker = load_execute(
        """
        sender = requests[0].get_response_sender()
        odd = type("Odd", (), {"__str__": lambda self: 1 / 0})()
        try:
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([odd]))]), FINAL)
        except ZeroDivisionError:
            sender.send(answer(2), FINAL)
        """,
        decoupled=True,
    )

    worker.start(worker.request(4))

    assert values(worker.response()) == (4, [2], None, True)


# One answer by hand from a model that is not decoupled.


@pytest.mark.parametrize(
    "body",
    [
        "sender.send(answer(5), FINAL)",
        "sender.send(answer(5)); sender.send(flags=FINAL)",
        "sender.send(answer(5))",
        "sender.send(answer(5), FINAL); return [None]",
    ],
)
def test_any_model_may_send_its_one_response(load_execute, body):
    worker = load_execute(f"sender = requests[0].get_response_sender(); {body}")

    worker.start(worker.request(4))

    assert values(worker.response()) == (4, [5], None, True)
    assert executed(worker) == (None, None)


def test_a_list_may_answer_some_and_senders_the_others(load_execute):
    worker = load_execute(
        """
        requests[1].get_response_sender().send(answer(1), FINAL)
        later = requests[2].get_response_sender()
        threading.Timer(0, lambda: later.send(answer(2), FINAL)).start()
        requests[3].get_response_sender()  # asked for, not used
        return [answer(0), None, None, answer(3)]
        """
    )

    worker.start(*[worker.request(10 + slot) for slot in range(4)])
    messages = [worker.receive() for _ in range(5)]

    [done] = [message for message in messages if message[0] == frame.EXECUTED]
    assert done[4:] == (None, None)
    answers = {m[2]: (worker.arrays(m[3])["OUTPUT0"][0], m[4]) for m in messages if m is not done}
    assert answers == {10: (0, True), 11: (1, True), 12: (2, True), 13: (3, True)}


def test_a_response_returned_beside_one_sent_is_dropped_and_logged(load_execute):
    worker = load_execute("requests[0].get_response_sender().send(answer(1), FINAL); return [answer(2)]")

    worker.start(worker.request(4, id="rid"))

    assert values(worker.response()) == (4, [1], None, True)
    assert executed(worker) == (None, None)
    assert worker.logs == [(2, PREFIX + TWICE, "rid")]


def test_a_sender_asked_for_after_the_answer_is_closed(load_execute):
    worker = load_execute(
        """
        late = getattr(self, "late", None)
        self.late = requests[0]
        if late is None:
            return [answer()]
        late.get_response_sender().send(answer(), FINAL)
        """
    )
    worker.infer(worker.request(4))

    _, text = worker.failure(worker.request(5))

    assert text.startswith(f"{PREFIX}TritonModelException: {CLOSED}")


# Exceptions beside answers.


def test_an_exception_answers_only_what_is_unanswered(load_execute):
    worker = load_execute(
        """
        requests[1].get_response_sender().send(answer(1), FINAL)
        raise ValueError("late")
        """
    )

    worker.start(*[worker.request(slot) for slot in (4, 5, 6)])

    assert values(worker.response()) == (5, [1], None, True)
    responses, (code, text) = executed(worker)  # the server answers 4 and 6 with it
    assert (responses, code) == (None, 1)
    assert text.startswith(PREFIX + "ValueError: late\n\nAt:\n")
    assert worker.logs == [(2, PREFIX + "ValueError: late", "")]
    assert "Traceback (most recent call last)" in worker.tracebacks[0]


def test_an_exception_ends_a_stream_that_had_begun(load_execute):
    worker = load_execute(
        "requests[0].get_response_sender().send(answer(1)); raise ValueError('late')", decoupled=True
    )

    worker.start(worker.request(4))

    assert values(worker.response()) == (4, [1], None, False)
    _, error = executed(worker)
    assert error[1].startswith(PREFIX + "ValueError: late")


def test_a_thread_cannot_send_once_an_exception_has_answered(load_execute):
    worker = load_execute(
        """
        sender = requests[0].get_response_sender()
        failed = threading.Event()

        def run():
            failed.wait()
            try:
                sender.send(answer(), FINAL)
            except pb_utils.TritonModelException as exc:
                pb_utils.Logger.log_error(str(exc))

        thread = threading.Thread(target=run)
        thread.start()
        if getattr(self, "previous", None):
            self.previous[0].set()
            self.previous[1].join()
        self.previous = failed, thread
        raise ValueError("no")
        """,
        decoupled=True,
    )

    worker.failure(worker.request(4))
    worker.failure(worker.request(4))

    # The exceptions themselves are logged once a second.
    assert [line for line in worker.logs if not line[1].startswith(PREFIX)] == [(2, CLOSED, "")]


# Requests that a model forgets.


@pytest.mark.parametrize("decoupled", [True, False])
@pytest.mark.parametrize("body", ["return None", "requests[0].get_response_sender()"])
def test_a_forgotten_request_is_answered_with_an_error(load_execute, decoupled, body):
    worker = load_execute(body, decoupled=decoupled)

    worker.start(worker.request(4, id="rid"))

    messages = sorted([worker.receive(), worker.receive()])
    assert messages[0][4:] == (None, None)
    text = "[request id: rid] model 'net' dropped the request without a final response"
    assert messages[1][2:5] == (4, ([], None, (1, text)), True)


def test_a_request_in_a_cycle_is_found_by_the_garbage_collection(load_execute):
    worker = load_execute(
        """
        import gc
        gc.disable()  # one by chance would find it before the answer
        cycle = [requests[0].get_response_sender()]
        cycle.append(cycle)
        del cycle, requests
        if getattr(self, "collects", False):
            gc.collect()
        self.collects = True
        """,
        decoupled=True,
    )
    worker.start(worker.request(4))
    assert executed(worker) == (None, None)

    worker.start(worker.request(5))
    messages = [worker.receive() for _ in range(3)]

    [done] = [message for message in messages if message[0] == frame.EXECUTED]
    assert done[4:] == (None, None)
    text = "[request id: <id_unknown>] model 'net' dropped the request without a final response"
    answers = [(slot, response[2]) for kind, _, slot, response, *_ in messages if kind == frame.RESPONSE]
    assert sorted(answers) == [(4, (1, text)), (5, (1, text))]


def test_a_request_that_is_kept_is_not_forgotten(load_execute):
    worker = load_execute(
        """
        self.kept = [*getattr(self, "kept", []), requests[0]]
        if len(self.kept) == 3:
            for number, request in enumerate(self.kept):
                request.get_response_sender().send(answer(number), FINAL)
        """
    )

    for slot in (4, 5):
        worker.start(worker.request(slot))
        assert executed(worker) == (None, None)
    worker.start(worker.request(6))

    assert [values(worker.response()) for _ in range(3)] == [
        (4, [0], None, True),
        (5, [1], None, True),
        (6, [2], None, True),
    ]
