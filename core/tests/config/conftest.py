"""Models on disk, and the whole way from their files to a settled configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest
from tritonpy.config.complete import complete_backend, normalize
from tritonpy.config.load import parse_config
from tritonpy.config.validate import validate_complete, validate_structure
from tritonpy.protos import ModelConfig

Settle = Callable[..., ModelConfig]


def make_model(directory: Path, files: Iterable[str]) -> Path:
    directory.mkdir()
    (directory / "1").mkdir()
    for name in files:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return directory


@pytest.fixture
def settle(tmp_path: Path) -> Settle:
    """A function that does with a configuration text what loading a model does, backend aside."""

    def settle_text(
        text: str, *, name: str = "m", files: Sequence[str] = ("1/model.py",), gpus: Sequence[int] = ()
    ) -> ModelConfig:
        directory = make_model(tmp_path / name, files)
        config = parse_config(text, "config.pbtxt")
        complete_backend(config, directory, 1)
        validate_structure(config, name)
        normalize(config, gpus=gpus)
        validate_complete(config, gpus)
        return config

    return settle_text
