"""Write the examples of plugins anew: each is what `corectl new` makes, under a licence.

`make docs` runs it; a test compares.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tritonpy_sdk.template import copy_template

EXAMPLES = Path(__file__).resolve().parent
LICENSE = EXAMPLES.parent / "LICENSE"
PLUGINS = {
    "tritonpy-backend-c-xyz": ("backend/cpp", "c-xyz"),
    "tritonpy-backend-xyz": ("backend/python", "xyz"),
    "tritonpy-batching-xyz": ("strategy/python", "xyz"),
    "tritonpy-cache-xyz": ("cache", "xyz"),
    "tritonpy-frontend-xyz": ("frontend", "xyz"),
    "tritonpy-ops-xyz": ("ops", "xyz"),
    "tritonpy-repo-agent-xyz": ("agent", "xyz"),
    "tritonpy-store-xyz": ("store", "xyz"),
}
"""By folder: the template, and the name that the plugin gets."""


def write(example: str, folder: Path) -> None:
    """Make an example in a folder that is not there yet."""
    copy_template(*PLUGINS[example], folder)
    # Under which licence a new plugin stands is its author's choice; for examples it is made.
    shutil.copyfile(LICENSE, folder / "LICENSE")
    project = folder / "pyproject.toml"
    files = 'license-files = ["LICENSE"]\n'
    project.write_text(project.read_text().replace(files, f'license = "Apache-2.0"\n{files}'))


if __name__ == "__main__":
    for example in PLUGINS:
        shutil.rmtree(EXAMPLES / example, ignore_errors=True)
        write(example, EXAMPLES / example)
