"""The page on the configuration tells every field, and its examples are what it says they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tritonpy.config.load import parse_config
from tritonpy.config.write import write_config
from tritonpy.lifecycle.resolved_config import read_config
from tritonpy.protos import POOL
from tritonpy.repository.layout import read_model

PAGE = (Path(__file__).parents[2] / "docs/reference/model-configuration.md").read_text()
EXAMPLES = {
    form: re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    for form, language in (("pbtxt", "protobuf"), ("json", "json"), ("yaml", "yaml"))
}
TOLD = set(re.findall(r"`([A-Za-z0-9_]+)`", PAGE))


def words(message: str, seen: set[str]) -> Iterator[str]:
    """The names of all fields of a message and of those in it, and of the values of their enums."""
    seen.add(message)
    for field in POOL.FindMessageTypeByName(message).fields:
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            yield field.name
            inner = inner.fields_by_name["value"].message_type
        else:
            yield field.name
        if field.enum_type is not None:
            yield from (value.name for value in field.enum_type.values)
        if inner is not None and inner.full_name not in seen:
            yield from words(inner.full_name, seen)


def test_every_field_and_every_word_is_told() -> None:
    known = set(words("inference.ModelConfig", set()))

    assert known - TOLD == {"TYPE_INVALID"}  # which stands for a type that is not given


def test_the_example_is_the_same_in_all_forms() -> None:
    [text], [json_text], [yaml_text] = EXAMPLES.values()
    config = parse_config(text, "config.pbtxt")

    assert parse_config(json_text, "config.json", "json") == config
    assert parse_config(yaml_text, "config.yaml", "yaml") == config


@pytest.mark.parametrize("form", EXAMPLES)
def test_the_example_configures_a_model(tmp_path: Path, form: str) -> None:
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/1/model.py").touch()
    (tmp_path / f"m/config.{form}").write_text(EXAMPLES[form][0])

    config = read_config(read_model(tmp_path / "m"), is_strict=True)

    assert (config.name, config.default_model_filename, config.max_batch_size) == ("m", "model.py", 8)
    assert 'key: "language"' in write_config(config, "pbtxt")
