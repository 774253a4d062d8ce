"""Attributes that a backend in C is asked for in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import tritonpy_abi.probe
from tritonpy.plugin import Backend, Internal, InvalidArg, PreferredGroup, TritonError, Unavailable
from tritonpy_abi.backends import open_backend

from ..conftest import Compiled


@pytest.fixture
def attributes(library: Path, compiled: Compiled) -> Path:
    return compiled("backends/attributes.c")


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ("", []),
        ("1:2", [PreferredGroup("KIND_CPU", 2, [])]),
        (
            "2:3:0:7;3:1;0:0",
            [
                PreferredGroup("KIND_GPU", 3, [0, 7]),
                PreferredGroup("KIND_MODEL", 1, []),
                PreferredGroup("KIND_AUTO", 0, []),
            ],
        ),
    ],
)
@pytest.mark.parametrize("parallel", ["", "no", "yes"])
def test_a_library_says_how_its_instances_are_made(
    attributes: Path, groups: str, expected: list[PreferredGroup], parallel: str
) -> None:
    backend = Backend("attributes", {"groups": groups, "parallel": parallel})

    found = open_backend(attributes).backend_attributes(backend)

    assert found.execution == "process"
    assert found.preferred_groups == expected
    assert found.parallel_instance_loading is (parallel == "yes")


@pytest.mark.parametrize(
    ("setting", "value", "kind", "text"),
    [
        ("initialize", "error", Unavailable, "the backend was told to refuse"),
        ("attribute", "error", Unavailable, "the backend was told to refuse"),
        ("initialize", "crash", Internal, "SIGABRT in TRITONBACKEND_Initialize"),
        ("attribute", "crash", Internal, "SIGABRT in TRITONBACKEND_GetBackendAttribute"),
        ("groups", "7:1", InvalidArg, "unknown instance group kind 7"),
        ("groups", "1:4294967297", InvalidArg, "at most 2147483647 instances"),
        ("groups", "2:1:4294967296", InvalidArg, "at most 2147483647 instances"),
    ],
)
def test_a_library_that_does_not_say_fails_its_models(
    attributes: Path, setting: str, value: str, kind: type[TritonError], text: str
) -> None:
    with pytest.raises(kind, match=text):
        open_backend(attributes).backend_attributes(Backend("attributes", {setting: value}))


def test_a_library_that_does_not_return_is_given_up(
    attributes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITONPY_ABI_PROBE_S", "1")

    with pytest.raises(Unavailable, match=r"after 1 s; TRITONPY_ABI_PROBE_S gives it more"):
        open_backend(attributes).backend_attributes(Backend("attributes", {"attribute": "hang"}))


def test_libraries_are_asked_also_where_they_are_loaded_untried(
    attributes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITONPY_ABI_PROBE_S", "0")

    found = open_backend(attributes).backend_attributes(Backend("attributes", {"groups": "1:2"}))

    assert found.preferred_groups == [PreferredGroup("KIND_CPU", 2, [])]


def test_a_library_that_has_nothing_to_say_needs_no_process(
    library: Path, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(tritonpy_abi.probe, "run_child")

    found = open_backend(compiled("backends/copying.c", "-pthread")).backend_attributes(Backend("copying"))

    assert (found.execution, found.preferred_groups, found.parallel_instance_loading) == (
        "process",
        (),
        False,
    )
