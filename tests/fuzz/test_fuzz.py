"""Bytes of strangers, led by what they reach in the code: no crash, no exception of ours, bounded memory."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tritonpy_abi.build import library

if importlib.util.find_spec("atheris") is None:  # not imported here: it would instrument what it meets
    pytest.skip("there is no wheel of atheris for this platform", allow_module_level=True)

TARGETS = ("request", "raw", "compression", "generate", "grpc", "block", "connection")
SECONDS = {
    "request": 60,
    "grpc": 30,
    "generate": 30,
    "raw": 15,
    "compression": 15,
    "block": 30,
    "connection": 40,
}
MOST_RUNS = 2_000_000
MOST_MIB = 512  # of the whole process, with the interpreter, numpy and protobuf
SEED = 20_260

# A program's peak memory begins at that of whoever starts it, so a small one stands between it and the tests.
SMALL_STARTER = [sys.executable, "-c", "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"]


@pytest.mark.stress
@pytest.mark.timeout(180)
@pytest.mark.parametrize("target", TARGETS)
def test_no_bytes_break_what_reads_them(target: str, tmp_path: Path) -> None:
    if target == "block" and not library().is_file():
        pytest.skip("tritonpy-abi has no library: there was no C++ compiler when it was installed")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    program = [sys.executable, str(Path(__file__).with_name("targets.py")), target]
    subprocess.run([*program, "--seeds", str(corpus)], check=True, capture_output=True)

    run = subprocess.run(
        [
            *SMALL_STARTER,
            *program,
            f"-max_total_time={SECONDS[target]}",
            f"-runs={MOST_RUNS}",
            f"-seed={SEED}",
            f"-rss_limit_mb={MOST_MIB}",
            "-timeout=10",
            "-max_len=4096",
            f"-artifact_prefix={tmp_path}/",
            str(corpus),
        ],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=SECONDS[target] + 90,
    )

    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
    done = re.search(r"Done (\d+) (?:runs )?in", run.stderr)
    assert done is not None, run.stderr[-2000:]
    assert int(done[1]) > 1000
