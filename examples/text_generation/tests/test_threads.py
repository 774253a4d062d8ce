"""That numpy is told to stay on one core."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

VERSION = Path(__file__).resolve().parents[1] / "models/text_generation/1"
ASK = """
import ctypes, sys
sys.path.append(sys.argv[1])
from textgen.threads import use_one_thread
library = ctypes.CDLL(sys.argv[2])
count = library.scipy_openblas_get_num_threads64_
library.scipy_openblas_set_num_threads64_(2)
print(count(), use_one_thread(), count())
"""


def test_matrix_products_stay_on_one_core() -> None:
    libraries = list((Path(np.__file__).parents[1] / "numpy.libs").glob("libscipy_openblas64*"))
    if not libraries:
        pytest.skip("this numpy brings no OpenBLAS of its own")

    done = subprocess.run(
        [sys.executable, "-c", ASK, str(VERSION), str(libraries[0])],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == ["2", "True", "1"]
