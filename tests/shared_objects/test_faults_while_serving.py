"""Strategies that go wrong while requests wait: who is told what, and whether the server stops or spins."""

from __future__ import annotations

import os
import select
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tritonpy_sdk.testing import DEADLINE_S

from .conftest import Compiled
from .faults import Answer, FaultServer, serving

GOOD = Answer(200, "")
LARGE = 100
LONG = {"dynamic_batching": {"max_queue_delay_microseconds": 900_000}}


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultServer]:
    with serving(tmp_path_factory.mktemp("models")) as server:
        yield server
        server.assert_idle()  # with all of these models loaded


@pytest.fixture
def server(one_server: FaultServer) -> Iterator[FaultServer]:
    one_server.assert_well()
    yield one_server
    one_server.assert_well()


@pytest.fixture
def faulty(compiled: Compiled) -> Path:
    return compiled("strategies/faulty.cc")


def add(server: FaultServer, name: str, faulty: Path, fault: str) -> None:
    server.add(name, str(faulty), parameters={"FAULT": fault})
    assert server.load(name) == GOOD


def had_no_wish(answer: Answer, where: str) -> bool:
    """It failed for what the strategy said, with its code and text, and nothing else."""
    return answer == Answer(503, f"{where} had no wish to")


def test_an_error_while_a_request_is_included_fails_that_request_once(
    server: FaultServer, faulty: Path
) -> None:
    add(server, "include", faulty, "ModelBatchIncludeRequest error")

    answers = server.infer_all("include", ("a", 4), ("bad", 4), ("b", 4), ("bad too", 4), ("c", 4))

    assert [had_no_wish(answer, "ModelBatchIncludeRequest") for answer in answers] == [
        *(False, True, False, True, False)
    ]
    assert Counter(answer.status for answer in answers) == {200: 3, 503: 2}
    line = "had no wish to')\" model=include"
    server.until(lambda: server.log.count(line) >= 2)
    server.assert_idle()
    assert server.log.count(line) == 2


def test_a_request_that_the_strategy_errs_about_for_its_size_fails_alone(
    server: FaultServer, faulty: Path
) -> None:
    add(server, "size_error", faulty, "ModelBatchIncludeRequest error for large ones")

    answers = server.infer_all("size_error", ("", 4), ("", LARGE), ("", 4))

    assert [answer.status for answer in answers] == [200, 503, 200]
    assert had_no_wish(answers[1], "a large one")


def test_a_request_that_is_refused_even_alone_runs_alone_with_one_warning(
    server: FaultServer, faulty: Path
) -> None:
    add(server, "size", faulty, "ModelBatchIncludeRequest refuses large ones")

    for _ in range(2):
        assert server.infer_all("size", ("", 4), ("", LARGE), ("", 4), ("", LARGE)) == [GOOD] * 4

    warning = "of model 'size' even for an empty batch"
    server.until(lambda: warning in server.log)
    server.assert_idle()
    assert server.log.count(warning) == 1


@pytest.mark.parametrize(("fault", "text"), [("digits", ": stoull"), ("throw", " that is no std::exception")])
def test_an_exception_while_a_request_is_included_is_its_error(
    server: FaultServer, faulty: Path, fault: str, text: str
) -> None:
    add(server, f"throws_{fault}", faulty, f"ModelBatchIncludeRequest {fault}")

    answers = server.infer_all(f"throws_{fault}", ("a", 4), ("bad", 4), ("b", 4))

    words = f"TRITONBACKEND_ModelBatchIncludeRequest threw a C++ exception{text}"
    assert answers == [GOOD, Answer(500, words), GOOD]


def test_an_error_together_with_a_yes_is_logged_and_the_request_runs(
    server: FaultServer, faulty: Path
) -> None:
    add(server, "yes", faulty, "ModelBatchIncludeRequest error and yes")

    assert server.infer_all("yes", ("a", 4), ("bad yes", 4), ("b", 4)) == [GOOD] * 3

    server.until(lambda: "[request id: bad yes]" in server.log)


def test_a_strategy_that_never_begins_a_batch_fails_every_request(server: FaultServer, faulty: Path) -> None:
    add(server, "never", faulty, "ModelBatchInitialize error")

    answers = server.infer_all("never", *[("", 4)] * 5)

    server.assert_idle()
    assert all(had_no_wish(answer, "ModelBatchInitialize") for answer in answers), answers


def test_a_strategy_that_does_not_begin_a_batch_once_fails_at_most_its_head(
    server: FaultServer, faulty: Path
) -> None:
    add(server, "once", faulty, "ModelBatchInitialize error once")

    answers = server.infer_all("once", *[("", 4)] * 5) + server.infer_all("once", *[("", 4)] * 5)

    failed = [answer for answer in answers if answer != GOOD]
    assert len(failed) == 1
    assert had_no_wish(failed[0], "ModelBatchInitialize")


def test_a_strategy_that_does_not_begin_every_third_batch_fails_some_and_serves_the_rest(
    server: FaultServer, faulty: Path
) -> None:
    add(server, "third", faulty, "ModelBatchInitialize error every third")

    answers = [answer for _ in range(4) for answer in server.infer_all("third", *[("", 4)] * 3)]

    failed = [answer for answer in answers if answer != GOOD]
    assert 1 <= len(failed) < len(answers)
    assert all(had_no_wish(answer, "ModelBatchInitialize") for answer in failed)


@pytest.mark.parametrize("fault", ["digits", "throw"])
def test_an_exception_when_a_batch_begins_is_the_error_of_its_head(
    server: FaultServer, faulty: Path, fault: str
) -> None:
    add(server, f"begins_{fault}", faulty, f"ModelBatchInitialize {fault}")

    answer = server.infer(f"begins_{fault}")

    assert answer.status == 500
    assert answer.error.startswith("TRITONBACKEND_ModelBatchInitialize threw a C++ exception")


@pytest.mark.parametrize("fault", ["error", "digits", "throw"])
def test_what_goes_wrong_when_a_batch_ends_is_logged_and_costs_no_request(
    server: FaultServer, faulty: Path, fault: str
) -> None:
    add(server, f"ends_{fault}", faulty, f"ModelBatchFinalize {fault}")

    assert server.infer_all(f"ends_{fault}", *[("", 4)] * 3) == [GOOD] * 3

    text = (
        "ModelBatchFinalize had no wish to"
        if fault == "error"
        else "ModelBatchFinalize threw a C++ exception"
    )
    server.until(lambda: text in server.log)


@pytest.mark.parametrize("fault", ["error", "digits", "throw"])
def test_what_goes_wrong_when_a_batcher_ends_is_logged_and_the_model_is_gone(
    server: FaultServer, faulty: Path, fault: str
) -> None:
    name = f"closes_{fault}"
    add(server, name, faulty, f"ModelBatcherFinalize {fault}")
    assert server.infer(name) == GOOD

    assert server.unload(name) == GOOD

    text = (
        "ModelBatcherFinalize had no wish to"
        if fault == "error"
        else "ModelBatcherFinalize threw a C++ exception"
    )
    server.until(lambda: text in server.log)
    server.until(lambda: server.infer(name).status != 200)


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("logs", "ModelBatcherInitialize was called"),
        ("logs from a thread", "a thread of ModelBatcherInitialize was here"),
    ],
)
def test_a_line_that_a_strategy_logs_is_in_the_log_once_though_it_was_tried_before(
    server: FaultServer, faulty: Path, fault: str, line: str
) -> None:
    add(server, fault.replace(" ", "_"), faulty, f"ModelBatcherInitialize {fault}")

    server.until(lambda: line in server.log)
    server.assert_well()

    assert server.log.count(line) == 1


def test_a_slow_strategy_is_named_in_one_warning_and_in_a_metric(server: FaultServer, faulty: Path) -> None:
    add(server, "slow", faulty, "ModelBatchIncludeRequest sleep")

    for _ in range(5):
        assert server.infer("slow") == GOOD

    warning = "of model 'slow' repeatedly takes over 1 ms"  # on a busy machine others may be slow by chance
    server.until(lambda: warning in server.log)
    assert server.log.count(warning) == 1
    assert int(server.metric('tritonpy_slow_batching_scans_total{model="slow"')) >= 5


def test_two_models_share_a_library_and_nothing_else(server: FaultServer, faulty: Path) -> None:
    add(server, "one", faulty, "ModelBatchInitialize error")
    add(server, "other", faulty, "")

    futures = [(server.begin("one"), server.begin("other")) for _ in range(4)]

    assert all(had_no_wish(one.result(), "ModelBatchInitialize") for one, _ in futures)
    assert all(other.result() == GOOD for _, other in futures)
    assert server.unload("one") == GOOD
    assert server.infer("other") == GOOD


def test_a_library_that_was_replaced_is_used_from_the_next_load_on(
    server: FaultServer, faulty: Path, compiled: Compiled
) -> None:
    directory = server.add("replaced", "mine.so", parameters={"FAULT": "ModelBatchInitialize error"})
    library = directory / "mine.so"
    shutil.copy(faulty, library)
    assert server.load("replaced") == GOOD
    assert had_no_wish(server.infer("replaced"), "ModelBatchInitialize")
    other = compiled("strategies/partial.c", *(f"-DWITH_{number}" for number in range(1, 6)))
    os.replace(shutil.copy(other, directory / "new.so"), library)

    assert had_no_wish(server.infer("replaced"), "ModelBatchInitialize")
    assert server.unload("replaced") == GOOD
    assert server.load("replaced") == GOOD

    assert server.infer("replaced") == GOOD
    server.until(lambda: f"{library} has changed since it was opened" in server.log)


def test_a_load_that_fails_leaves_what_serves(server: FaultServer, faulty: Path) -> None:
    add(server, "kept", faulty, "")
    server.add("kept", str(faulty), parameters={"FAULT": "ModelBatcherInitialize segfault"})

    assert "SIGSEGV in TRITONBACKEND_ModelBatcherInitialize" in server.load("kept").error

    assert server.infer("kept") == GOOD


def test_requests_that_wait_are_answered_when_their_model_is_unloaded(
    server: FaultServer, faulty: Path
) -> None:
    server.add("unloaded", str(faulty), parameters={"FAULT": ""}, **LONG)
    assert server.load("unloaded") == GOOD
    waiting = [server.begin("unloaded") for _ in range(3)]
    # On a machine that is slow enough the first do not wait as long as it takes to send all.
    server.until(lambda: sum(future.done() for future in waiting) + server.waiting("unloaded") == 3)
    server.assert_well()
    server.assert_idle()

    assert server.unload("unloaded") == GOOD

    assert [future.result() for future in waiting] == [GOOD] * 3


@pytest.mark.stress
def test_a_server_that_is_told_to_end_does_not_wait_for_a_strategy_that_is_tried(
    tmp_path: Path, faulty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITONPY_ABI_PROBE_S", "3600")
    with serving(tmp_path / "models") as server:
        server.add("loops", str(faulty), parameters={"FAULT": "ModelBatcherInitialize loop"})
        loading = server.pool.submit(server.load, "loops")
        server.until(lambda: len(server.children()) > 0)
        child = os.pidfd_open(server.children()[0])

        server.process.send_signal(signal.SIGTERM)

        assert server.process.wait(DEADLINE_S) == 0
        assert select.select([child], [], [], DEADLINE_S)[0]
        os.close(child)
        loading.exception()  # its client was cut off, or told
