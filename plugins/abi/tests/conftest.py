"""Shared objects for tests, compiled from `csrc/` where there is a compiler."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tritonpy_abi import build
from tritonpy_sdk.testing.shared_objects import compile_shared_object, find_compiler

SOURCES = Path(__file__).parent / "csrc"

Compiled = Callable[..., Path]


@pytest.fixture
def library() -> Path:
    """The library of this installation; what asks for it is skipped where no compiler has made it."""
    found = build.library()
    if not found.is_file():
        pytest.skip("tritonpy-abi has no library: there was no C++ compiler when it was installed")
    return found


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """Compile `csrc/<name>`, such as `strategies/volume.c`, with further flags; each combination once.

    What asks for it is skipped where there is no compiler.
    """
    made: dict[tuple[str, ...], Path] = {}

    def compile_once(name: str, *flags: str) -> Path:
        source = SOURCES / name
        if find_compiler(source.suffix) is None:
            pytest.skip(f"there is no compiler for {name}")
        key = (name, *flags)
        if key not in made:
            output = tmp_path_factory.mktemp(source.stem) / f"{source.stem}.so"
            made[key] = compile_shared_object(source, output, *flags)
        return made[key]

    return compile_once
