"""Plain dicts read as configurations, and back again."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.config.field_types import Field, Value, message_fields
from tritonpy.config.load import parse_config, parse_config_json
from tritonpy.config.read import config_from_dict
from tritonpy.config.write import config_to_dict
from tritonpy.errors import InvalidArg
from tritonpy.protos import POOL, ModelConfig

JsonValue = Any  # Any: JSON


def read(document: Mapping[str, JsonValue]) -> ModelConfig:
    return config_from_dict(document, "m")


# Documents with any of the fields the descriptors know.

_TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)


def whole_numbers(message: str, name: str) -> st.SearchStrategy[int]:
    field = POOL.FindMessageTypeByName(message).fields_by_name[name]
    largest = {
        field.TYPE_INT32: (-(2**31), 2**31 - 1),
        field.TYPE_INT64: (-(2**63), 2**63 - 1),
        field.TYPE_UINT32: (0, 2**32 - 1),
        field.TYPE_UINT64: (0, 2**64 - 1),
    }
    low, high = largest[field.type]
    return st.integers(low, high)


def single_values(message: str, name: str, value: Value) -> st.SearchStrategy[JsonValue]:
    match value.kind:
        case "message":
            return documents(value.message)
        case "enum":
            return st.sampled_from(sorted(value.enum_names.values()))
        case "bool":
            return st.booleans()
        case "str":
            return _TEXTS
        case "int":
            return whole_numbers(message, name)
        case "float32":
            return st.floats(allow_nan=False, allow_infinity=False, width=32)
        case "float64":
            return st.floats(allow_nan=False, allow_infinity=False)


def field_values(message: str, field: Field) -> st.SearchStrategy[JsonValue]:
    if field.map_key is not None:
        keys = st.integers(0, 2**64 - 1).map(str) if field.map_key == "int" else _TEXTS
        entry = POOL.FindMessageTypeByName(message).fields_by_name[field.name].message_type
        assert entry is not None
        return st.dictionaries(keys, single_values(entry.full_name, "value", field.value), max_size=2)
    values = single_values(message, field.name, field.value)
    return st.lists(values, max_size=2) if field.is_repeated else values


@st.composite
def documents(draw: st.DrawFn, message: str) -> dict[str, JsonValue]:
    fields = list(message_fields(message))
    chosen = draw(st.lists(st.sampled_from(fields), max_size=5)) if fields else []
    by_group = {field.oneof or field.name: field for field in chosen}
    return {field.name: draw(field_values(message, field)) for field in by_group.values()}


def assert_shows(shown: JsonValue, given_value: JsonValue) -> None:
    """Everything in the document is there again; what it left out may be there, too."""
    if isinstance(given_value, dict):
        for key, value in given_value.items():
            assert_shows(shown[key], value)
    elif isinstance(given_value, list):
        assert len(shown) == len(given_value)
        for left, right in zip(shown, given_value, strict=True):
            assert_shows(left, right)
    else:
        assert shown == pytest.approx(given_value, rel=1e-6) if isinstance(given_value, float) else True
        assert isinstance(given_value, float) or shown == given_value


@given(documents("inference.ModelConfig"))
def test_a_document_survives_the_way_through_the_message_and_back(document: dict[str, JsonValue]) -> None:
    config = read(document)
    shown = config_to_dict(config)

    assert_shows(shown, document)
    assert read(shown) == config
    assert read(json.loads(json.dumps(shown))) == config
    assert config_to_dict(read(shown)) == shown
    assert ModelConfig.FromString(config.SerializeToString()) == config


@given(documents("inference.ModelConfig"))
def test_text_format_says_the_same_as_the_document(document: dict[str, JsonValue]) -> None:
    config = read(document)

    assert parse_config(text_format.MessageToString(config), "config.pbtxt") == config


def test_what_protobufs_json_allows_is_read() -> None:
    config = read(
        {
            "maxBatchSize": "3",
            "input": [{"name": "A", "dataType": "type_fp32", "dims": ["2", -1.0]}],
            "output": {"name": "B", "data_type": 13, "dims": []},
            "batch_input": [{"kind": "2"}],
            "dynamic_batching": None,
            "sequence_batching": {"direct": {"minimum_slot_utilization": "0.5"}},
            "model_transaction_policy": {"decoupled": "true"},
            "parameters": {"k": {"string_value": "v"}},
        }
    )

    assert config.max_batch_size == 3
    assert list(config.input[0].dims) == [2, -1]
    assert (config.input[0].data_type, config.output[0].data_type) == (11, 13)
    assert config.batch_input[0].kind == 2
    assert config.WhichOneof("scheduling_choice") == "sequence_batching"
    assert config.sequence_batching.direct.minimum_slot_utilization == 0.5
    assert config.model_transaction_policy.decoupled
    assert config.parameters["k"].string_value == "v"


def test_an_empty_object_sets_its_message() -> None:
    assert read({"dynamic_batching": {}}).HasField("dynamic_batching")
    assert read({"dynamic_batching": {"default_queue_policy": {}}}).dynamic_batching.HasField(
        "default_queue_policy"
    )
    assert "k" in read({"parameters": {"k": {}}}).parameters


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"max_batchsize": 1}, "no field is called 'max_batchsize'; did you mean 'max_batch_size'?"),
        (
            {"input": [{}, {"dimz": [1]}]},
            "no field is called 'dimz' in 'input[1]'; did you mean 'dims'?",
        ),
        (
            {"response_cache": {"zzz": 1}},
            "no field is called 'zzz' in 'response_cache'; fields here are enable",
        ),
        ({"max_batch_size": "many"}, "field 'max_batch_size': got 'many', expected a whole number"),
        ({"max_batch_size": 3.5}, "field 'max_batch_size': got 3.5, expected a whole number"),
        ({"max_batch_size": True}, "field 'max_batch_size': got True, expected a whole number"),
        ({"name": 3}, "field 'name': got 3, expected a string"),
        ({"input": 3}, "field 'input': got 3, expected a list"),
        ({"input": ["A"]}, "field 'input[0]': got 'A', expected an object"),
        ({"input": [None]}, "field 'input[0]': got None, expected an object"),
        ({"input": [{"dims": {"0": 1}}]}, "field 'input[0].dims': got {'0': 1}, expected a list"),
        (
            {"input": [{"format": "NCHW"}]},
            "field 'input[0].format': got 'NCHW', expected one of FORMAT_NONE, FORMAT_NHWC, FORMAT_NCHW",
        ),
        (
            {"batch_output": [{"kind": 7}]},
            "field 'batch_output[0].kind': got 7, expected one of BATCH_SCATTER_WITH_INPUT_SHAPE",
        ),
        ({"response_cache": {"enable": 1}}, "field 'response_cache.enable': got 1, expected true or false"),
        ({"response_cache": []}, "field 'response_cache': got [], expected an object"),
        ({"parameters": []}, "field 'parameters': got [], expected an object"),
        ({"parameters": {"a": "b"}}, "field 'parameters['a']': got 'b', expected an object"),
        ({"metric_tags": {"a": 1}}, "field 'metric_tags['a']': got 1, expected a string"),
        ({"metric_tags": {1: "a"}}, "field 'metric_tags['1']': got 1, expected a string as key"),
        (
            {"dynamic_batching": {"priority_queue_policy": {"high": {}}}},
            "field 'dynamic_batching.priority_queue_policy['high']': got 'high', expected a whole number",
        ),
        (
            {"sequence_batching": {"direct": {"minimum_slot_utilization": "half"}}},
            "field 'sequence_batching.direct.minimum_slot_utilization': got 'half', expected a number",
        ),
        (
            {"dynamic_batching": {}, "sequence_batching": {}},
            "field 'sequence_batching': 'dynamic_batching' is already set",
        ),
        (
            {"max_batch_size": 1, "maxBatchSize": 2},
            "field 'maxBatchSize': 'max_batch_size' is already set",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(document: dict[str, JsonValue], message: str) -> None:
    with pytest.raises(InvalidArg) as raised:
        read(document)

    assert str(raised.value) == f"the configuration of model 'm' is not valid: {message}"


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"max_batch_size": 4_000_000_000}, "max_batch_size"),
        ({"instance_group": [{"gpus": [2**31]}]}, r"instance_group\[0\].gpus\[0\]"),
        (
            {"dynamic_batching": {"max_queue_delay_microseconds": -1}},
            "dynamic_batching.max_queue_delay_microseconds",
        ),
        (
            {"dynamic_batching": {"priority_queue_policy": {"-1": {}}}},
            r"dynamic_batching.priority_queue_policy\['-1'\]",
        ),
        ({"name": "\ud800"}, "name"),
        ({"metric_tags": {"k": "\ud800"}}, r"metric_tags\['k'\]"),
        ({"metric_tags": {"\ud800": "v"}}, r"metric_tags\["),
        ({"parameters": {"\ud800": {}}}, r"parameters\["),
    ],
)
def test_values_out_of_range_are_refused_with_their_place(document: dict[str, JsonValue], place: str) -> None:
    with pytest.raises(InvalidArg, match=f"is not valid: field '{place}"):
        read(document)


def test_a_long_value_is_cut_in_the_error() -> None:
    with pytest.raises(InvalidArg) as raised:
        read({"max_batch_size": "x" * 1000})

    assert len(str(raised.value)) < 250


@pytest.mark.parametrize(
    "document",
    [
        {"x" * 1_000_000: 1},
        {"\ud800": 1},
        {"parameters": {"x" * 1_000_000: 1}},
        {"parameters": {"\ud800": 1}},
    ],
)
def test_any_name_can_be_written_in_an_error(document: dict[str, JsonValue]) -> None:
    with pytest.raises(InvalidArg) as raised:
        read(document)

    assert len(str(raised.value).encode("utf-8")) < 1000


@pytest.mark.parametrize("form", ["json", "override"])
def test_what_is_just_not_nested_too_deeply_is_refused_too(form: str) -> None:
    limit = sys.getrecursionlimit()
    for depth in range(limit - 200, limit):  # some of them can be read, but not shown
        text = f'{{"max_batch_size": {"[" * depth}{"]" * depth}}}'
        with pytest.raises(InvalidArg):
            parse_config_json(text, "m") if form == "override" else parse_config(text, "m.json", "json")
