"""Compiles the library while a wheel is made; without a compiler the wheel is made all the same."""

from __future__ import annotations

import os
import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_HEADERS = "include"


class LibraryHook(BuildHookInterface[Any]):  # Any: the builder's own configuration
    """Adds the library, and the headers that stand in another distribution of the repository."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # Any: as hatchling has it
        """See hatchling; `version` is `standard` or `editable`."""
        root = Path(self.root)
        unpacked = root / _HEADERS  # in a source archive
        headers = unpacked if unpacked.is_dir() else root / "../../sdk/src/tritonpy_sdk/include"
        if self.target_name == "sdist":
            build_data["force_include"][str(headers)] = _HEADERS
            return
        if version == "standard":
            build_data["force_include"][str(headers)] = f"tritonpy_abi/{_HEADERS}"
        builder = runpy.run_path(str(root / "src/tritonpy_abi/build.py"))
        try:
            builder["build"](headers)
        except builder["BuildError"] as exc:
            if os.environ.get("TRITONPY_ABI_REQUIRED") == "1":
                raise
            self.app.display_warning(f"tritonpy-abi is made without its library: {exc}")
            return
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
