"""Put the SavedModel that the package `basic-pitch` ships into a repository.

    python examples/pitch/make_model.py

It needs `pip install --no-deps basic-pitch`; the package's own code is not used.
"""

from __future__ import annotations

import argparse
import shutil
from importlib.metadata import distribution
from pathlib import Path

HERE = Path(__file__).resolve().parent


def make_model(repository: Path) -> Path:
    """Write version 1 of the model into a repository and return the path of its directory."""
    path = repository / "pitch/1/model.savedmodel"
    shipped = distribution("basic-pitch").locate_file("basic_pitch/saved_models/icassp_2022/nmp")
    shutil.copytree(str(shipped), path, dirs_exist_ok=True)
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Put the model of the package basic-pitch in its place.")
    parser.add_argument(
        "--repository", type=Path, default=HERE / "models", help="folder of models to write to"
    )
    print(make_model(parser.parse_args().repository))
