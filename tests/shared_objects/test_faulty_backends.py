"""Backends in C that go wrong in every way: the server goes on, names the model, and does not spin."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.testing import DEADLINE_S, until

from .conftest import Compiled
from .faults import Answer, FaultServer, serving

GOOD = Answer(200, "")
DEATHS = {
    "segfault": "killed by signal 11 (SIGSEGV)",
    "abort": "killed by signal 6 (SIGABRT)",
    "exit": "exited with code 3",
    "quick exit": "exited with code 4",
    "kill": "killed by signal 9 (SIGKILL)",
    "overflow": "killed by signal 11 (SIGSEGV)",
    "freed error": "killed by signal ",
    "thread segfault": "killed by signal 11 (SIGSEGV)",
    "thread exception": "killed by signal 6 (SIGABRT)",
}
LOADING = ("ModelInitialize", "ModelInstanceInitialize")
ENDING = ("ModelInstanceFinalize", "ModelFinalize")


def some(all_of: Iterable[str], *quick: str) -> list[Any]:
    """Parameters of a test: each costs a process or two, so that only a few are tried every time."""
    return [value if value in quick else pytest.param(value, marks=pytest.mark.stress) for value in all_of]


class Backends:
    """A server whose models are executed by the faulty backend, and its library."""

    def __init__(self, server: FaultServer, library: Path) -> None:
        self.server = server
        self.library = library

    def add(self, name: str, fault: str = "", isolation: str = "process", **more: Any) -> Path:
        """A model with a fault; returns its directory."""
        parameters = {"FAULT": fault, "TRITONPY_ISOLATION": isolation}
        return self.server.add(
            name, parameters=parameters, **{"backend": "faulty", "dynamic_batching": {}, **more}
        )

    def load(self, name: str, fault: str = "", isolation: str = "process", **more: Any) -> None:
        """A model that can be loaded."""
        self.add(name, fault, isolation, **more)
        assert self.server.load(name) == GOOD

    def add_with_library(self, name: str, fault: str) -> None:
        """A model with a library of its own, of which a file beside it says what goes wrong."""
        path = self.add(name) / "libtriton_faulty.so"
        shutil.copy(self.library, path)
        path.with_name(f"{path.name}.fault").write_text(fault)

    def refusal(self, name: str) -> str:
        """The reason why a model does not load, which names it, and is in the log as well."""
        answer = self.server.load(name)
        prefix = f"load failed for model '{name}': version 1 is at UNAVAILABLE state: "
        assert answer.status == 400, answer
        assert answer.error.startswith(prefix), answer
        reason = answer.error.removeprefix(prefix).rstrip(";\n")
        self.server.until(lambda: f"failed to load '{name}' version 1: " in self.server.log)
        assert self.server.infer(name).status == 404
        return reason

    def until_back(self, name: str) -> None:
        """Wait until a model answers again."""
        self.server.until(lambda: self.server.infer(name) == GOOD)


@pytest.fixture(scope="module")
def one_server(compiled: Compiled, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backends]:
    room = tmp_path_factory.mktemp("backends")
    library = compiled("backends/faulty.cc", "-pthread")
    (room / "backends/faulty").mkdir(parents=True)
    shutil.copy(library, room / "backends/faulty/libtriton_faulty.so")
    with serving(room / "models", f"--backend-directory={room / 'backends'}") as server:
        yield Backends(server, library)
        server.assert_idle()  # with all of these models, and the threads and processes of their libraries


@pytest.fixture
def backends(one_server: Backends) -> Iterator[Backends]:
    one_server.server.assert_well()
    yield one_server
    one_server.server.assert_well()


@pytest.mark.parametrize(
    "fault",
    some([*DEATHS, "error", "exception", "throw", "another version"], "segfault", "exit", "exception"),
)
def test_a_function_that_goes_wrong_at_the_load_fails_its_model(backends: Backends, fault: str) -> None:
    for where in LOADING if fault == "segfault" else LOADING[:1]:
        name = f"{where}_{fault.replace(' ', '_')}"
        backends.add(name, f"{where} {fault}")

        reason = backends.refusal(name)

        words = {
            "error": f"Unavailable: {where} had no wish to",
            "exception": f"Internal: TRITONBACKEND_{where} threw a C++ exception: thrown by {where}",
            "throw": f"Internal: TRITONBACKEND_{where} threw a C++ exception that is no std::exception",
            "another version": "Unsupported: triton backend API version does not support this backend",
        }
        process = name if where == "ModelInitialize" else f"{name}_0"
        expected = (
            words.get(fault) or f"Internal: Stub process '{process}' is not healthy. It was {DEATHS[fault]}"
        )
        assert reason.startswith(expected.replace("It was exited", "It exited"))


@pytest.mark.parametrize("where", ["open", "Initialize"])
@pytest.mark.parametrize("fault", some(["segfault", "exit", "exception"], "exception"))
def test_a_library_that_goes_wrong_when_it_is_opened_fails_its_model(
    backends: Backends, where: str, fault: str
) -> None:
    name = f"{where}_{fault}"
    backends.add_with_library(name, f"{where} {fault}")

    reason = backends.refusal(name)

    if (where, fault) == ("Initialize", "exception"):
        assert reason == "Internal: TRITONBACKEND_Initialize threw a C++ exception: thrown by Initialize"
    else:
        assert {"segfault": "SIGSEGV", "exit": "exit code 3", "exception": "SIGABRT"}[
            fault
        ] in reason.replace("exited with code", "exit code")


@pytest.fixture(scope="module")
def shared(one_server: Backends) -> str:
    """A model for many faults: each costs it its worker at most."""
    one_server.load("shared")
    return "shared"


@pytest.mark.parametrize(
    "do",
    some(
        [
            *(f"go {fault}" for fault in DEATHS),
            *("free output", "free response", "free request", "write past output"),
        ],
        *("go segfault", "go exit", "go overflow", "go thread exception", "free output"),
    ),
)
def test_a_process_that_ends_costs_the_request_it_had(backends: Backends, shared: str, do: str) -> None:
    answer = backends.server.infer(shared, do=do)

    assert answer.status == 500
    assert answer.error.startswith(f"Stub process '{shared}_0' is not healthy. It ")
    assert answer.error.endswith(" while it executed this request")
    assert DEATHS.get(do.removeprefix("go "), "killed by signal ") in answer.error
    backends.until_back(shared)


def test_all_but_the_request_that_ends_a_process_are_executed_once(backends: Backends) -> None:
    backends.load("ahead", max_batch_size=1)  # so that each is alone in its batch, and many are sent ahead
    backends.server.infer_all("ahead", *[("", 4)] * 20)
    before = backends.server.batches("ahead")

    with ThreadPoolExecutor(16) as clients:
        asked = [
            clients.submit(backends.server.infer, "ahead", do="go quick exit" if index == 20 else "")
            for index in range(40)
        ]
        answers = [each.result(DEADLINE_S) for each in asked]

    assert answers.pop(20).error.endswith("exited with code 4 while it executed this request")
    assert answers == [GOOD] * 39
    assert backends.server.batches("ahead") == {1: before[1] + 39}


def test_a_request_that_is_used_after_it_was_given_back_costs_a_process_at_most(
    backends: Backends, shared: str
) -> None:
    assert backends.server.infer(shared, do="keeps and fails") == Answer(
        503, "it is kept, and fails all the same"
    )

    backends.server.infer(shared, do="let go")

    backends.until_back(shared)


@pytest.mark.parametrize("isolation", ["process", "thread"])
def test_what_is_refused_or_forgotten_is_answered_and_nothing_waits(
    backends: Backends, isolation: str
) -> None:
    name = f"told_{isolation}"
    backends.load(name, isolation=isolation)
    label = f"[request id: <id_unknown>] model '{name}'"
    answers = {
        "release twice": GOOD,
        "respond after release": GOOD,
        "response after final": GOOD,
        "two finals": GOOD,
        "never releases": GOOD,
        "leaks errors": GOOD,
        "negative dims": GOOD,
        "two responses": Answer(500, f"{label}: expected a single response, got 2"),
        "never answers": Answer(500, f"{label} dropped the request without a final response"),
        "final alone": Answer(
            500, f"{label} is not decoupled, and its backend sent the final flag without a response"
        ),
        "answers and fails": Answer(503, "it was answered, and fails all the same"),
        "releases and fails": Answer(503, "it was released, and fails all the same"),
        "haunts": Answer(503, "it is failed, and haunted all the same"),
        "go exception": Answer(
            500, "TRITONBACKEND_ModelInstanceExecute threw a C++ exception: thrown by ModelInstanceExecute"
        ),
        "go throw": Answer(
            500, "TRITONBACKEND_ModelInstanceExecute threw a C++ exception that is no std::exception"
        ),
    }

    assert {do: backends.server.infer(name, do=do) for do in answers} == answers
    short = backends.server.infer(name, columns=2, do="too short")
    assert (
        short.error
        == f"{label}: output 'OUTPUT0' has a buffer of 7 bytes, expected 8 for INT32 of shape [1, 2]"
    )
    assert backends.server.infer(name, columns=1, do="strings that lie").status == 400
    # While threads of the library go on with what is left of it.
    assert backends.server.unload(name) == GOOD
    backends.server.until(lambda: backends.server.infer(name).status == 404)


@pytest.mark.parametrize("fault", some([*DEATHS, "error", "exception", "throw"], "segfault", "exception"))
def test_what_goes_wrong_at_the_end_keeps_no_model(backends: Backends, fault: str) -> None:
    unload_well(backends, {f"{where}_{fault.replace(' ', '_')}": f"{where} {fault}" for where in ENDING})


@pytest.mark.parametrize("where", some([*LOADING, "ModelInstanceExecute", *ENDING], "ModelInstanceExecute"))
def test_a_library_that_leaves_a_mess_leaves_it_in_its_process(backends: Backends, where: str) -> None:
    unload_well(
        backends, {f"{fault}_in_{where}": f"{where} {fault}" for fault in ("mess", "descriptors", "prints")}
    )


def unload_well(backends: Backends, faults: Mapping[str, str]) -> None:
    """Models, with what is wrong with them, come, answer and go."""
    for name, fault in faults.items():
        backends.add(name, fault)
    pool = backends.server.pool
    for do in (backends.server.load, backends.server.infer, backends.server.unload):
        assert list(pool.map(do, faults)) == [GOOD] * len(faults)
    until(lambda: all(backends.server.state(name) == "UNAVAILABLE" for name in faults), faults)


def test_files_that_are_no_backends_are_refused_with_their_names(
    backends: Backends, compiled: Compiled
) -> None:
    def place(name: str) -> Path:
        return backends.add(name, backend=name) / f"libtriton_{name}.so"

    place("text").write_text("this is no library")
    place("directory").mkdir()
    shutil.copy(compiled("strategies/volume.c"), place("lacking"))
    shutil.copy(compiled("strategies/partial.c", "-DCALLS_NOBODY"), place("undefined"))
    place("missing")
    reasons = {
        name: backends.refusal(name) for name in ("text", "directory", "lacking", "undefined", "missing")
    }

    assert all(f"libtriton_{name}.so" in reason for name, reason in reasons.items())
    assert "TRITONBACKEND_ModelInstanceExecute" in reasons["lacking"]
    assert "nobody_defines_this" in reasons["undefined"]


def begin(backends: Backends, name: str, do: str) -> Future[Answer]:
    return backends.server.pool.submit(backends.server.infer, name, do=do)


def test_a_request_that_is_not_answered_waits_alone_and_is_answered_in_the_end(backends: Backends) -> None:
    backends.load("keeps")
    kept = [begin(backends, "keeps", "keep") for _ in range(3)]
    backends.until_back("keeps")
    backends.server.assert_idle()
    assert not any(request.done() for request in kept)

    def are_answered() -> bool:
        assert backends.server.infer("keeps", do="let go") == GOOD
        return all(request.done() for request in kept)

    backends.server.until(are_answered)
    assert [request.result() for request in kept] == [GOOD] * 3


@pytest.mark.stress
@pytest.mark.parametrize("isolation", ["process", "thread"])
def test_functions_that_do_not_return_keep_neither_others_nor_the_end(
    compiled: Compiled, tmp_path: Path, isolation: str
) -> None:
    (tmp_path / "backends/faulty").mkdir(parents=True)
    library = shutil.copy(
        compiled("backends/faulty.cc", "-pthread"), tmp_path / "backends/faulty/libtriton_faulty.so"
    )
    flags = (f"--backend-directory={tmp_path / 'backends'}", "--exit-timeout-secs=2")
    with serving(tmp_path / "models", *flags) as server:
        backends = Backends(server, Path(library))
        for where in ("ModelInstanceExecute", *ENDING):
            backends.load(where, f"{where} hang", isolation)
        hanging = server.begin("ModelInstanceExecute")
        loads = []
        for where in LOADING:
            backends.add(where, f"{where} hang", isolation)
            loads.append(server.pool.submit(server.load, where))
        for where in ENDING:
            assert server.infer(where) == GOOD
            assert server.unload(where) == GOOD

        server.assert_well()
        server.assert_idle()
        server.process.send_signal(signal.SIGTERM)

        server.process.wait(DEADLINE_S)
        for future in (hanging, *loads):
            future.exception()  # its client was cut off, or told
