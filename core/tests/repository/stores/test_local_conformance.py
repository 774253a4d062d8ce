from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path

from tritonpy_sdk.testing import StoreConformance


class TestLocal(StoreConformance, lost_root="/no/such/repository"):
    clock = itertools.count(1)

    def make_root(self, directory: Path) -> str:
        return str(directory / "models")

    def put(self, root: str, files: Mapping[str, bytes]) -> None:
        Path(root).mkdir(exist_ok=True)
        for path in sorted(Path(root).rglob("*"), reverse=True):
            if path.is_dir():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path.relative_to(root).as_posix() not in files:
                path.unlink()
        for name, content in files.items():
            path = Path(root, name)
            if not path.exists() or path.read_bytes() != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                os.utime(path, (0, next(self.clock)))  # the clock of a disk may not tell two writes apart
