from __future__ import annotations

import json
import logging
import os
import re
from pathlib import Path

import pytest
from tritonpy import logs
from tritonpy.request import InferRequest

from .conftest import log_options

LOG = logging.getLogger("tritonpy.test")


def test_default_line_has_tritons_shape(log_path: Path) -> None:
    with logs.configure(log_options(log_path)):
        LOG.warning("hello %s", "world")

    line = log_path.read_text()
    assert re.fullmatch(
        rf'W\d{{4}} \d\d:\d\d:\d\d\.\d{{6}} {os.getpid()} test_log_lines\.py:\d+\] "hello world"\n', line
    )


def test_iso8601_line_has_tritons_shape(log_path: Path) -> None:
    with logs.configure(log_options(log_path, log_format="ISO8601")):
        LOG.info("hello")

    line = log_path.read_text()
    assert re.fullmatch(
        rf'\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ I {os.getpid()} test_log_lines\.py:\d+\] "hello"\n', line
    )


def test_json_line_carries_context_and_exception(log_path: Path) -> None:
    with logs.configure(log_options(log_path, log_format="json")):
        try:
            raise ValueError("broken")
        except ValueError:
            LOG.exception("failed", extra={"model": "digits", "version": 3, "request_id": "a b"})

    line = json.loads(log_path.read_text())
    assert line["level"] == "ERROR"
    assert line["message"] == "failed"
    assert (line["model"], line["version"], line["request_id"]) == ("digits", "3", "a b")
    assert line["pid"] == os.getpid()
    assert line["file"] == "test_log_lines.py"
    assert line["exception"].endswith("ValueError: broken")
    assert line["time"].endswith("Z")


def test_context_follows_the_message_and_odd_values_are_quoted(log_path: Path) -> None:
    with logs.configure(log_options(log_path)):
        LOG.info("ran", extra={"model": "digits", "version": "1", "request_id": 'a "b"'})

    assert log_path.read_text().endswith('] "ran" model=digits version=1 request_id="a \\"b\\""\n')


@pytest.mark.parametrize("log_format", ["default", "ISO8601", "json"])
def test_a_message_that_begins_with_its_requests_id_says_it_once(log_path: Path, log_format: str) -> None:
    request = InferRequest("digits", {}, id="r 1")
    with logs.configure(log_options(log_path, log_format=log_format)):
        LOG.warning("%sno", request.label, extra=request.about)
        LOG.warning("[request id: other] no", extra=request.about)

    one, other = log_path.read_text().splitlines()
    if log_format == "json":
        assert [json.loads(line)["request_id"] for line in (one, other)] == ["r 1", "r 1"]
    else:
        assert one.endswith('] "[request id: r 1] no" model=digits')
        assert other.endswith('] "[request id: other] no" model=digits request_id="r 1"')


def test_a_clients_text_cannot_forge_a_line(log_path: Path) -> None:
    forged = 'x\nE1121 00:00:00.000000 1 server.cc:1] "all is lost"'
    with logs.configure(log_options(log_path)):
        try:
            raise ValueError(forged)
        except ValueError:
            LOG.exception("bad input %s", forged, extra={"request_id": forged})

    lines = log_path.read_text().splitlines()
    assert [line for line in lines if line.startswith("E")] == lines[:1]


def test_a_table_stands_below_a_line_without_text_as_tritons_do(log_path: Path) -> None:
    with logs.configure(log_options(log_path)):
        LOG.info("models", extra={"table": "+---+\n| a |\n+---+"})

    assert log_path.read_text().endswith("] \n+---+\n| a |\n+---+\n\n")


@pytest.mark.parametrize("char", ["\r", "\x1b", "\x7f", "\x85", "\x9b", "\u2028", "\u202e"])
def test_what_is_not_printable_is_escaped(log_path: Path, char: str) -> None:
    with logs.configure(log_options(log_path)):
        LOG.warning("a%sb é", char, extra={"request_id": f"r{char}"})

    line = log_path.read_text()
    assert line.removesuffix("\n").isprintable()
    escaped = json.dumps(char)
    assert line.endswith(f'] "a{escaped[1:-1]}b é" request_id="r{escaped[1:-1]}"\n')


def test_a_json_line_holds_printable_characters_only(log_path: Path) -> None:
    text = "a\n\x1b\x9b\u2028\U000e0001b é"
    with logs.configure(log_options(log_path, log_format="json")):
        LOG.warning(text)

    line = log_path.read_text().removesuffix("\n")
    assert line.isprintable()
    assert "é" in line
    assert json.loads(line)["message"] == text


def test_a_json_line_carries_its_table(log_path: Path) -> None:
    with logs.configure(log_options(log_path, log_format="json")):
        LOG.info("models", extra={"table": "+---+\n| a |\n+---+"})

    line = json.loads(log_path.read_text())
    assert (line["message"], line["table"]) == ("models", "+---+\n| a |\n+---+")


def test_verbose_lines_carry_the_letter_of_information(log_path: Path) -> None:
    with logs.configure(log_options(log_path, log_verbose=1)):
        LOG.debug("detail")

    assert log_path.read_text().startswith("I")
