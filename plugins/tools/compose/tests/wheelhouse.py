"""Wheels made by hand, so that pip has something to resolve and install without an index."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

SCRIPT = "import sys\n\n\ndef main():\n    print(sys.prefix, *sys.argv[1:])\n"


def make_wheel(
    folder: Path,
    name: str,
    version: str = "0.1.0",
    *,
    requires: Sequence[str] = (),
    extras: Sequence[str] = (),
    entry_points: Mapping[str, Sequence[str]] | None = None,
) -> Path:
    """A wheel with one module, whose `main` says where it runs."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Provides-Extra: {extra}\n" for extra in extras)
    metadata += "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    groups = "".join(
        f"[{group}]\n" + "".join(f"{entry}\n" for entry in entries)
        for group, entries in (entry_points or {}).items()
    )
    files = {
        f"{module}.py": SCRIPT,
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": groups,
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    return wheel
