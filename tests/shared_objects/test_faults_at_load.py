"""Strategies that are no good from the start: each is one clear error, and the server serves on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tritonpy_abi.build import library

from .conftest import Compiled
from .faults import FaultServer, configuration, serving

DEATHS = {"segfault": "SIGSEGV", "abort": "SIGABRT", "exit": "exit code 3", "kill": "SIGKILL"}
FUNCTIONS = (
    "ModelBatcherInitialize",
    "ModelBatchInitialize",
    "ModelBatchFinalize",
    "ModelBatcherFinalize",
)
ALL_FIVE = ("-DWITH_1", "-DWITH_2", "-DWITH_3", "-DWITH_4", "-DWITH_5")


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultServer]:
    with serving(tmp_path_factory.mktemp("models")) as server:
        yield server
        server.until(lambda: server.children() == [])


@pytest.fixture
def server(one_server: FaultServer) -> Iterator[FaultServer]:
    one_server.assert_well()
    yield one_server
    one_server.assert_well()


@pytest.fixture
def faulty(compiled: Compiled) -> Path:
    return compiled("strategies/faulty.cc")


def refusal(server: FaultServer, name: str) -> str:
    """What a client is told, and the index says as well; the log has its text."""
    answer = server.load(name)
    assert answer.status == 400, answer
    prefix = f"load failed for model '{name}': version 1 is at UNAVAILABLE state: "
    assert answer.error.startswith(prefix), answer
    reason = answer.error.removeprefix(prefix).removesuffix(";\n").removesuffix(";")
    server.until(lambda: reason.partition(": ")[2] in server.log)
    assert server.infer(name).status == 404
    return reason


def fail(server: FaultServer, name: str, faulty: Path, fault: str) -> str:
    """Load a model whose strategy does something wrong."""
    server.add(name, str(faulty), parameters={"FAULT": fault})
    return refusal(server, name)


@pytest.mark.parametrize(
    ("function", "fault"),
    [(function, "segfault") for function in FUNCTIONS]
    + [(FUNCTIONS[0], fault) for fault in list(DEATHS)[1:]],
)
def test_a_strategy_that_ends_its_process_ends_not_the_server(
    server: FaultServer, faulty: Path, function: str, fault: str
) -> None:
    reason = fail(server, f"{fault}_{function}", faulty, f"{function} {fault}")

    assert reason.startswith(
        f"Internal: batching strategy '{faulty}' ended the process it was tried in: {DEATHS[fault]} in "
        f"TRITONBACKEND_{function}; "
    )


@pytest.mark.stress
def test_libraries_that_do_not_return_are_named_and_keep_nobody_waiting(
    tmp_path: Path, faulty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITONPY_ABI_PROBE_S", "6")
    with serving(tmp_path / "models") as server:
        server.add("loops", str(faulty), parameters={"FAULT": "ModelBatcherInitialize loop"})
        directory = server.add("constructor_loops")
        shutil.copy(faulty, directory / "batchstrategy.so")
        (directory / "batchstrategy.so.fault").write_text("loop")
        loads = [server.pool.submit(server.load, name) for name in ("loops", "constructor_loops")]
        server.until(lambda: len(server.children()) == 2)

        server.assert_well()
        server.assert_idle()

        reasons = [load.result().error for load in loads]
        assert "was still in TRITONBACKEND_ModelBatcherInitialize after 6 s" in reasons[0]
        assert "was still being opened after 6 s" in reasons[1]
        server.until(lambda: server.children() == [])


@pytest.mark.parametrize("fault", [*DEATHS, "digits"])
def test_a_constructor_that_goes_wrong_ends_not_the_server(
    server: FaultServer, faulty: Path, fault: str
) -> None:
    directory = server.add(f"constructor_{fault}")
    shutil.copy(faulty, directory / "batchstrategy.so")
    (directory / "batchstrategy.so.fault").write_text(fault)

    reason = refusal(server, f"constructor_{fault}")

    assert "while it was opened" in reason
    assert DEATHS.get(fault, "") in reason


def test_the_error_of_a_strategy_reaches_the_client_with_code_and_text(
    server: FaultServer, faulty: Path
) -> None:
    reason = fail(server, "error", faulty, "ModelBatcherInitialize error")

    assert reason == "Unavailable: ModelBatcherInitialize had no wish to"


@pytest.mark.parametrize(("fault", "text"), [("digits", ": stoull"), ("throw", " that is no std::exception")])
def test_an_exception_of_a_strategy_is_an_error(
    server: FaultServer, faulty: Path, fault: str, text: str
) -> None:
    reason = fail(server, f"throws_{fault}", faulty, f"ModelBatcherInitialize {fault}")

    assert reason == f"Internal: TRITONBACKEND_ModelBatcherInitialize threw a C++ exception{text}"


@pytest.mark.parametrize("missing", range(5))
def test_a_library_that_lacks_a_function_is_refused_in_the_words_that_triton_has_for_it(
    server: FaultServer, compiled: Compiled, missing: int
) -> None:
    library = compiled("strategies/partial.c", *ALL_FIVE[:missing], *ALL_FIVE[missing + 1 :])
    server.add(f"lacks_{missing}", str(library))

    reason = refusal(server, f"lacks_{missing}")

    words = f"{library} does not define all required custom batching functions for model lacks_{missing}"
    assert reason.startswith(f"Invalid argument: {words}: TRITONBACKEND_ModelBatch")


def test_a_library_with_no_function_of_a_strategy_is_refused_with_their_names(
    server: FaultServer, compiled: Compiled
) -> None:
    library = compiled("strategies/partial.c")
    server.add("nothing", str(library))

    reason = refusal(server, "nothing")

    assert str(library) in reason
    assert all(f"TRITONBACKEND_{function}" in reason for function in FUNCTIONS)


CONTENTS = {
    "text": b"this is no library\n",
    "empty": b"",
    "magic": b"\x7fELF\x02\x01\x01",
}


@pytest.mark.parametrize("kind", CONTENTS)
@pytest.mark.skipif(
    not library().is_file(), reason="there was no C++ compiler when tritonpy-abi was installed"
)
def test_a_file_that_is_no_library_is_refused_in_the_linkers_words(server: FaultServer, kind: str) -> None:
    path = server.add(f"file_{kind}") / "1" / "batchstrategy.so"
    path.write_bytes(CONTENTS[kind])

    reason = refusal(server, f"file_{kind}")

    assert reason.startswith(f"Not found: unable to load shared library: {path}: ")


@pytest.mark.parametrize("tenths", [1, 3, 5, 7])
def test_a_library_that_was_copied_halfway_is_refused(
    server: FaultServer, compiled: Compiled, tenths: int
) -> None:
    content = compiled("strategies/partial.c", *ALL_FIVE, "-s").read_bytes()
    path = server.add(f"truncated_{tenths}") / "batchstrategy.so"
    path.write_bytes(content[: len(content) * tenths // 10])

    reason = refusal(server, f"truncated_{tenths}")

    assert str(path) in reason
    assert "SIGBUS" not in reason or "not copied to its end" in reason


def test_a_library_for_another_machine_is_refused_with_its_name(server: FaultServer, faulty: Path) -> None:
    content = bytearray(faulty.read_bytes())
    other = 62 if content[18] == 183 else 183
    content[18:20] = other.to_bytes(2, "little")
    path = server.add("machine") / "batchstrategy.so"
    path.write_bytes(content)

    reason = refusal(server, "machine")

    assert reason.startswith(f"Not found: unable to load shared library: {path}: ")
    assert ("x86-64" if other == 62 else "AArch64") in reason


def test_a_library_that_needs_one_that_is_not_there_is_refused_with_its_name(
    server: FaultServer, compiled: Compiled, tmp_path: Path
) -> None:
    needed = Path(shutil.copy(compiled("strategies/partial.c"), tmp_path / "libabsent.so"))
    library = compiled("strategies/partial.c", *ALL_FIVE, "-Wl,--no-as-needed", str(needed))
    needed.unlink()
    server.add("needs", str(library))

    assert "libabsent.so" in refusal(server, "needs")


def test_a_library_with_a_name_that_nobody_defines_is_refused_with_it(
    server: FaultServer, compiled: Compiled
) -> None:
    library = compiled("strategies/partial.c", *ALL_FIVE, "-DCALLS_NOBODY")
    server.add("undefined", str(library))

    assert "undefined symbol: nobody_defines_this" in refusal(server, "undefined")


def test_a_directory_and_a_missing_file_are_refused(server: FaultServer, tmp_path: Path) -> None:
    server.add("directory", str(tmp_path))
    (tmp_path / "strategy.so").mkdir()
    server.add("directory_so", str(tmp_path / "strategy.so"))
    server.add("missing", str(tmp_path / "missing.so"))

    for name in ("directory", "directory_so"):
        assert refusal(server, name).startswith("Not found: unable to load shared library: ")
    assert refusal(server, "missing").startswith(
        f"Not found: Batching library path not found: {tmp_path / 'missing.so'}"
    )


def test_a_relative_path_begins_at_the_version_then_at_the_model(
    server: FaultServer, faulty: Path, compiled: Compiled
) -> None:
    directory = server.add("relative", "lib/mine.so", parameters={"FAULT": "ModelBatcherInitialize error"})
    for place in (directory / "lib", directory / "1/lib"):
        place.mkdir()
    shutil.copy(compiled("strategies/partial.c", *ALL_FIVE), directory / "lib/mine.so")

    assert server.load("relative").status == 200

    shutil.copy(faulty, directory / "1/lib/mine.so")

    assert "Unavailable: ModelBatcherInitialize had no wish to" in server.load("relative").error


def test_a_path_outside_of_the_model_does_not_come_with_a_load_request(
    server: FaultServer, faulty: Path
) -> None:
    server.add("overridden")
    shutil.copy(faulty, server.models.path / "overridden" / "mine.so")

    refused = server.load("overridden", {"config": json.dumps(configuration(str(faulty)))})
    taken = server.load("overridden", {"config": json.dumps(configuration("mine.so"))})

    assert refused.status == 500
    assert "TRITON_BATCH_STRATEGY_PATH" in refused.error
    assert "inside the model's directory only" in refused.error
    assert taken.status == 200, taken


AGENT = """
import shutil
from tritonpy.plugin import hookimpl

@hookimpl
def repo_agent_model_action(agent, model, action):
    if action == "LOAD":
        place = model.acquire_directory() / "moved"
        shutil.copytree(model.directory, place)
        shutil.copy(model.parameters["library"], place / "mine.so")
        model.directory = place
"""


@pytest.mark.stress
def test_a_strict_server_takes_no_path_outside_of_the_model_wherever_an_agent_has_put_that(
    tmp_path: Path, faulty: Path
) -> None:
    (tmp_path / "agents/mover").mkdir(parents=True)
    (tmp_path / "agents/mover/agent.py").write_text(AGENT)
    flags = ("--strategy-path-policy=strict", f"--repoagent-directory={tmp_path / 'agents'}")
    with serving(tmp_path / "models", *flags) as server:
        inside = server.add("inside", "mine.so")
        shutil.copy(faulty, inside / "mine.so")
        server.add("outside", str(faulty))
        link = server.add("link", "mine.so")
        os.symlink(faulty, link / "mine.so")
        agent = {"name": "mover", "parameters": {"library": str(faulty)}}
        agents = {"model_repository_agents": {"agents": [agent]}}
        server.add("moved", "mine.so", **agents)
        fault = {"FAULT": "ModelBatcherInitialize segfault"}
        server.add("moved_faulty", "mine.so", parameters=fault, **agents)

        for name in ("inside", "moved"):
            assert server.load(name).status == 200
            assert server.infer(name).status == 200
        for name in ("outside", "link"):
            assert "Batching library path escapes model repository: " in refusal(server, name)
        assert "/moved/mine.so' ended the process it was tried in: SIGSEGV" in refusal(server, "moved_faulty")
        server.assert_well()


@pytest.mark.parametrize(
    ("source", "where", "fault", "text"),
    [
        ("caches", "CacheInitialize", "segfault", "SIGSEGV in TRITONCACHE_CacheInitialize"),
        ("strategies", "constructor", "segfault", "SIGSEGV while it was opened"),
    ],
)
def test_a_cache_that_goes_wrong_from_the_start_ends_the_start_with_an_error(
    tmp_path: Path, compiled: Compiled, source: str, where: str, fault: str, text: str
) -> None:
    library = tmp_path / "caches/faulty/libtritoncache_faulty.so"
    library.parent.mkdir(parents=True)
    shutil.copy(compiled(f"{source}/faulty.cc"), library)
    library.with_name(f"{library.name}.fault").write_text(fault)  # only strategies read it
    (tmp_path / "models").mkdir()
    command = [
        *(
            str(Path(sys.executable).with_name("corectl")),
            "serve",
            f"--model-repository={tmp_path / 'models'}",
        ),
        *("--http-port=0", "--grpc-port=0", "--metrics-port=0"),
        f"--cache-directory={tmp_path / 'caches'}",
        *(f"--cache-config=faulty,where={where}", f"--cache-config=faulty,fault={fault}"),
    ]

    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert done.returncode == 1
    assert text in done.stderr
    assert "Traceback" not in done.stderr
