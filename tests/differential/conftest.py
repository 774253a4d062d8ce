"""One real server and one of ours, on the same models, for all comparisons."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from .comparison import Pair
from .regions import shared_region
from .servers import Server

MODELS = Path(__file__).parent / "models"
OPTIONS = ("--model-control-mode=explicit", "--load-model=*", "--exit-timeout-secs=3")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the models are, in `models`, and the logs."""
    folder = tmp_path_factory.mktemp("differential")
    repository = folder / "models"
    shutil.copytree(MODELS, repository, ignore=shutil.ignore_patterns("__pycache__", "mirror.py"))
    for model in repository.iterdir():
        if not (model / "1").exists():
            (model / "1").mkdir()
            shutil.copy(MODELS / "mirror.py", model / "1" / "model.py")
    return folder


@pytest.fixture(scope="session")
def ours(folder: Path) -> Iterator[Server]:
    """Our server, ready."""
    options = (*OPTIONS, "--allow-client-shm=true")  # which 2.51 cannot be told not to
    server = Server(folder / "models", folder / "ours.log", is_real=False, options=options)
    with shared_region():
        yield server
    server.close()


@pytest.fixture(scope="session")
def pair(folder: Path, ours: Server) -> Iterator[Pair]:
    """Both servers, ready."""
    real = Server(folder / "models", folder / "real.log", is_real=True, options=OPTIONS)
    yield Pair(real, ours)
    real.close()
