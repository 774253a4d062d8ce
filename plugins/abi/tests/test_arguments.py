"""Arguments that are no good, to every function that a backend may call: an error, and never a crash."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .calling import functions

PROGRAM = Path(__file__).with_name("calling.py")

OPTIONAL = re.compile(
    # What ends nothing, what keeps whatever it is given, and what is not asked for.
    r"\w+Delete \w+"
    r"|\w+SetState state"
    r"|TRITONBACKEND_InputProperties(ForHostPolicy)? (?!input)\w+"
    r"|TRITONBACKEND_InputBuffer(ForHostPolicy)? (host_policy|byte_size|memory_type|memory_type_id)"
    r"|TRITONBACKEND_MemoryManagerFree buffer"
    r"|TRITONBACKEND_RequestOutputBufferProperties byte_size"
    r"|TRITONBACKEND_ResponseSend error"
    r"|TRITONSERVER_BufferAttributesSetCudaIpcHandle handle"
    r"|TRITONSERVER_LogMessage filename"
    r"|TRITONSERVER_MetricNewWithArgs args"
    r"|TRITONBACKEND_ModelInstanceResponseStatisticsSetError error"
    r"|TRITONSERVER_ResponseAllocatorNew start_fn"
    r"|TRITONSERVER_ResponseAllocatorSet\w+Function \w+_fn"
    # Missed when the request is sent.
    r"|TRITONSERVER_InferenceRequestSet(Release|Response)Callback (?!request)\w+"
    r"|TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup device_ids"
    r"|TRITONSERVER_ServerModel\w+Properties voidp"
)
"""Functions and those of their pointers that may be NULL."""

OTHER_WORDS = {
    **{
        f"{library}_ApiVersion {number}": "without a place for both of its numbers"
        for library in ("TRITONSERVER", "TRITONBACKEND")
        for number in ("major", "minor")
    },
    "TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes base": "does not exist in request",
    "TRITONSERVER_ServerInferAsync trace": "the request needs a release callback",
    "TRITONSERVER_ServerLoadModelWithParameters parameters": "load parameters are not provided",
}
"""What is said of a pointer, where it is not that it is NULL: something else is wrong, too."""

NO_PLACE = re.compile(r"TRITONSERVER_Server\w+: the place of the answer is NULL")


def outcomes(table: str) -> dict[tuple[str, str], Any]:
    """What came of each call, by the function and what was spoilt."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), table],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, (lines[-1:], done.stderr[-2000:])
    return {(name, what): outcome for (name, what), outcome in zip(lines[::2], lines[1::2], strict=True)}


@pytest.fixture(scope="module")
def returned() -> dict[str, bool]:
    """The functions, and whether they return errors."""
    return {
        function.name: function.result == "TRITONSERVER_Error *" and not function.name.endswith("ErrorNew")
        for function in functions()
    }


@pytest.mark.usefixtures("library")
def test_every_pointer_that_is_null_is_an_error_that_names_it(returned: dict[str, bool]) -> None:
    found = outcomes("nulls")

    assert {name for name, _ in found} == returned.keys()
    assert [
        (name, what, outcome)
        for (name, what), outcome in found.items()
        if not is_right(name, what, outcome, returned[name])
    ] == []


def is_right(name: str, what: str, outcome: tuple[str, str] | None, returns_error: bool) -> bool:
    """Whether this came of it that nothing was NULL (""), all was ("*"), or the argument of this name."""
    code, text = outcome or ("", "")
    if what == "*" or not returns_error:
        return True  # the process goes on
    if what == "":
        return not text.endswith("is NULL")
    if OPTIONAL.fullmatch(f"{name} {what}"):
        return outcome is None
    words = OTHER_WORDS.get(f"{name} {what}", f": {what} is NULL")
    return code == "INVALID_ARG" and (words in text or NO_PLACE.fullmatch(text) is not None)


@pytest.mark.usefixtures("library")
def test_no_number_ends_the_process() -> None:
    found = outcomes("numbers")

    assert {name for name, what in found if what.endswith(" 99")} > {"TRITONBACKEND_ResponseOutput"}
    refused = {name: outcome for (name, what), outcome in found.items() if what.endswith("policy 99")}
    assert refused == {
        "TRITONBACKEND_BackendSetExecutionPolicy": ["INVALID_ARG", "unknown execution policy 99"]
    }
