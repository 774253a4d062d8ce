"""A server and plugins as wheels that take moments to install, and pip without an index."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .wheelhouse import make_wheel


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a server, two plugins, and the frameworks that one of them leaves to extras."""
    folder = tmp_path_factory.mktemp("wheels")
    make_wheel(folder, "tritonpy", entry_points={"console_scripts": ["corectl = tritonpy:main"]})
    make_wheel(
        folder,
        "tritonpy-backend-onnxruntime",
        requires=["tritonpy>=0.1", "engine-cpu; extra == 'cpu'", "engine-gpu; extra == 'gpu'"],
        extras=["cpu", "gpu"],
        entry_points={"tritonpy.backends": ["onnxruntime = tritonpy_backend_onnxruntime"]},
    )
    make_wheel(folder, "acme-agents", "2.5", entry_points={"tritonpy.repo_agents": ["acme = acme_agents"]})
    make_wheel(folder, "engine-cpu", "1.5")
    make_wheel(folder, "engine-gpu", "1.6")
    return folder


@pytest.fixture(autouse=True)
def pip_without_index(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is fetched, and what somebody has set for pip changes nothing."""
    for variable in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
