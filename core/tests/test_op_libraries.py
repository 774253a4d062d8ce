"""Libraries of custom operators are opened once, by what is in them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from tritonpy.errors import ErrorCode, TritonError, Unavailable
from tritonpy.handles import Backend, OpLibrary
from tritonpy.op_libraries import OpenOpLibraries, backend_op_libraries


class Framework:
    """Opens files that say `operators`, and notes their names."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.libraries = OpenOpLibraries("Flow 2.0", self._load)

    def _load(self, path: str) -> bool:
        text = Path(path).read_text("latin-1")
        if text == "broken":
            raise OSError("undefined symbol: flow_1_0")
        self.opened.append(Path(path).name)
        return "operators" in text


@pytest.fixture
def framework() -> Framework:
    return Framework()


def library(path: Path, text: str) -> OpLibrary:
    path.write_text(text)
    return OpLibrary(path, "model 'net'")


def test_copies_are_opened_once(tmp_path: Path, framework: Framework) -> None:
    first = library(tmp_path / "first.so", "operators")
    for each in (first, first, library(tmp_path / "copy.so", "operators")):
        framework.libraries.open(each)
    framework.libraries.open(library(tmp_path / "other.so", "other operators"))

    assert framework.opened == ["first.so", "other.so"]


def test_a_file_that_has_changed_is_not_opened_beside_what_it_was(
    tmp_path: Path, framework: Framework
) -> None:
    path = tmp_path / "first.so"
    framework.libraries.open(library(path, "operators"))
    changed = library(path, "new operators")

    message = f"'{path}', which model 'net' names, has changed since this process opened it, which cannot"
    with pytest.raises(Unavailable, match=re.escape(message)):
        framework.libraries.open(changed)
    framework.libraries.open(library(path, "operators"))
    assert framework.opened == ["first.so"]


def test_what_was_preloaded_is_not_opened_from_another_path(
    tmp_path: Path, framework: Framework, monkeypatch: pytest.MonkeyPatch
) -> None:
    preloaded = library(tmp_path / "preloaded.so", "operators")
    monkeypatch.setenv("LD_PRELOAD", f"/no/such.so:libtcmalloc.so {preloaded.path}")

    framework.libraries.open(library(tmp_path / "copy.so", "operators"))

    assert framework.opened == []


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (None, ErrorCode.UNAVAILABLE, "unable to find '{path}', which model 'net' names"),
        (
            "broken",
            ErrorCode.INTERNAL,
            "'{path}', which model 'net' names, is no library of operators for Flow 2.0: "
            "OSError: undefined symbol: flow_1_0",
        ),
        ("nothing", ErrorCode.INTERNAL, "'{path}', which model 'net' names, registers no operator"),
    ],
)
def test_what_cannot_be_opened_is_named_each_time(
    text: str | None, code: ErrorCode, message: str, tmp_path: Path, framework: Framework
) -> None:
    path = tmp_path / "x.so"
    named = library(path, text) if text is not None else OpLibrary(path, "model 'net'")

    for _ in range(2):
        with pytest.raises(TritonError, match=re.escape(message.format(path=path))) as caught:
            framework.libraries.open(named)
        assert caught.value.code is code


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not say what is in a process already")
def test_a_library_that_is_in_the_process_already_need_not_register_anything(framework: Framework) -> None:
    from numpy._core import _multiarray_umath as known

    framework.libraries.open(OpLibrary(Path(known.__file__), "model 'net'"))

    assert framework.opened == [Path(known.__file__).name]


@pytest.mark.parametrize(
    ("setting", "paths"),
    [("", []), ("/a.so", ["/a.so"]), ("/a.so;/b.so;", ["/a.so", "/b.so"])],
)
def test_a_setting_names_libraries_for_all_models(setting: str, paths: list[str]) -> None:
    libraries = backend_op_libraries(Backend("flow", {"op-library": setting}))

    assert libraries == [OpLibrary(Path(path), "--backend-config=flow,op-library") for path in paths]
    assert backend_op_libraries(Backend("flow", {})) == []
