"""From a configuration to text in one of its forms; what was not set is not written."""

from __future__ import annotations

import json
from typing import Literal

from google.protobuf import text_format

from tritonpy.config.schema import ModelConfig
from tritonpy.config.to_dict import JsonObject, config_to_dict
from tritonpy.protos import POOL

ConfigForm = Literal["pbtxt", "json", "yaml"]
"""How a configuration may be written: protobuf text format, JSON or YAML."""


def write_config(config: ModelConfig, form: ConfigForm) -> str:
    """Write a configuration so that reading the text gives the same configuration again.

    Args:
        config: read from a file, or settled; only what is set in it is written.
        form: fields stand in Triton's order in all of them.

    Returns:
        Text that ends with a line break; "" or an empty object for a configuration in which nothing is set.
    """
    match form:
        case "pbtxt":
            return _write_text(config)
        case "json":
            return json.dumps(given_fields(config), indent=2, ensure_ascii=False) + "\n"
        case "yaml":
            from tritonpy.config.yaml_text import write_yaml  # a library that only YAML needs

            return write_yaml(given_fields(config))


def given_fields(config: ModelConfig) -> JsonObject:
    """The configuration as JSON values, in the shape of `config_to_dict`, without what is not set."""
    return config_to_dict(config, with_defaults=False)


def _write_text(config: ModelConfig) -> str:
    text: str = text_format.MessageToString(
        config,
        as_utf8=True,
        use_index_order=True,  # the order of our descriptors, which is that of Triton's answers
        use_short_repeated_primitives=True,
        descriptor_pool=POOL,
    )
    return text
