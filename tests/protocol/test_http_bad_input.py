"""Bad input over HTTP: the answer of ours, and, in the parity run, of a real server."""

from __future__ import annotations

import http.client
import importlib.util
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tritonpy.server import Server

from ..servers import local_options


def _load_cases() -> ModuleType:
    path = Path(__file__).with_name("http_cases.py")
    spec = importlib.util.spec_from_file_location("http_cases", path)
    assert spec is not None
    assert spec.loader is not None
    import sys

    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


cases = _load_cases()


def ask(port: int, case: object) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(case.method, case.path, case.body, case.headers)  # type: ignore[attr-defined]
        response = connection.getresponse()
        return response.status, json.loads(response.read())["error"]
    finally:
        connection.close()


def assert_answers(port: int, case: object) -> None:
    status, error = ask(port, case)

    expected: str = case.error  # type: ignore[attr-defined]
    assert status == case.status, error  # type: ignore[attr-defined]
    if expected.startswith("^"):
        assert re.fullmatch(expected[1:], error, re.DOTALL), error
    else:
        assert error == expected


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    cases.build_models(root)
    return root


@pytest.fixture(scope="module")
def our_port(models: Path) -> Iterator[int]:
    options = local_options(models, allow_grpc=False, allow_metrics=False)
    with Server(options) as server:
        yield server.http_port


@pytest.fixture(scope="module")
def real_port(models: Path, real_triton: Callable[[Path], dict[str, int]]) -> int:
    return real_triton(models)["http"]


@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.name)
def test_bad_input_is_refused_in_tritons_words(our_port: int, case: object) -> None:
    assert_answers(our_port, case)


def test_the_server_lives_after_all_of_them(our_port: int) -> None:
    for case in cases.CASES:
        ask(our_port, case)
    connection = http.client.HTTPConnection("127.0.0.1", our_port, timeout=30)
    connection.request("POST", "/v2/models/nob/infer", cases.GOOD)
    response = connection.getresponse()
    document = json.loads(response.read())
    connection.close()

    assert response.status == 200
    assert document["outputs"][0]["data"] == [1.0, 2.0]


@pytest.mark.parity
@pytest.mark.parametrize(
    "case", [case for case in cases.CASES if not case.differs], ids=lambda case: case.name
)
def test_a_real_server_says_the_same(real_port: int, case: object) -> None:
    assert_answers(real_port, case)
