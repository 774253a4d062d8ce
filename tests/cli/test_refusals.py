"""What `corectl serve` says to a command line that makes no sense, beside what a real tritonserver says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tritonpy.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
FORMAT = "option format is '<config name>:<setting>=<value>'. Got "


@pytest.mark.parity
@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--http-port=abc", "Invalid option value. Got abc"),
        ("--http-port=99999999999", "Provided option value is out of bound. Got 99999999999"),
        ("--exit-timeout-secs=x", "Invalid option value. Got x"),
        ("--allow-http=yes", "invalid value for bool option: yes"),
        ("--log-verbose=loud", "Invalid option value. Got loud"),
        ("--log-format=loud", "invalid argument for --log-format"),
        ("--model-control-mode=x", "invalid argument for --model-control-mode"),
        ("--backend-config=python", "--backend-config option format is '<backend name>,<setting>=<value>'"),
        ("--backend-config=,a=b", "No backend specified. --backend-config option format is <backend name>,"),
        ("--grpc-keepalive-time=abc", "Invalid option value. Got abc"),
        ("--grpc-keepalive-permit-without-calls=2", "invalid value for bool option: 2"),
        ("--http-restricted-api=health:k=", f"--http-restricted-api {FORMAT}health:k="),
        ("--http-restricted-api=a:k=v", "unknown restricted api 'a'"),
        (
            "--http-restricted-api=trace,trace:k=v",
            "restricted api 'trace' can not be specified in multiple config groups",
        ),
        ("--grpc-restricted-protocol=health", f"--grpc-restricted-protocol {FORMAT}health"),
        ("--grpc-restricted-protocol=,:k=v", "unknown restricted protocol ''"),
        (
            "--grpc-restricted-protocol=trace,trace:k=v",
            "restricted protocol 'trace' can not be specified in multiple config groups",
        ),
    ],
)
def test_a_refused_value_is_named_in_the_same_words(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flag: str, words: str
) -> None:
    ours, theirs = both(capsys, tmp_path, flag)

    option = f'Bad option: "{flag.partition("=")[0]}".'
    for text in (option, words):
        assert text in ours
        assert text in theirs


@pytest.mark.parity
@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--nope", "unrecognized option '--nope'"),
        ("--http-port", "option '--http-port' requires an argument"),
        ("--load-model=a", "Use of '--load-model' requires setting '--model-control-mode=explicit' as well."),
    ],
)
def test_an_option_that_cannot_stand_there_is_named_in_the_same_words(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flag: str, words: str
) -> None:
    ours, theirs = both(capsys, tmp_path, flag)

    assert words.lower() in ours.lower()
    assert words.lower() in theirs.lower()


@pytest.mark.parity
def test_flags_that_ask_for_nothing_are_taken_by_both(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    flags = [
        "--allow-cpu-metrics=false",
        "--allow-gpu-metrics=false",
        "--allow-sagemaker=false",
        "--allow-vertex-ai=false",
        "--metrics-config=summary_latencies=false",
        "--min-supported-compute-capability=6.0",
        "--model-load-gpu-limit=0:0.85",
        "--rate-limit=off",
        "--rate-limit-resource=R1:4",
        "--repository-poll-secs=15",
        "--sagemaker-safe-port-range=8080-9080",
        "--trace-config=level=OFF",
        "--trace-config=triton,log-frequency=0",
        "--pinned-memory-pool-byte-size=0",
        "--cuda-memory-pool-byte-size=0:0",
    ]
    assert main(["serve", f"--model-repository={tmp_path}", "--show-config", *flags]) == 0
    assert capsys.readouterr().err == ""

    program = [sys.executable, str(ROOT / "benchmarks/real_triton.py"), "serve"]
    with subprocess.Popen(
        [*program, f"--model-repository={tmp_path}", "--", *flags], stdout=subprocess.PIPE, text=True
    ) as real:
        assert real.stdout is not None
        ready = json.loads(real.stdout.readline() or "{}")
        real.terminate()
    assert ready.get("ready") is True


def both(capsys: pytest.CaptureFixture[str], repository: Path, flag: str) -> tuple[str, str]:
    """What each writes to standard error before it ends with status 1."""
    assert main(["serve", f"--model-repository={repository}", flag]) == 1
    ours = capsys.readouterr().err
    program = [sys.executable, str(ROOT / "benchmarks/real_triton.py"), "serve"]
    real = subprocess.run(
        [*program, f"--model-repository={repository}", "--", flag],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert real.returncode == 1
    return ours, real.stderr
