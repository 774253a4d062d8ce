"""An environment for the digits, made of this repository and an index, serves them where it was moved."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest
from tritonpy_sdk.testing import DEADLINE_S, ServerProcess

pytestmark = [pytest.mark.neighbours, pytest.mark.timeout(900)]

DIGITS = Path(__file__).parents[4] / "examples/digits"


@pytest.fixture(autouse=True)
def pip_without_index() -> None:
    """Here pip fetches what it needs."""


def test_the_environment_of_the_digits_serves_them(tmp_path: Path) -> None:
    corectl = Path(sys.executable).with_name("corectl")
    options = [f"--model-repository={DIGITS / 'models'}", f"--venv={tmp_path / 'made'}"]
    subprocess.run([corectl, "compose", *options], check=True)
    shutil.move(tmp_path / "made", tmp_path / "moved")
    request = (DIGITS / "requests/seven.json").read_bytes()

    program = tmp_path / "moved/bin/corectl"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    with ServerProcess(
        f"--model-repository={DIGITS / 'models'}", program=program, environment=environment
    ) as server:
        url = f"http://127.0.0.1:{server.http_port}/v2/models/digits/infer"
        with build_opener(ProxyHandler({})).open(url, request, timeout=DEADLINE_S) as answer:
            scores = json.loads(answer.read())["outputs"][0]["data"]

    assert scores.index(max(scores)) == 7
