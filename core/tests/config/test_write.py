"""The configuration as `GET /v2/models/<name>/config` shows it.

`recorded.json` holds configurations given to tritonserver 2.51 and what it answered.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tritonpy.config.load import parse_config
from tritonpy.config.write import config_to_dict
from tritonpy.protos import ModelConfig

JsonValue = Any  # Any: JSON

RECORDED: list[dict[str, JsonValue]] = json.loads(Path(__file__).with_name("recorded.json").read_text())
MAPS = {
    "cc_model_filenames",
    "inputs",
    "metric_tags",
    "parameters",
    "priority_queue_policy",
}  # Triton shows their entries in no particular order
STRINGS_IN_TRITON = {"dim", "device_id"}  # 64-bit integers that it does not turn into numbers


def shown(text: str) -> dict[str, JsonValue]:
    return config_to_dict(parse_config(text, "config.pbtxt"))


def with_numbers(value: JsonValue, key: str = "") -> JsonValue:
    if isinstance(value, dict):
        if "zero_data" in value and "name" in value:  # an initial state
            value = value | {"dims": list(map(int, value["dims"]))}
        return {name: with_numbers(element, name) for name, element in value.items()}
    if isinstance(value, list):
        return [with_numbers(element, key) for element in value]
    return int(value) if key in STRINGS_IN_TRITON else value


def keys_in_order(value: JsonValue, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        is_map = path.rpartition(".")[2] in MAPS
        for key in sorted(value) if is_map else value:
            yield f"{path}.{key}"
            yield from keys_in_order(value[key], f"{path}.{key}")
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from keys_in_order(element, f"{path}[{index}]")


@pytest.mark.parametrize("record", RECORDED, ids=[record["name"] for record in RECORDED])
def test_a_settled_configuration_is_shown_as_the_real_server_shows_it(
    record: dict[str, JsonValue], settle: Any
) -> None:
    config = settle(record["text"], name=record["name"], files=record["files"])

    answer = config_to_dict(config)
    assert answer == with_numbers(record["shown"])
    assert list(keys_in_order(answer)) == list(keys_in_order(record["shown"]))


def test_the_recordings_cover_every_kind_of_scheduler_and_policy() -> None:
    texts = " ".join(record["text"] for record in RECORDED)

    for word in ("dynamic_batching", "oldest", "direct", "specific", "all {}", "cuda", "model_warmup"):
        assert word in texts


def test_messages_that_are_not_set_are_not_shown_and_those_that_are_show_all_plain_fields() -> None:
    assert "optimization" not in shown("")
    assert shown("response_cache {}")["response_cache"] == {"enable": False}
    assert shown("version_policy { all {} }")["version_policy"] == {"all": {}}


def test_of_a_choice_only_what_was_chosen_is_shown_even_when_it_is_false() -> None:
    sample = shown('model_warmup { inputs { key: "A" value { zero_data: false } } }')["model_warmup"][0]

    assert sample["inputs"]["A"] == {"data_type": "TYPE_INVALID", "dims": [], "zero_data": False}


def test_maps_are_sorted_by_key_and_their_keys_are_text() -> None:
    config = shown(
        "dynamic_batching { priority_queue_policy { key: 10 value {} }"
        "  priority_queue_policy { key: 9 value {} } }"
        'metric_tags { key: "b" value: "1" } metric_tags { key: "a" value: "2" }'
    )

    assert list(config["dynamic_batching"]["priority_queue_policy"]) == ["9", "10"]
    assert list(config["metric_tags"].items()) == [("a", "2"), ("b", "1")]


def test_64_bit_integers_are_numbers() -> None:
    config = shown(
        "dynamic_batching { max_queue_delay_microseconds: 18446744073709551615 }"
        "input { dims: [-1, 9223372036854775807] }"
    )

    assert config["dynamic_batching"]["max_queue_delay_microseconds"] == 2**64 - 1
    assert config["input"][0]["dims"] == [-1, 2**63 - 1]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("0.3", 0.3),
        ("0.1", 0.1),
        ("1", 1),
        ("0.12345679", 0.12345679),
        ("1e-45", 1e-45),
        ("3.4028235e38", 3.4028234663852886e38),
        ("-0.0", -0.0),
        ("16777216", 16777216),
        ("inf", "Infinity"),
        ("-inf", "-Infinity"),
        ("nan", "NaN"),
    ],
)
def test_32_bit_floats_are_shown_as_short_as_they_can_be(written: str, expected: JsonValue) -> None:
    config = shown(f"sequence_batching {{ direct {{ minimum_slot_utilization: {written} }} }}")

    utilization = config["sequence_batching"]["direct"]["minimum_slot_utilization"]
    assert (utilization, type(utilization)) == (expected, type(expected))


def test_64_bit_floats_are_shown_in_full() -> None:
    config = shown("model_metrics { metric_control { histogram_options { buckets: [0.1, 100, inf] } } }")

    control = config["model_metrics"]["metric_control"][0]
    assert control["histogram_options"]["buckets"] == [0.1, 100, "Infinity"]


def test_an_enum_number_from_the_future_is_shown_as_a_number() -> None:
    config = ModelConfig()
    config.input.add(data_type=99)

    assert config_to_dict(config)["input"][0]["data_type"] == 99


def test_a_field_named_like_a_python_keyword_is_shown() -> None:
    config = shown('instance_group { rate_limiter { resources { name: "R" global: true } } }')

    assert config["instance_group"][0]["rate_limiter"]["resources"] == [
        {"name": "R", "global": True, "count": 0}
    ]
