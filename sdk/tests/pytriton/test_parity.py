"""The same program with PyTriton 0.7.0 itself, the real server inside, and here: equal answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from .test_program import free_ports

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("parity_program.py")
PROGRAM_S = 1200
EARLIER = "clients here refuse it before they send it, and PyTriton's do when the server has"
IN_BOTH = {
    "coroutine": "coroutines are functions like others",
    "of_strings": "arrays of str are taken",
    "of_strings sample": "arrays of str are taken",
    **dict.fromkeys(
        ("padded 1", "padded 2", "padded 3", "padded_to_most"),
        "outputs lose the rows that were added, which PyTriton leaves to the function",
    ),
    "same_float32 too many inputs": "an input too many is refused, which PyTriton leaves out without a word",
    "same_float32 unknown input": EARLIER,
    "unbatched too many": EARLIER,
}
DIFFERENT = {
    **{f"{protocol} {name}": reason for protocol in ("http", "grpc") for name, reason in IN_BOTH.items()},
    "asyncio grpc error": EARLIER,
    "asyncio http error": EARLIER,
    "future of an error": EARLIER,
    "stream by a client of one answer": EARLIER,
    "stream count_waiting": "asynchronous generators may be decorated",
    "stream of samples": "generators of samples may be decorated",
    "stream over http": "refused with the first request, not when the client is made",
}
"""Answers that are not PyTriton's, with the reason; a program that works there gets what it gets there."""


def real_triton() -> Any:
    """The module that fetches the wheel."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return import_module("real_triton")
    finally:
        sys.path.pop(0)


@pytest.fixture(scope="module")
def environment() -> tuple[Path, dict[str, str]]:
    """A Python that has PyTriton, and the variables that it needs; fetched when first needed."""
    real = real_triton()
    cache = ROOT / ".cache/real-triton"
    paths = real.fetch(cache)
    (wheel,) = (cache / "wheels").glob("nvidia_pytriton-0.7.0-*.whl")
    place = ROOT / ".cache/pytriton"
    python = place / "bin/python"
    if not (place / "fetched").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", str(wheel), "numpy<2"], check=True)
        (place / "fetched").touch()
    return python, {"LD_LIBRARY_PATH": paths["libpython_dir"]}


def run(command: list[str], variables: dict[str, str]) -> Any:
    """What the program prints."""
    ended = subprocess.run(
        [*command, str(PROGRAM), *free_ports()],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
        env={**os.environ, "no_proxy": "*", **variables},
    )
    assert ended.returncode == 0, ended.stderr[-5000:]
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.neighbours
@pytest.mark.timeout(PROGRAM_S + 600)  # the download takes what it takes
def test_a_program_that_uses_all_of_pytriton_gets_the_same_answers(
    environment: tuple[Path, dict[str, str]],
) -> None:
    python, variables = environment
    with ThreadPoolExecutor(2) as both:
        ours = both.submit(run, [sys.executable, "-m", "tritonpy_sdk.pytriton"], {})
        theirs = both.submit(run, [str(python)], variables)
        found, wanted = ours.result(), theirs.result()

    assert found.keys() == wanted.keys()
    assert len(wanted) > 150
    unequal = {name: (found[name], wanted[name]) for name in wanted if found[name] != wanted[name]}
    assert {name: each for name, each in unequal.items() if name not in DIFFERENT} == {}
    assert DIFFERENT.keys() - unequal.keys() == set()
