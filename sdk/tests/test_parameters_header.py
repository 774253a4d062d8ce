"""`tritonpy/parameters.h` finds what a configuration and a request say, whatever else is in them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tritonpy.errors import TritonError
from tritonpy_sdk.headers import DIRECTORY
from tritonpy_sdk.testing import WaitingRequest, compile_shared_object, find_compiler, open_strategy

pytestmark = pytest.mark.skipif(find_compiler(".c") is None, reason="there is no compiler for C")

# Its errors say what it has read: of a model when it begins, unless that is nothing, then of each request.
STRATEGY = r"""
#include "tritonpy/parameters.h"

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherInitialize(
    TRITONBACKEND_Batcher **batcher, TRITONBACKEND_Model *model) {
  char value[16] = "default", text[64];
  TRITONSERVER_Error *error = tritonpy_model_parameter(model, "KEY", value, sizeof value);
  (void)batcher;
  if (error != NULL || *value == '\0') return error;
  snprintf(text, sizeof text, "<%s>", value);
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, text);
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher *batcher) {
  (void)batcher;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher *batcher, void **userp) {
  (void)batcher;
  (void)userp;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchIncludeRequest(
    TRITONBACKEND_Request *request, void *userp, bool *should_include) {
  TRITONSERVER_ParameterType type;
  const void *value;
  char text[64] = "<nothing>";
  TRITONSERVER_Error *error = tritonpy_request_parameter(request, "key", &type, &value);
  (void)userp;
  *should_include = false;
  if (error != NULL) return error;
  if (value != NULL && type == TRITONSERVER_PARAMETER_STRING) {
    snprintf(text, sizeof text, "<text %s>", (const char *)value);
  } else if (value != NULL && type == TRITONSERVER_PARAMETER_INT) {
    snprintf(text, sizeof text, "<number %d>", (int)*(const int64_t *)value);
  }
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, text);
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchFinalize(void *userp) {
  (void)userp;
  return NULL;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("header") / "strategy.c"
    source.write_text(STRATEGY)
    return compile_shared_object(source, source.with_suffix(".so"), "-Wpedantic", "-std=c99")


def read(library: Path, parameters: dict[str, str]) -> str:
    with pytest.raises(TritonError) as caught, open_strategy(library, parameters):
        pass
    return caught.value.message


@pytest.mark.parametrize(
    ("parameters", "value"),
    [
        ({"KEY": "96"}, "<96>"),
        ({}, "<default>"),
        ({"KEY2": "2", "KE": "1"}, "<default>"),
        ({"OTHER": '"KEY":{"string_value":"wrong"}', "KEY": "right"}, "<right>"),
        ({'"KEY': "wrong"}, "<default>"),
        ({"KEY": 'a"b\\c/d'}, '<a"b\\c/d>'),
        ({"KEY": "grüße"}, "<grüße>"),
        ({"KEY": "x" * 15}, f"<{'x' * 15}>"),
        ({"KEY": "x" * 16}, f"parameter KEY: got '{'x' * 15}...', expected a value of less than 16 bytes"),
        ({"KEY": "a\nb"}, "parameter KEY: expected a value of letters, digits and signs"),
    ],
)
def test_the_value_of_a_models_parameter(library: Path, parameters: dict[str, str], value: str) -> None:
    assert value in read(library, parameters)


def test_a_value_that_is_empty_replaces_the_default_and_requests_are_read(library: Path) -> None:
    asked = [
        WaitingRequest(parameters={"a": 1, "key": "value", "z": True}),
        WaitingRequest(parameters={"key": -7}),
        WaitingRequest(parameters={"keys": "other", "Key": "other"}),
        WaitingRequest(),
    ]
    with open_strategy(library, {"KEY": ""}) as strategy:
        assert strategy.batches(asked) == []

    said = [str(error).rpartition("<")[2] for _, error in strategy.failed]
    assert said == ["text value>", "number -7>", "nothing>", "nothing>"]


@pytest.mark.parametrize(
    "json", ["", '"', '"KEY"', '"KEY":{"string_value":', '"KEY":{"string_value":"9', "\\"]
)
def test_a_document_that_is_cut_off_is_not_read_beyond_its_end(json: str, tmp_path: Path) -> None:
    source = tmp_path / "cut.c"
    source.write_text(
        '#include <stdlib.h>\n#include "tritonpy/parameters.h"\n'
        "int main(int count, char **words) {\n"
        "  const size_t size = count > 1 ? strlen(words[1]) : 0;\n"
        "  char *json = malloc(size);\n"  # exactly as large, for the sanitizer
        "  memcpy(json, words[1], size);\n"
        '  const char *found = tritonpy_find_parameter(json, json + size, "KEY");\n'
        '  printf("%d", found == NULL ? -1 : (int)(json + size - found));\n'
        "  free(json);\n"
        "}\n"
    )
    program = tmp_path / "cut"
    compiler = find_compiler(".c")
    assert compiler is not None
    # Nothing else of the header is called, so it may be missing.
    flags = ["-fsanitize=address,undefined", "-Wl,--unresolved-symbols=ignore-all", f"-I{DIRECTORY}"]
    command = [*compiler, "-O1", *flags, "-o", str(program), str(source)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if "asan" in made.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert made.returncode == 0, made.stderr

    run = subprocess.run([program, json], capture_output=True, text=True, check=False)

    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == ("1" if json.endswith("9") else "-1")
