"""The same configuration in text format, JSON and YAML, and what is wrong with texts that are none."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from tritonpy.config.load import load_config, parse_config, parse_config_json
from tritonpy.config.read import read_document
from tritonpy.config.write import ConfigForm, given_fields, write_config
from tritonpy.errors import InvalidArg

from .test_read import documents

FORMS: tuple[ConfigForm, ...] = ("pbtxt", "json", "yaml")
ENDINGS = {"config.pbtxt": "pbtxt", "config.json": "json", "config.yaml": "yaml", "config.yml": "yaml"}
EXAMPLE = """\
backend: python
max_batch_size: 8
input:
  - name: A
    data_type: TYPE_FP32
    dims: [-1, 3]
dynamic_batching: {}
parameters:
  threads:
    string_value: '4'
"""


@pytest.mark.parametrize("form", FORMS)
@given(documents("inference.ModelConfig"))
def test_a_configuration_that_is_written_and_read_is_the_same(
    form: ConfigForm, document: dict[str, Any]
) -> None:
    config = read_document(document)

    text = write_config(config, form)

    assert parse_config(text, "config", form) == config
    assert write_config(parse_config(text, "config", form), form) == text


@pytest.mark.parametrize("source", FORMS)
@pytest.mark.parametrize("target", FORMS)
def test_each_form_is_converted_into_each(source: ConfigForm, target: ConfigForm) -> None:
    config = parse_config(EXAMPLE, "config.yaml", "yaml")

    text = write_config(parse_config(write_config(config, source), "a", source), target)

    assert parse_config(text, "b", target) == config


def test_only_what_is_set_is_written() -> None:
    config = parse_config("max_batch_size: 0 dynamic_batching {} input { dims: [2] }", "config.pbtxt")

    assert given_fields(config) == {"input": [{"dims": [2]}], "dynamic_batching": {}}


def test_yaml_is_written_as_a_person_would() -> None:
    assert write_config(parse_config(EXAMPLE, "config.yaml", "yaml"), "yaml") == EXAMPLE


@pytest.mark.parametrize("form", FORMS)
def test_an_empty_configuration_can_be_written_and_read(form: ConfigForm) -> None:
    config = parse_config("", "config.pbtxt")

    assert parse_config(write_config(config, form), "config", form) == config


@pytest.mark.parametrize(("name", "form"), ENDINGS.items())
def test_the_ending_of_a_file_tells_its_form(tmp_path: Path, name: str, form: ConfigForm) -> None:
    path = tmp_path / name
    path.write_text(write_config(parse_config(EXAMPLE, "config.yaml", "yaml"), form))

    assert load_config(path).max_batch_size == 8


@pytest.mark.parametrize(
    ("form", "text", "said"),
    [
        ("json", '{"name": "m",\n  "name": "n"}', "'name' is there twice"),
        ("json", '{"name": }', "line 1, column 10: Expecting value"),
        ("json", '{\n "max_batch_size": 3,\n "dimz": 1}', "line 3, column 2: no field is called 'dimz'"),
        (
            "json",
            '{"input": [{"name": "A", "dims": [1]},\n  {"name": "]}", "dims": [1, "x"]}]}',
            "line 2, column 30: field 'input[1].dims[1]': got 'x', expected a whole number",
        ),
        ("json", "[1]", "line 1, column 1: as a whole: got [1], expected an object"),
        ("json", "[" * 100_000, "it is nested too deeply"),
        ("json", '{"max_batch_size": ' + "9" * 5000 + "}", "a whole number has thousands of digits"),
        ("yaml", "name: m\nname: n\n", "line 2, column 1: 'name' is there twice"),
        (
            "yaml",
            "input:\n  - dims: [1, x]\n",
            "line 2, column 15: field 'input[0].dims[1]': got 'x', expected",
        ),
        ("yaml", "input:\n  - dimz: 1\n", "line 2, column 5: no field is called 'dimz' in 'input[0]'"),
        (
            "yaml",
            "max_batch_size: [",
            "line 1, column 18: while parsing a flow node, expected the node content",
        ),
        ("yaml", "a: &x [1]\nb: *x\n", "line 1, column 4: anchors and aliases (& and *) have no place"),
        ("yaml", "name: *x\n", "line 1, column 7: anchors and aliases"),
        (
            "yaml",
            "name: !!python/name:os.system\n",
            "line 1, column 7: tag 'tag:yaml.org,2002:python/name:os.system' has",
        ),
        ("yaml", "name: !!int x\n", "line 1, column 7: tag 'tag:yaml.org,2002:int' has no place"),
        ("yaml", "name: !mine {}\n", "line 1, column 7: tag '!mine' has no place"),
        ("yaml", "? [a]\n: 1\n", "line 1, column 3: a key is a mapping or a list, expected text"),
        ("yaml", "name: a\n--- \nname: b\n", "line 2, column 1: expected a single document"),
        ("yaml", "max_batch_size: " + "9" * 5000, "line 1, column 17: a number of 5000 characters"),
        ("yaml", "name: \x00", "line 1, column 7: special characters are not allowed: U+0000"),
        ("yaml", "[" * 100_000, "it is nested too deeply"),
        ("yaml", "- 1\n", "as a whole: got [1], expected an object"),
        ("yaml", "name: 3\n", "line 1, column 1: field 'name': got 3, expected a string"),
        ("pbtxt", 'name: "m"\ninput { name: 3 }', "line 2, column 15: Expected string but found: '3'"),
        ("pbtxt", "input {" * 100_000, ""),
    ],
)
def test_a_text_that_does_not_fit_is_refused_with_its_place(form: ConfigForm, text: str, said: str) -> None:
    with pytest.raises(InvalidArg) as raised:
        parse_config(text, f"models/m/config.{form}", form)

    what = "text proto" if form == "pbtxt" else form.upper()
    message = str(raised.value)
    assert message.startswith(f"failed to read {what} from models/m/config.{form}: {said}")
    assert len(message) < 600


def test_words_and_times_in_yaml_are_text_and_keys_are_what_is_written() -> None:
    config = parse_config(
        "metric_tags: {switch: yes, time: 12:30, date: 2020-01-01, octal: 0o7, 8.0: '1'}\n"
        "dynamic_batching: {priority_queue_policy: {2: {max_queue_size: 010}}}\n",
        "config.yaml",
        "yaml",
    )

    assert dict(config.metric_tags) == {
        "switch": "yes",
        "time": "12:30",
        "date": "2020-01-01",
        "octal": "0o7",
        "8.0": "1",
    }
    assert config.dynamic_batching.priority_queue_policy[2].max_queue_size == 10


def test_what_is_written_in_yaml_means_the_same_to_other_programs() -> None:
    words = ["yes", "on", "null", "~", "1e5", "0x10", "12:30", "2020-01-01", "<<", "=", "1_000", "", ".inf"]
    tags = " ".join(f"metric_tags {{ key: '{word}' value: '{word}' }}" for word in words)
    config = parse_config(tags, "config.pbtxt")

    read = yaml.safe_load(write_config(config, "yaml"))

    assert read == {"metric_tags": {word: word for word in words}}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_configuration_that_is_too_large_is_refused_unread(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"#" * 10_000_000)

    with pytest.raises(InvalidArg) as raised:
        load_config(path)

    assert re.fullmatch(
        r"failed to read (text proto|JSON|YAML) from .*: it has more than 1048576 bytes, the most that a "
        r"configuration may have \(--max-model-config-bytes\)",
        str(raised.value),
    )
    assert load_config(path, max_byte_size=10_000_000) if name.endswith("pbtxt") else True


def test_a_configuration_in_a_request_that_is_too_large_is_refused_unread() -> None:
    with pytest.raises(InvalidArg, match=r"has 20 bytes, expected at most 19 \(--max-model-config-bytes\)"):
        parse_config_json('{"name": "123456789"', "m", max_byte_size=19)


def turns_during(work: Callable[[], object]) -> int:
    """How often this thread has its turn while another one works."""
    worker = threading.Thread(target=work)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    turns = 0
    try:
        worker.start()
        while worker.is_alive():
            time.sleep(0.001)
            turns += 1
    finally:
        sys.setswitchinterval(interval)
        worker.join()
    return turns


@pytest.mark.parametrize("form", ["pbtxt", "yaml"])
def test_other_threads_run_while_a_large_configuration_is_read(form: ConfigForm) -> None:
    config = parse_config("", "config.pbtxt")
    for number in range(1500):
        config.input.add(name=f"input-{number}", dims=[1, 2, 3])
    text = write_config(config, form)

    # A parser in C would hold the interpreter's lock until it is done, each time; a busy machine gives this
    # thread few turns now and then.
    assert any(turns_during(lambda: parse_config(text, "config", form)) > 20 for _ in range(10))
