"""Backends built in all ways in which authors build theirs: each opens and answers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tritonpy.plugin import InferRequest, Tensor
from tritonpy_abi.backends import open_backend
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import BackendDriver

from .. import clang
from ..conftest import SOURCES, Compiled

INPUT = {"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}
OUTPUT = {**INPUT, "name": "OUTPUT0"}
SOURCE = {"C": "backends/curious.c", "C++": "backends/busy.cc"}
SHIM_NAME = "libtritonserver.so"
REAL_TRITON = Path(__file__).parents[4] / "benchmarks/real_triton.py"


class Build(NamedTuple):
    """How a backend is built.

    Attributes:
        compiler: whose; `gnu` or `clang`.
        needs: `DT_NEEDED` names the server's library, as where it is linked in Triton's build tree.
        flags: further ones.
    """

    language: str
    compiler: str
    needs: bool
    flags: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join([self.language, self.compiler, *["needs"] * self.needs, *self.flags])


def builds(compiler: str) -> Iterator[Build]:
    for language, needs, level in product(SOURCE, (False, True), ("-O0", "-O2")):
        others: Iterable[tuple[str, ...]] = [(), ("-fvisibility=hidden",)]
        if language == "C++":
            others = [(), ("-fvisibility=hidden", "-static-libstdc++", "-static-libgcc")]
        for flags in others:
            yield Build(language, compiler, needs, (level, *flags))


QUICK = [
    Build("C", "gnu", True, ("-O0", "-fvisibility=hidden")),
    Build("C++", "gnu", False, ("-O0", "-fvisibility=hidden", "-static-libstdc++", "-static-libgcc")),
]
SLOW = [build for compiler in ("gnu", "clang") for build in builds(compiler) if build not in QUICK]


@pytest.fixture(scope="session")
def by_clang(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled(SOURCES, tmp_path_factory.mktemp("compiled-by-clang"))


def make(build: Build, compiled: Compiled, by_clang: Compiled) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        if build.compiler == "clang":
            patch.setenv("CC", clang.find("clang"))
            patch.setenv("CXX", clang.find("clang++"))
            compiled = by_clang
        flags = ["-pthread", *build.flags]
        if build.needs:
            # As in Triton's build tree: a server that has no library of this name finds the empty one.
            empty = compiled("libraries/libtritonserver.c", f"-Wl,-soname,{SHIM_NAME}")
            flags += ["-Wl,--no-as-needed", str(empty), f"-Wl,-rpath,{empty.parent}"]
        return compiled(SOURCE[build.language], *flags)


@pytest.mark.parametrize(
    "build",
    [*QUICK, *(pytest.param(build, marks=pytest.mark.toolchain) for build in SLOW)],
    ids=str,
)
def test_it_opens_and_answers(
    library: Path, build: Build, compiled: Compiled, by_clang: Compiled, tmp_path: Path
) -> None:
    built = make(build, compiled, by_clang)
    assert (SHIM_NAME in needed(built)) == build.needs
    ModelRepository(tmp_path).model(
        "m", {"backend": "SharedBackend", "max_batch_size": 8, "input": [INPUT], "output": [OUTPUT]}
    )
    asked = [
        InferRequest("m", {"INPUT0": Tensor.from_numpy("INPUT0", np.array([row], np.int32))})
        for row in ([1, 2], [3])
    ]

    with BackendDriver(open_backend(built), tmp_path).load("m") as model:
        answers = model.execute(asked)

    outputs: list[Any] = [answer.responses[0].outputs[0].numpy().tolist() for answer in answers]
    assert outputs == [[[1, 2]], [[3]]]


def needed(path: Path) -> list[str]:
    """The libraries that a shared object asks for."""
    shown = subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True, check=True).stdout
    return re.findall(r"NEEDED.*\[(.*)\]", shown)


ON_TRITON = [
    Build(language, compiler, needs, ("-O2",))
    for language, compiler, needs in product(SOURCE, ("gnu", "clang"), (False, True))
]


@pytest.fixture
def real_triton(tmp_path: Path) -> Iterator[Callable[[], int]]:
    """Start a real tritonserver on `models` and `backends`; gives its port."""
    started: list[subprocess.Popen[str]] = []

    def start() -> int:
        script = [sys.executable, str(REAL_TRITON), "serve", "--model-repository", str(tmp_path / "models")]
        backends = f"--backend-directory={tmp_path / 'backends'}"
        process = subprocess.Popen([*script, "--", backends], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        port: int = json.loads(process.stdout.readline())["http"]
        return port

    yield start
    for process in started:
        process.terminate()
        process.communicate(timeout=60)


@pytest.mark.parity
@pytest.mark.toolchain
def test_a_real_tritonserver_takes_the_same_files(
    compiled: Compiled, by_clang: Compiled, tmp_path: Path, real_triton: Callable[[], int]
) -> None:
    models = ModelRepository(tmp_path / "models")
    for number, build in enumerate(ON_TRITON):
        name = f"b{number}"
        place = tmp_path / f"backends/{name}/libtriton_{name}.so"
        place.parent.mkdir(parents=True)
        shutil.copy(make(build, compiled, by_clang), place)
        models.model(name, {"backend": name, "max_batch_size": 8, "input": [INPUT], "output": [OUTPUT]})
    port = real_triton()

    tensor = {"name": "INPUT0", "datatype": "INT32", "shape": [1, 2], "data": [1, 2]}
    for number, build in enumerate(ON_TRITON):
        url = f"http://127.0.0.1:{port}/v2/models/b{number}/infer"
        with urllib.request.urlopen(url, json.dumps({"inputs": [tensor]}).encode()) as answer:
            assert json.load(answer)["outputs"][0]["data"] == [1, 2], build
