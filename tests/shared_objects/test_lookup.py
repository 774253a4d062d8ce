"""Where shared objects that are strategies are found, here and in a real tritonserver.

Three requests that wait together run one by one with the strategy in the version's directory, the first two
together with that in the model's, and all of them with that of the backend.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ..servers import OURS_AND_REAL
from .conftest import Compiled
from .noting import Asked, Place, built, configuration

REAL_TRITON = Path(__file__).parents[2] / "benchmarks/real_triton.py"
RealTriton = Callable[..., dict[str, int]]

SIZE = 16
PLACES = {"version": [1, 1, 1], "model": [2, 1], "backend": [3]}
"""Where the first strategy lies, and the batches that follow from it."""


def place_strategies(place: Place, compiled: Compiled, backend: Path) -> None:
    shutil.copy(built(compiled, "recorder", "alone"), backend / "batchstrategy.so")
    for name in PLACES:
        place.add(name, configuration(), MAX_BATCH_VOLUME_BYTES=str(2 * SIZE), JOURNAL="/dev/null")
        model = place.root / "models" / name
        if name != "backend":
            shutil.copy(built(compiled, "volume", "alone"), model / "batchstrategy.so")
        if name == "version":
            shutil.copy(built(compiled, "single", "alone"), model / "1/batchstrategy.so")


@pytest.fixture(scope="module", params=OURS_AND_REAL)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, compiled: Compiled
) -> Iterator[Asked]:
    root = tmp_path_factory.mktemp("lookup")
    backends = root / "backends"
    place = Place(root / "place")
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("TRITONSERVER_DELAY_SCHEDULER", "3")
        if request.param == "ours":
            (backends / "python").mkdir(parents=True)
            place_strategies(place, compiled, backends / "python")
            yield stack.enter_context(place.served(backend_directory=str(backends)))
            return
        real: RealTriton = request.getfixturevalue("real_triton")
        shutil.copytree(real_backends(), backends, symlinks=True)
        place_strategies(place, compiled, backends / "python")
        flag = f"--backend-directory={backends}"
        yield stack.enter_context(place.served(lambda models: real(models, flag)))


def real_backends() -> str:
    fetched = subprocess.run([sys.executable, str(REAL_TRITON), "fetch"], capture_output=True, check=True)
    backends: str = json.loads(fetched.stdout)["backends"]
    return backends


@pytest.mark.parametrize("name", PLACES)
def test_the_strategy_nearest_to_the_version_counts(server: Asked, name: str) -> None:
    answers = [server.send("http", name, SIZE // 4) for _ in range(3)]

    assert [answer.result() for answer in answers] == [""] * 3
    assert [len(batch) for batch in server.batches(name)] == PLACES[name]
