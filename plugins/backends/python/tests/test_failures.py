"""Batches that go wrong cost themselves and nothing else."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import pytest
from tritonpy.ipc import frame
from tritonpy.ipc.frame import FrameReader
from tritonpy_backend_python.worker.failure_log import FailureLog

BODY_LINE = 16
"""The line of the model file that holds the second line of `execute`."""

PREFIX = "Failed to process the request(s) for model 'net_0_0', message: "


def at(worker, line, *names):
    return "\n\nAt:\n" + "".join(f"  {worker.model_file}({line}): {name}\n" for name in names)


def segment_count(worker):
    """How many segments the worker has made, up to the one the newest output lies in."""
    return len(worker.endpoint.peer._segments)


def works_again(worker):
    """Whether a request that asks for it is answered after all that."""
    [outputs] = worker.infer(worker.request(parameters={"works": True}))
    return outputs["OUTPUT0"].tolist() == [1]


FAILING = """if requests[0].parameters() != "{}": return [answer() for _ in requests]"""


@pytest.fixture
def failing(load_execute):
    """A model whose `execute` is `line`, except for requests with parameters."""
    return lambda line, **options: load_execute(f"{FAILING}\n{line}", **options)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("raise ValueError('boom')", "ValueError: boom"),
        ("raise ValueError('one\\ntwo')", "ValueError: one\ntwo"),
        ("raise ValueError()", "ValueError: <EMPTY MESSAGE>"),
        ("raise ValueError('boom') from KeyError('k')", "ValueError: boom"),
        ("raise pb_utils.TritonModelException('boom')", "TritonModelException: boom"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt: <EMPTY MESSAGE>"),
        ("raise asyncio.CancelledError", "CancelledError: <EMPTY MESSAGE>"),
        ("raise ValueError('\\udcff')", "ValueError: \\udcff"),
        ("requests[0].nope", "AttributeError: 'InferenceRequest' object has no attribute 'nope'"),
    ],
)
def test_an_exception_fails_the_batch_with_triton_s_words_and_the_worker_lives(failing, line, message):
    worker = failing(line)

    code, text = worker.failure(worker.request(0), worker.request(1))

    assert code == 1
    assert text == PREFIX + message + at(worker, BODY_LINE, "execute")
    assert works_again(worker)


def test_the_innermost_line_comes_first(load_execute):
    worker = load_execute(
        """
        def inner(): outer()
        def outer(): raise ValueError("boom")
        inner()
        """
    )

    _, text = worker.failure(worker.request())

    lines = [(BODY_LINE, "outer"), (BODY_LINE - 1, "inner"), (BODY_LINE + 1, "execute")]
    shown = "".join(f"  {worker.model_file}({line}): {name}\n" for line, name in lines)
    assert text == f"{PREFIX}ValueError: boom\n\nAt:\n{shown}"


def test_an_exception_without_a_readable_text_is_answered(failing):
    worker = failing("raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})")

    _, text = worker.failure(worker.request())

    assert text.startswith(PREFIX + "Odd: <UNPRINTABLE MESSAGE>\n\nAt:\n")
    assert works_again(worker)


def test_a_raised_error_of_triton_s_kind_keeps_its_code_and_text(failing):
    worker = failing("raise pb_utils.TritonError('bad', pb_utils.TritonError.INVALID_ARG)")

    assert worker.failure(worker.request()) == (3, "bad")
    assert works_again(worker)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "return []",
            "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
            "InferenceRequest(s) size is:2, and InferenceResponse(s) size is:0\n",
        ),
        (
            "return [answer()] * 3",
            "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
            "InferenceRequest(s) size is:2, and InferenceResponse(s) size is:3\n",
        ),
        (
            "return [answer(), 'a']",
            "Expected an 'InferenceResponse' object in the execute function return list, "
            "found type '<class 'str'>'.",
        ),
        (
            "return (answer(), answer())",
            "Expected a list in the execute return, found type '<class 'tuple'>'.",
        ),
        ("return 5", "Expected a list in the execute return, found type '<class 'int'>'."),
        ("return {}", "Expected a list in the execute return, found type '<class 'dict'>'."),
        (
            "return (answer() for _ in requests)",
            "Expected a list in the execute return, found type '<class 'generator'>'.",
        ),
    ],
)
def test_a_wrong_result_fails_the_batch_with_triton_s_words(failing, line, message):
    worker = failing(line)

    assert worker.failure(worker.request(0), worker.request(1)) == (1, PREFIX + message)
    assert works_again(worker)


@pytest.mark.parametrize("line", ["return [answer()]", "return []", "return [None]"])
def test_a_decoupled_model_must_return_none(failing, line):
    worker = failing(line, decoupled=True)

    assert worker.failure(worker.request()) == (
        1,
        f"{PREFIX}Python model 'net_0_0' is using the decoupled mode and the execute function "
        f"must return None.",
    )


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("class TritonPythonModel: pass", "Python model {path} does not implement `execute` method."),
        ("class TritonPythonModel:\n    execute = 5", "TypeError: 'int' object is not callable"),
    ],
)
def test_a_model_that_cannot_execute_says_so(load, model, message):
    worker = load(model)

    code, text = worker.failure(worker.request())

    assert code == 1
    assert text == PREFIX + message.format(path=worker.model_file)


def test_an_output_that_cannot_be_encoded_fails_the_batch_and_keeps_no_memory(load_execute):
    worker = load_execute(
        """
        large = pb_utils.Tensor("A", np.zeros(100_000))
        if requests[0].parameters() != "{}":
            return [pb_utils.InferenceResponse([large])]
        odd = type("Odd", (), {"__str__": lambda self: 1 / 0})()
        bad = pb_utils.Tensor("B", np.array([odd]))
        return [pb_utils.InferenceResponse([large]), pb_utils.InferenceResponse([large, bad])]
        """,
        outputs={"A": "TYPE_FP64", "B": "TYPE_STRING"},
    )

    for _ in range(20):
        _, text = worker.failure(worker.request(0), worker.request(1))
        assert text.startswith(PREFIX + "ZeroDivisionError: division by zero")
    [outputs] = worker.infer(worker.request(parameters={"works": True}))

    assert outputs["A"].shape == (100_000,)
    assert segment_count(worker) == 1  # a segment has room for four such blocks: none of the forty was kept


def test_a_worker_ignores_the_interrupt_key(load_execute):
    worker = load_execute("return [answer()]")

    worker.process.send_signal(signal.SIGINT)

    assert worker.infer(worker.request())[0]["OUTPUT0"].tolist() == [1]


def test_a_worker_goes_when_the_server_is_gone(load_execute):
    worker = load_execute("return [answer()]")

    worker._socket.close()

    worker.process.wait(20)


def test_a_worker_goes_with_the_server_even_while_it_computes(load_execute):
    worker = load_execute("pb_utils.Logger.log_info('running')\ntime.sleep(1000)")
    worker.start(worker.request())
    data = worker._socket.recv(1000)  # it has begun

    worker._socket.close()

    assert b"running" in data
    assert worker.process.wait(20) == 1


def test_the_server_notices_the_end_of_a_worker_whose_forked_child_lives_on(load_execute):
    worker = load_execute(
        """
        import os
        child = os.fork()
        if child == 0:
            time.sleep(1000)
        pb_utils.Logger.log_info(str(child))
        os._exit(0)
        """
    )
    worker.start(worker.request())

    received = b"".join(iter(lambda: worker._socket.recv(1000), b""))  # to the end of the stream

    [(_, _, _, child, *_)] = FrameReader().feed(received)
    os.kill(int(child), signal.SIGKILL)


def test_a_crash_in_native_code_shows_the_model_s_line(load_execute):
    worker = load_execute("import ctypes; ctypes.string_at(0)")
    worker.start(worker.request())

    assert worker.process.wait(20) == -signal.SIGSEGV
    _, errors = worker.close()
    assert f'File "{worker.model_file}", line {BODY_LINE - 1} in execute'.encode() in errors


def test_a_model_that_ends_the_process_ends_it(load_execute):
    worker = load_execute("import os; os._exit(3)")
    worker.start(worker.request())

    assert worker.process.wait(20) == 3


def test_frames_are_answered_after_a_failed_start(set_up):
    worker = set_up("raise ValueError('no')")

    assert worker.initialize()[0] == frame.FAILED
    assert worker.initialize()[0] == frame.FAILED
    assert worker.ask(frame.FINALIZE)[2:] == (None,)


# In the log.


def test_an_exception_is_in_the_log_with_its_traceback(load_execute):
    worker = load_execute("raise ValueError('no')")

    _, text = worker.failure(worker.request(id="r1"))

    assert "Traceback" not in text
    assert worker.logs == [(2, text.partition("\n")[0], "r1")]
    assert worker.logs[0][1].endswith("ValueError: no")
    assert worker.log_places == [(str(worker.model_file), 0)]
    [traceback] = worker.tracebacks
    assert traceback.startswith("Traceback (most recent call last):\n")
    assert f'File "{worker.model_file}"' in traceback
    assert "in _run" not in traceback  # that is ours


def test_failures_that_follow_at_once_are_counted_instead():
    logged, now_s = [], 100.0
    channel = SimpleNamespace(send=lambda kind, level, text, *_: logged.append(text))
    log = FailureLog(channel, "net_0_0", "model.py", {}, clock=lambda: now_s)

    for number, now_s in enumerate([100.0, 100.2, 100.99, 101.0, 101.5, 102.0]):  # noqa: B007 (the clock)
        _, text = log.failure(ValueError(number))
        assert text.endswith(f"ValueError: {number}")  # clients hear of each

    assert [text.removeprefix(PREFIX) for text in logged] == [
        "ValueError: 0",
        "ValueError: 3 (2 failures before this one were not logged)",
        "ValueError: 5 (1 failures before this one were not logged)",
    ]


def test_a_failure_that_no_client_hears_of_is_logged_however_soon(load_execute):
    worker = load_execute(
        "requests[0].get_response_sender().send(answer(), FINAL); raise ValueError(requests[0].request_id())"
    )

    for name in ("1", "2"):
        worker.start(worker.request(id=name))
        worker.response()
        worker.expect(frame.EXECUTED)

    assert [text.rpartition(": ")[2] for _, text, _ in worker.logs] == ["1", "2"]


def test_an_error_that_the_model_raises_as_its_answer_is_not_logged(load_execute):
    worker = load_execute("raise pb_utils.TritonError('no such thing', pb_utils.TritonError.NOT_FOUND)")

    assert worker.failure(worker.request()) == (2, "no such thing")
    assert worker.logs == []


def test_the_traceback_reaches_clients_when_that_is_asked_for(set_up):
    worker = set_up(
        """
        class TritonPythonModel:
            def execute(self, requests):
                raise ValueError("no")
        """
    )
    worker.set_up(settings={"traceback-to-client": "true"})
    worker.initialize()

    for _ in range(2):  # also when it is not logged again
        _, text = worker.failure(worker.request())
        assert text.startswith(
            "Failed to process the request(s) for model 'net_0_0', message: ValueError: no\n"
        )
        assert "\nTraceback (most recent call last):\n" in text
        assert text.rstrip().endswith("ValueError: no")
