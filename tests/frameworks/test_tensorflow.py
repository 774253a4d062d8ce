"""The tests that need TensorFlow, in an environment that has it: `make setup` leaves its gigabyte out."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from ..fetched import CACHE, environment

ROOT = Path(__file__).parents[2]
TESTS = (
    "plugins/backends/tensorflow/tests",
    "plugins/backends/litert/tests",
    "tests/docs/test_serve_a_tensorflow_model.py",
    "tests/examples/test_pitch.py",
)
PYTEST_S = 1200


@pytest.mark.emulator
@pytest.mark.timeout(PYTEST_S + 600)  # the download takes what it takes
def test_what_needs_tensorflow_passes_where_it_is_installed() -> None:
    python = environment(
        CACHE / "tensorflow",
        "tensorflow-cpu==2.21.0",
        "ai-edge-litert==2.3.0",
        alone=("basic-pitch==0.4.0", "tensorflow-text==2.21.1"),
    )
    variables = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}

    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not toolchain", *TESTS],
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        timeout=PYTEST_S,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    skipped = re.findall(r"^SKIPPED.*not installed.*", done.stdout, re.MULTILINE)
    assert not skipped, "\n".join(skipped)
