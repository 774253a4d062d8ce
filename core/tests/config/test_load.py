"""Configuration files and JSON texts, and what their errors say."""

from __future__ import annotations

from pathlib import Path

import pytest
from tritonpy.config.load import load_config, parse_config, parse_config_json
from tritonpy.config.write import ConfigForm
from tritonpy.errors import InvalidArg, NotFound


def test_both_ways_to_write_a_list_and_comments_are_read(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_text(
        """
        # what digits look like
        max_batch_size: 8
        input [ { name: "a" data_type: TYPE_FP32 dims: [ -1, 3 ] }, { name: "b" } ]
        output { name: "c" } output { name: "d" }  # two blocks
        parameters: { key: "k", value: { string_value: "ü" } }
        """
    )

    config = load_config(path)

    assert [tensor.name for tensor in config.input] == ["a", "b"]
    assert list(config.input[0].dims) == [-1, 3]
    assert [tensor.name for tensor in config.output] == ["c", "d"]
    assert config.parameters["k"].string_value == "ü"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"

    with pytest.raises(NotFound) as raised:
        load_config(path)

    assert str(raised.value) == f"failed to open text file for read {path}: No such file or directory"


def test_a_file_that_is_no_text_is_refused_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_bytes(b'name: "m"\n# \xff\n')

    with pytest.raises(InvalidArg) as raised:
        load_config(path)

    assert str(raised.value) == f"failed to read text proto from {path}: line 2: not UTF-8 text"


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ('name: "m"\nnonsense: 3', "line 2, column 1", 'no field named "nonsense"'),
        ('input [\n  { name: "A"\n    dimz: [2] }]', "line 3, column 5", 'no field named "dimz"'),
        ("input [{ data_type: TYPE_FP31 }]", "line 1, column 21", "TYPE_FP31"),
        ('max_batch_size: "8"', "line 1, column 17", 'Couldn\'t parse integer: "8"'),
        ("input [ { ", "line 1, column 9", "Expected"),
        (
            'name: "m"\nbatch_input { kind: 99 }',
            "line 2, column 1",
            "batch_input[0].kind': got 99",
        ),
    ],
)
def test_errors_in_text_format_tell_file_line_and_column(text: str, place: str, reason: str) -> None:
    with pytest.raises(InvalidArg) as raised:
        parse_config(text, "models/m/config.pbtxt")

    message = str(raised.value)
    assert message.startswith(f"failed to read text proto from models/m/config.pbtxt: {place}: ")
    assert reason in message  # the rest is protobuf's own, and differs between its versions


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("pbtxt", f"{'x' * 100_000}: 1"),
        ("pbtxt", f"max_batch_size: {'9' * 100_000}"),
        ("json", f'{{"max_batch_size": {"9" * 100_000}}}'),
        ("json", f'{{"{"x" * 100_000}": 1, "{"x" * 100_000}": 1}}'),
        ("yaml", f"a: !<{'x' * 100_000}> 1"),
    ],
)
def test_an_error_does_not_repeat_a_text_of_any_length(form: ConfigForm, text: str) -> None:
    with pytest.raises(InvalidArg) as raised:
        parse_config(text, "c", form)

    assert len(str(raised.value)) < 1200


def test_two_schedulers_in_one_text_are_refused() -> None:
    with pytest.raises(InvalidArg, match="scheduling_choice"):
        parse_config("dynamic_batching {} sequence_batching {}", "c")


def test_json_text_is_read_as_an_override() -> None:
    config = parse_config_json('{"maxBatchSize": 3, "backend": "python"}', "m")

    assert (config.max_batch_size, config.backend) == (3, "python")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{",
            "the configuration of model 'm' is not JSON: Expecting property name",
        ),
        ("[1]", r"the configuration of model 'm' is not valid: as a whole: got \[1\], expected an object"),
        ("[" * 100_000, "the configuration of model 'm' is not JSON: "),
        (b"\xff\xfe{", "the configuration of model 'm' is not JSON: "),
    ],
)
def test_text_that_is_no_json_object_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(InvalidArg, match=f"^{message}"):
        parse_config_json(text, "m")
