"""Run a program that imports PyTriton: `python -m tritonpy_sdk.pytriton PROGRAM [ARGUMENTS]`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from tritonpy_sdk.pytriton import install


def main() -> None:
    """Run the program that is named first, with the arguments that follow."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m tritonpy_sdk.pytriton PROGRAM [ARGUMENTS]")
    install()
    del sys.argv[0]
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
