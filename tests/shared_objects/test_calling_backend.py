"""A backend in C++ that calls others, on a real tritonserver and on ours: both tell it the same."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import ServerProcess

from .conftest import Compiled
from .curious_models import BATCHING, Asked, asked, write
from .curious_side import FLAGS, Side

pytestmark = pytest.mark.parity

CALLS = (
    *("plain", "plain error 2", "plain refuse 4", "plain other shape", "plain parameters", "plain nothing"),
    *("plain no elements", "plain wrong type", "plain half", "plain unknown output", "threaded", "whole"),
    *("nobody", "bare", "often 3", "often 2 apart", "often 2 fail", "often 0"),
)
ASKED = ("plain", "rich 1", "plain 99", "nobody", "often", "whole", "refused")
FIRST, *OTHERS = (f"call {call}" for call in CALLS)
WISHES = ("make", "set", FIRST, *(f"ask {model}" for model in ASKED), *OTHERS, "control")
"""What is counted differs after refusals and streams: the server is asked before."""

DIFFERENT = {
    r"priority 0 0": r"priority (7 7|77 8589934592)",  # Triton drops what the model has no level for, at once
    r"read priority: done": r"read priority: Invalid argument: request priority overflows uint32_t, .*",
    r"no parameter, .* has 9 parameters": r"no parameter, .* has 8 parameters",
    r"its version 2: Not found: .*": r"its version 2: Invalid argument: model configuration version 2 .*",
    r"load nobody: (Internal: .*)": r"load nobody: (Internal: .*): Not found: .*",  # says more
    r"load '': Internal: .*": r"load '': Invalid argument: Model name cannot be empty\. .*",  # newer words
    r"infer without callbacks: Invalid argument: .*": r"infer without callbacks: Invalid argument: .*",
}
"""Lines of the real server, and of ours in their place."""


def prepared(root: Path, compiled: Compiled) -> list[str]:
    write(root / "models")
    models = ModelRepository(root / "models")
    models.model("caller", {"backend": "caller", **BATCHING})
    models.model("spare", {"backend": "curious", **BATCHING})
    for name, source in (("curious", "curious.c"), ("caller", "caller.cc")):
        place = root / f"backends/{name}/libtriton_{name}.so"
        place.parent.mkdir(parents=True)
        shutil.copy(compiled(f"backends/{source}", "-pthread"), place)
    return [*FLAGS, f"--backend-directory={root / 'backends'}"]


@contextmanager
def noting(root: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACKEND_NOTES", str(root / "notes"))
        yield


def told(side: Side) -> dict[str, list[str]]:
    """By wish, what the caller heard."""
    sent: list[Asked] = [asked("caller", wish) for wish in WISHES]
    assert [side.infer(request)[0] for request in sent] == [200] * len(sent)
    calls = [call.heard for call in side.calls() if call.about.endswith("of a caller")]
    return dict(zip(WISHES, calls, strict=True))


@pytest.fixture(scope="module")
def real(
    compiled: Compiled, tmp_path_factory: pytest.TempPathFactory, real_triton: Any
) -> dict[str, list[str]]:
    root = tmp_path_factory.mktemp("real")
    flags = prepared(root, compiled)
    with noting(root):
        ports = real_triton(root / "models", *flags)
    heard = told(Side(root, ports))
    real_triton.end(ports)
    return heard


@pytest.fixture(scope="module")
def ours(compiled: Compiled, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    root = tmp_path_factory.mktemp("ours")
    flags = prepared(root, compiled)
    with noting(root):
        server = ServerProcess(f"--model-repository={root / 'models'}", *flags)
    with server:
        return told(Side(root, {"http": server.http_port, "grpc": server.grpc_port}))


NOT_COMPARED = ("where will be", "attributes of", "begin a response", "end of the response", "infer: done")
"""Lines that come at other times; the real server does not set the size of attributes."""

ONLY_THERE = {"parameter again 'first'", "nothing yet"}
"""A parameter that is set twice is there twice in Triton, and flags without the final one are a response."""


def comparable(heard: Iterable[str]) -> list[str]:
    """An error is one wherever it comes; memory is counted by another test."""
    dropped = (*NOT_COMPARED, "allocate", "take back")
    kept = [line for line in heard if not line.startswith(dropped) and line not in ONLY_THERE]
    lines = [measured(re.sub("^infer: ", "an error, ", line)) for line in kept]
    parameters = iter(sorted(line for line in lines if line.startswith("parameter ")))
    return [next(parameters) if line.startswith("parameter ") else line for line in lines]


def measured(line: str) -> str:
    """Without times, versions of servers, and what only newer ones have in a configuration."""
    line = re.sub(r'"(ns|last_inference)": \d+', r'"\1": 0', line)
    line = line.replace('"max_inflight_requests": 0, ', "")
    return re.sub(r'(server: .*"version": )"[\d.]+"', r"\1", line)


def is_alike(there: str, here: str) -> bool:
    return there == here or any(
        re.fullmatch(one, there) and re.fullmatch(other, here) for one, other in DIFFERENT.items()
    )


@pytest.mark.parametrize("wish", WISHES)
def test_it_hears_the_same(real: dict[str, list[str]], ours: dict[str, list[str]], wish: str) -> None:
    there, here = comparable(real[wish]), comparable(ours[wish])

    assert len(here) == len(there), (there, here)
    assert [pair for pair in zip(there, here, strict=True) if not is_alike(*pair)] == []


def test_memory_for_outputs_is_asked_for_and_given_back(ours: dict[str, list[str]]) -> None:
    for wish, heard in ours.items():
        given, taken = (
            [re.findall(r"[1-9]\d* bytes", line) for line in heard if line.startswith(what)]
            for what in ("allocate", "take back")
        )
        assert sorted(filter(None, given)) == sorted(taken), wish
    assert any(line.startswith("allocate 8 bytes") for line in ours["call plain"])
