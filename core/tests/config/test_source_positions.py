"""Where a field stands in each of the three forms."""

from __future__ import annotations

import pytest
from tritonpy.config.source_positions import Place, place_of_field
from tritonpy.config.write import ConfigForm

PBTXT = """\
# input { name: "Z" }
name: "input"
parameters { key: "input" value { string_value: "output {" } }
input [
  { name: "X" dims: [ 1 ] },
  { name: 'Y' }
]
  output < name: "X" >
"""
JSON = """\
{"parameters": {"input": {"string_value": "output"}},
 "input": [{"name": "X"},
           {"name": "Y"}]}
"""
YAML = """\
parameters:
  input: {string_value: output}
input:
  - name: X
  - name: "Y"
"""


@pytest.mark.parametrize(
    ("text", "form", "field", "value", "expected"),
    [
        (PBTXT, "pbtxt", "name", "", (2, 1)),
        (PBTXT, "pbtxt", "input", "", (4, 1)),
        (PBTXT, "pbtxt", "input", "X", (5, 11)),
        (PBTXT, "pbtxt", "input", "Y", (6, 11)),
        (PBTXT, "pbtxt", "input", "Z", (4, 1)),
        (PBTXT, "pbtxt", "output", "", (8, 3)),
        (PBTXT, "pbtxt", "max_batch_size", "", None),
        (JSON, "json", "input", "", (2, 2)),
        (JSON, "json", "input", "Y", (3, 21)),
        (JSON, "json", "output", "", None),
        (YAML, "yaml", "input", "", (3, 1)),
        (YAML, "yaml", "input", "Y", (5, 11)),
        (YAML, "yaml", "output", "", None),
    ],
)
def test_a_field_or_a_text_in_it_is_found(
    text: str, form: ConfigForm, field: str, value: str, expected: Place | None
) -> None:
    assert place_of_field(text, form, field, value) == expected
