"""Build a model repository in code, for tests and scripts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from tritonpy_sdk.pbtxt import format_config

Config = Mapping[str, object] | str
"""A configuration: a dict in the JSON shape of `GET …/config`, or the text of a `config.pbtxt`."""


class ModelRepository:
    """A directory that a server can be pointed at, filled model by model.

    Example:
        >>> repository = ModelRepository(tmp_path)
        >>> repository.python("echo", source, config={"backend": "python", "max_batch_size": 8})
        >>> Server(model_repository=[repository])

    Args:
        path: made if it does not exist; what lies there already stays.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)

    def model(
        self,
        name: str,
        config: Config | None = None,
        files: Mapping[str, bytes | str] | None = None,
        *,
        version: int = 1,
        model_files: Mapping[str, bytes | str] | None = None,
    ) -> Path:
        """Add a model, or another version of it, and return its directory.

        Args:
            name: the model's name, which is its directory's.
            config: None writes no `config.pbtxt`, so that the server completes the configuration; calling
                again without one keeps the file that is there.
            files: contents by path inside the version directory, such as `{"model.onnx": data}`.
            version: the number of the version directory, which is made also when it stays empty.
            model_files: contents by path inside the model's directory, such as `{"labels.txt": text}`.
        """
        directory = self.path / name
        version_directory = directory / str(version)
        version_directory.mkdir(parents=True, exist_ok=True)
        for base, contents in ((version_directory, files), (directory, model_files)):
            for relative, content in (contents or {}).items():
                _write(base / relative, content)
        if config is not None:
            text = config if isinstance(config, str) else format_config(config)
            _write(directory / "config.pbtxt", text)
        return directory

    def python(self, name: str, source: str, config: Config | None = None, *, version: int = 1) -> Path:
        """Add a Python model; `source` is its `model.py` and may be indented as a whole."""
        return self.model(name, config, {"model.py": dedent(source)}, version=version)

    def onnx(self, name: str, model: bytes, config: Config | None = None, *, version: int = 1) -> Path:
        """Add an ONNX model; `model` is the serialized `ModelProto`."""
        return self.model(name, config, {"model.onnx": model}, version=version)

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"ModelRepository({str(self.path)!r})"


def _write(path: Path, content: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
