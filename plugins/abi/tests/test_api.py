from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tritonpy_abi.build import exported, headers, library, read_sources, unsupported

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
ANSWERS = HERE / "answers.py"

pytestmark = pytest.mark.skipif(not library().is_file(), reason="the library is not compiled")

INVALID = [3, "Invalid argument"]
UNSUPPORTED = [5, "Unsupported"]


def answers(path: Path, *flags: str, **environment: str) -> tuple[dict[str, Any], str]:
    """What a library answers in a process of its own, and what that writes to standard error."""
    done = subprocess.run(
        [sys.executable, "-S", str(ANSWERS), str(path), *flags],
        capture_output=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return json.loads(done.stdout), done.stderr.decode(errors="replace")


@pytest.fixture(scope="module")
def ours() -> dict[str, Any]:
    return answers(library(), "--also-null")[0]


def test_types_have_the_names_and_sizes_of_the_protocols(ours: dict[str, Any]) -> None:
    strings = ours["strings"]
    names = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"]
    names += ["FP16", "FP32", "FP64", "BYTES", "BF16"]
    sizes = [1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 0, 2]

    assert strings["DataTypeString"] == ["<invalid>", "<invalid>", *names, *["<invalid>"] * 3]
    assert strings["DataTypeByteSize"] == [0, 0, *sizes, 0, 0, 0]
    numbers = strings["StringToDataType"]
    assert [numbers[name] for name in names] == list(range(1, 15))
    assert {name: number for name, number in numbers.items() if name not in names} == dict.fromkeys(
        ("<invalid>", "TYPE_FP32", "fp32", "STRING", "FP3", "FP320", ""), 0
    )


def test_memory_kinds_and_parameters_have_tritons_names(ours: dict[str, Any]) -> None:
    strings = ours["strings"]

    assert strings["MemoryTypeString"][1:5] == ["CPU", "CPU_PINNED", "GPU", "<invalid>"]
    assert strings["InstanceGroupKindString"][1:6] == ["AUTO", "CPU", "GPU", "MODEL", "<invalid>"]
    assert strings["ParameterTypeString"][1:7] == ["STRING", "INT", "BOOL", "DOUBLE", "BYTES", "<invalid>"]
    assert strings["InferenceTraceLevelString"][1:6] == ["DISABLED", "MIN", "MAX", "<unknown>", "TIMESTAMPS"]


def test_errors_keep_code_and_text(ours: dict[str, Any]) -> None:
    names = ["Unknown", "Internal", "Not found", "Invalid argument", "Unavailable", "Unsupported"]
    names += ["Already exists", "Cancelled", "Unknown", "Unknown"]

    assert ours["strings"]["errors"] == [
        [code, name, "téxt"] for code, name in zip(range(-1, 10), ["Unknown", *names], strict=True)
    ]


def test_versions_are_those_of_the_headers(ours: dict[str, Any]) -> None:
    numbers = {}
    for header in (headers() / "tritonpy").glob("*.h"):
        for whose, which, number in re.findall(
            r"#define (\w+)_API_VERSION_(MAJOR|MINOR) (\d+)", header.read_text()
        ):
            numbers[whose, which] = int(number)

    assert ours["versions"] == {
        whose: [numbers[whose, "MAJOR"], numbers[whose, "MINOR"]]
        for whose in ("TRITONSERVER", "TRITONBACKEND", "TRITONREPOAGENT", "TRITONCACHE")
    }


def test_messages_give_back_the_bytes_they_got(ours: dict[str, Any]) -> None:
    for given, (got, size) in ours["messages"].items():
        assert got == given
        assert size == (5000 if given.startswith("b'[[[") else len(eval(given)))


def test_parameters_are_made_of_every_type_but_bytes_without_a_size(ours: dict[str, Any]) -> None:
    assert ours["parameters"] == {
        **{str(number): 0 <= number <= 3 for number in range(-1, 7)},
        "bytes": True,
        "nothing": True,
    }


def test_buffer_attributes_begin_at_zero_and_keep_what_is_set(ours: dict[str, Any]) -> None:
    assert ours["attributes"] == {
        "new": [0, 0, None],
        "set": [2, -3, 1 << 40, bytes(range(64)).hex()],
    }


def test_metrics_have_tritons_rules_and_words(ours: dict[str, Any]) -> None:
    values, rules = ours["metric_values"], ours["metric_rules"]
    kind = "TRITONSERVER_METRIC_KIND"

    assert values["counter Increment 2.5"] == [None, "2.5"]
    assert values["counter Increment -1.0"][0] == [
        *INVALID,
        f"{kind}_COUNTER can only be incremented monotonically by non-negative values.",
    ]
    assert values["gauge Increment -1.0"] == [None, "1.5"]
    assert values["gauge Set -1.0"] == [None, "-1.0"]
    assert values["counter Set 0.0"][0] == [*UNSUPPORTED, f"{kind}_COUNTER does not support Set"]
    assert values["gauge Observe 0.0"][0] == [*UNSUPPORTED, f"{kind}_GAUGE does not support Observe"]
    assert values["histogram Observe 2.5"] == [
        None,
        [*UNSUPPORTED, f"{kind}_HISTOGRAM does not support Value"],
    ]
    assert rules["kinds"][1:4] == ["made", "made", "made"]
    assert rules["kinds"][0] == [*INVALID, "Unsupported kind passed to MetricFamily constructor."]
    assert rules["names"]["b'a-b'"] == [*INVALID, "Invalid metric name: 'a-b'"]
    assert rules["labels"]["b'a:b'"] == [*INVALID, "Invalid label name: 'a:b'"]
    assert rules["bounds that are equal"] == [*INVALID, "Bucket Boundaries must be strictly sorted"]
    assert rules["a family deleted too early"] == [
        [
            1,
            "Internal",
            "Must call MetricDelete on all dependent metrics before calling MetricFamilyDelete.",
        ],
        [None, "4.0"],
        None,
    ]
    assert rules["the same metric twice"] == [[None, "2.0"], [None, "5.0"], "5.0"]


def test_a_missing_argument_is_an_error_that_names_it(ours: dict[str, Any]) -> None:
    nulls = ours["nulls"]

    assert {name for name, answer in nulls.items() if answer is None} == {
        name for name in nulls if name.endswith("Delete")
    }
    texts = [answer[2] for answer in nulls.values() if answer is not None]
    assert "TRITONSERVER_MessageNewFromSerializedJson: json is NULL" in texts
    assert "TRITONSERVER_MetricIncrement: metric is NULL" in texts
    assert "TRITONSERVER_ResponseAllocatorNew: alloc_fn is NULL" in texts


def test_without_a_server_log_lines_go_to_standard_error_in_tritons_shape() -> None:
    answered, written = answers(library())

    head = r"1?\d{3} \d\d:\d\d:\d\d\.\d{6} \d+ b\.cc:7\] "
    text = re.escape(r'"say \"it\"' + "\\n\\t\ufffd\\u0001\\u007f\\\\" + '"')
    assert re.fullmatch("".join(f"{level}{head}{text}\n" for level in "IWE"), written)
    assert answered["logs"]["enabled"] == [False, True, True, True, False, False, False]
    assert answered["logs"]["messages"] == [
        [*INVALID, "unknown logging level '-1'"],
        *[None] * 4,
        [*INVALID, "unknown logging level '4'"],
        [*INVALID, "unknown logging level '5'"],
    ]


def defined_in(path: Path) -> set[str]:
    """The names of what a library exports."""
    symbols = subprocess.run(
        ["readelf", "--wide", "--dyn-syms", str(path)], capture_output=True, text=True, check=True
    ).stdout
    defined = re.findall(r"(?:FUNC|OBJECT|NOTYPE) +(?:GLOBAL|WEAK|UNIQUE) +DEFAULT +\d+ (\S+)", symbols)
    return {name.partition("@")[0] for name in defined}


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is not installed")
def test_every_function_of_the_api_is_exported_and_nothing_else() -> None:
    names = defined_in(library())

    assert len(exported()) == 283
    assert set(exported()) - names == set()
    others = names - set(exported())
    assert {name for name in others if not name.startswith("TRITONPY_")} == set()


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is not installed")
def test_the_library_has_the_name_that_plugins_ask_for() -> None:
    dynamic = subprocess.run(
        ["readelf", "-d", str(library())], capture_output=True, text=True, check=True
    ).stdout

    assert re.findall(r"SONAME.*\[(.*)\]", dynamic) == ["libtritonserver.so"]
    assert not re.search(r"RPATH|RUNPATH|TEXTREL", dynamic)


CALL_ALL = """
import sys
from ctypes import CDLL, c_char_p, c_int, c_void_p
lib = CDLL(sys.argv[1])
lib.TRITONSERVER_ErrorCode.argtypes = lib.TRITONSERVER_ErrorMessage.argtypes = [c_void_p]
lib.TRITONSERVER_ErrorMessage.restype = c_char_p
for name in sys.stdin.read().split():
    function = getattr(lib, name)
    function.restype = c_void_p
    error = function(*[None] * 8)
    print(name, lib.TRITONSERVER_ErrorCode(error), lib.TRITONSERVER_ErrorMessage(error).decode(), sep="|")
"""


def test_functions_that_are_not_there_say_so_with_their_name() -> None:
    names = unsupported(read_sources(headers()))

    done = subprocess.run(
        [sys.executable, "-S", "-c", CALL_ALL, str(library())],
        input="\n".join(names),
        capture_output=True,
        text=True,
        check=True,
    )

    assert "TRITONSERVER_ServerNew" in names  # for programs that embed the server
    assert done.stdout.splitlines() == [
        f"{name}|{UNSUPPORTED[0]}|{name} is not supported by tritonpy-abi" for name in names
    ]


DIFFERENT = (
    # We say which name it is.
    (
        r"metric_rules\.(names|labels)\..*",
        r"Invalid (metric|label) name",
        r"Invalid (metric|label) name: '.*'",
    ),
    (r"metric_rules\.another kind.*", r"Family name .* different type", r"Family name .* type: 'one_name'"),
    # A code of the API for which it has no name.
    (r"strings\.errors\.8\.1", r"<invalid code>", r"Cancelled"),
)
"""Where, what the real library says, and what ours does."""


def fetch() -> dict[str, str]:
    """Where the real server's files are."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/real_triton.py"), "fetch"], capture_output=True, check=True
    )
    paths: dict[str, str] = json.loads(done.stdout)
    return paths


def real_library(paths: dict[str, str]) -> Path:
    return next(Path(paths["libs"]).glob("libtritonserver-*.so"))


@pytest.mark.parity
def test_the_real_library_exports_the_same_functions() -> None:
    names = defined_in(real_library(fetch()))

    assert {name for name in names if name.startswith("TRITON")} == set(exported())


@pytest.mark.parity
def test_the_real_library_gives_the_same_answers(ours: dict[str, Any]) -> None:
    paths = fetch()
    server = real_library(paths)
    search = ":".join([paths["lib"], paths["libs"], paths["libpython_dir"]])
    theirs, _ = answers(server, LD_LIBRARY_PATH=search)

    differences = [
        (where, real, own)
        for where, real, own in compared(theirs, {key: ours[key] for key in theirs})
        if not any(
            re.fullmatch(place, where) and re.fullmatch(before, str(real)) and re.fullmatch(after, str(own))
            for place, before, after in DIFFERENT
        )
    ]
    assert differences == []


def compared(real: Any, own: Any, where: str = "") -> list[tuple[str, Any, Any]]:
    if isinstance(real, dict) and isinstance(own, dict) and real.keys() == own.keys():
        pairs = [(str(key), real[key], own[key]) for key in real]
    elif isinstance(real, list) and isinstance(own, list) and len(real) == len(own):
        pairs = [(str(number), *both) for number, both in enumerate(zip(real, own, strict=True))]
    else:
        return [] if real == own else [(where, real, own)]
    return [found for key, one, two in pairs for found in compared(one, two, f"{where}.{key}".lstrip("."))]
