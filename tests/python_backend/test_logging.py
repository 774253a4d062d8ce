"""What models write."""

from __future__ import annotations

import re

import pytest

LEVELS = [("info", "I"), ("warning", "W"), ("error", "E"), ("verbose", "I")]


def line_of(prefix: str, text: str) -> str:
    """A pattern; the real server sometimes writes two lines into one."""
    return rf'{prefix}\d{{4}} \S+ \d+ \S+\] "{text}"'


@pytest.mark.parametrize(("level", "prefix"), LEVELS)
def test_each_level_has_its_letter(server, level, prefix):
    server.ask("logs.each_level", f"each {level}")

    server.wait_for_log(line_of(prefix, f"each {level} {level}"))


@pytest.mark.parametrize(("level", "prefix"), [("default", "I"), *LEVELS])
def test_a_level_may_be_an_argument(server, level, prefix):
    server.ask("logs.by_level", f"by {level}")

    server.wait_for_log(line_of(prefix, f"by {level} {level}"))


def test_verbose_lines_need_log_verbose(explicit_server):
    explicit_server.ask("logs.each_level", "quiet")

    explicit_server.wait_for_log("quiet error")
    assert "quiet verbose" not in explicit_server.log


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("two\nlines of it", '"two\\nlines of it"'),
        ('a "quoted" é word', '"a \\"quoted\\" é word"'),
        ("100 % {braces}", '"100 % {braces}"'),
    ],
)
def test_a_line_stays_one_line(server, text, written):
    server.ask("logs.any_text", text)

    server.wait_for_log(rf"(?m)^I.*\] {re.escape(written)}")


def test_only_text_is_logged(server):
    kinds = server.ask("logs.refused")

    assert kinds[:2] == ["TypeError"] * 2
    assert None not in kinds


def test_what_a_model_prints_goes_where_the_server_s_output_goes(server):
    server.ask("logs.printed", "printed here")

    server.wait_for_log("printed here err")
    if server.is_ours:  # the real stub holds its standard output back
        server.wait_for_log("printed here out")
