"""Agents that use descriptors which are not theirs, or print what nobody can read quickly."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tritonpy.plugin import TritonError
from tritonpy_abi.agents.library import AgentLibrary
from tritonpy_sdk.testing import load_with_agent

from ..conftest import Compiled

Load = Callable[[str], None]


@pytest.fixture
def load(compiled: Compiled, tmp_path: Path) -> Load:
    directory = tmp_path / "net"
    directory.mkdir()
    library = str(compiled("agents/meddler.c"))

    def load(deed: str) -> None:
        with load_with_agent(AgentLibrary(library), directory, {"do": deed}):
            pass

    return load


@pytest.mark.parametrize("deed", ["close", "write an object", "write a list", "write a length"])
def test_an_agent_that_cuts_itself_off_fails_its_load_and_does_not_hang_it(load: Load, deed: str) -> None:
    with pytest.raises(TritonError) as caught:
        load(deed)

    assert "SIGKILL" in caught.value.message
    assert "in TRITONREPOAGENT_ModelAction with LOAD for model 'net'" in caught.value.message


def test_it_is_said_what_an_agent_has_done(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(TritonError):
        load("write a length")

    assert "has written into the connection between its process and the server" in caplog.text
    assert "a message of 4294967295 bytes" in caplog.text


@pytest.mark.parametrize(("what", "shown"), [("digits", "7777777777"), ("half a character", r"\ud800")])
def test_what_only_looks_like_a_log_line_is_printed_and_the_next_one_too(
    load: Load, caplog: pytest.LogCaptureFixture, what: str, shown: str
) -> None:
    caplog.set_level("INFO")

    load(f"print {what}")

    assert shown in caplog.text
    assert "printed afterwards" in caplog.text


def test_what_looks_like_many_log_lines_takes_no_long_time(
    load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    start = time.process_time()

    load("print beginnings")

    assert "printed afterwards" in caplog.text
    assert time.process_time() - start < 2
