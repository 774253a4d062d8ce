"""Compiles the backend while a wheel is made, which is then for this platform only."""

from __future__ import annotations

import runpy
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BackendHook(BuildHookInterface[Any]):  # Any: the builder's own configuration
    """Puts the library into the wheel; that of an editable installation lies beside the module."""

    _folder: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # Any: as hatchling has it
        """See hatchling; `version` is `standard` or `editable`."""
        builder = runpy.run_path(str(Path(self.root, "build_backend.py")))
        if version == "editable":
            builder["build"]()
            return
        self._folder = tempfile.TemporaryDirectory(prefix="tritonpy-backend-xyz-")
        library = builder["build"](Path(self._folder.name))
        build_data["force_include"][str(library)] = f"{builder['PACKAGE']}/{library.name}"
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # Any: as above
        """See hatchling."""
        if self._folder is not None:
            self._folder.cleanup()
