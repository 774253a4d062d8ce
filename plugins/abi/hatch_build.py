"""Compiles the library while a wheel is made; without a compiler the wheel is made all the same."""

from __future__ import annotations

import os
import runpy
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_HEADERS = "include"
_LIBRARY = "tritonpy_abi/lib/libtritonserver.so"


class LibraryHook(BuildHookInterface[Any]):  # Any: the builder's own configuration
    """Adds the library, and the headers that stand in another distribution of the repository."""

    _directory: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # Any: as hatchling has it
        """See hatchling; `version` is `standard` or `editable`."""
        root = Path(self.root)
        builder = runpy.run_path(str(root / "src/tritonpy_abi/build.py"))
        headers = builder["headers"]()
        if self.target_name == "sdist":
            build_data["force_include"][str(headers)] = _HEADERS
            return
        if version == "standard":
            build_data["force_include"][str(headers)] = f"tritonpy_abi/{_HEADERS}"
        try:
            if version == "standard":
                # Not the one in the tree: that belongs to an editable installation, which may be serving.
                self._directory = tempfile.TemporaryDirectory(prefix="tritonpy-abi-")
                output = builder["build"](headers, Path(self._directory.name) / "libtritonserver.so")
                build_data["force_include"][str(output)] = _LIBRARY
            else:
                builder["build"](headers)
        except builder["BuildError"] as exc:
            if os.environ.get("TRITONPY_ABI_REQUIRED") == "1":
                raise
            self.app.display_warning(f"tritonpy-abi is made without its library: {exc}")
            return
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # Any: as above
        """See hatchling."""
        if self._directory is not None:
            self._directory.cleanup()
