"""Loading costs the same whatever numbers a configuration has; some are refused, as by the real server."""

from __future__ import annotations

import json
import tracemalloc
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from tritonpy.server import Server

from ..servers import local_options
from .asking import Verdict, lay_out
from .cases import IO, Case, python
from .extremes import EXTREMES, name_of
from .record import verdicts

MOST_BYTES = 2_000_000
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_ALL = [(field, value) for field, extreme in EXTREMES.items() for value in extreme.values]


def _of_identity(case: Case) -> Case:
    """The same model of a backend that needs no worker; tensors are called as it wants them."""
    assert case.text is not None
    return Case(_renamed(case.text).replace("'python'", "'identity'"), ("1/",))


def _renamed(text: str) -> str:
    return text.replace("'A'", "'INPUT0'").replace("'B'", "'OUTPUT0'")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("extremes")
    lay_out(repository, "first", _of_identity(python(f"max_batch_size: 1 {IO}")))
    for field, value in _ALL:
        lay_out(repository, name_of(field, value), _of_identity(EXTREMES[field].case(value)))
    with Server(local_options(repository, model_control_mode="explicit")) as server:
        load(server, "first")
        yield server


def load(server: Server, name: str) -> str:
    """Load a model and unload it again; why it was refused, or ""."""
    model = f"http://127.0.0.1:{server.http_port}/v2/repository/models/{name}"
    try:
        _OPENER.open(urllib.request.Request(f"{model}/load", b"{}"), timeout=60).close()
    except urllib.error.HTTPError as error:
        with error:
            return str(json.loads(error.read())["error"])
    _OPENER.open(urllib.request.Request(f"{model}/unload", b"{}"), timeout=60).close()
    return ""


@pytest.mark.parametrize(("field", "value"), _ALL)
def test_no_number_of_a_configuration_makes_a_load_dear(server: Server, field: str, value: int) -> None:
    name = name_of(field, value)
    expected = _renamed(EXTREMES[field].ours.get(value, "").replace("@", name))
    tracemalloc.start()
    try:
        refusal = load(server, name)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert expected in refusal if expected else not refusal, refusal
    assert most < MOST_BYTES


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    cases = {
        name_of(field, value): EXTREMES[field].case(value)
        for field, value in _ALL
        if value not in EXTREMES[field].fatal
    }
    return verdicts(tmp_path_factory.mktemp("real"), cases, is_real=True, at_once=1)


@pytest.mark.parity
@pytest.mark.timeout(900)
def test_the_real_server_takes_and_refuses_the_same_numbers(real: dict[str, Verdict]) -> None:
    different = {}
    for field, extreme in EXTREMES.items():
        for value in set(extreme.values) - set(extreme.fatal):
            name = name_of(field, value)
            expected = extreme.refusals.get(value, "").replace("@", name)
            if expected not in real[name].reason or bool(expected) != bool(real[name].stage):
                different[name] = real[name]

    assert not different
