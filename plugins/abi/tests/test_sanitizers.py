"""The library and a shared object under sanitizers, driven by a program in C."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tritonpy_abi import build as builder
from tritonpy_sdk.testing.shared_objects import find_compiler

from .driver import SUBJECTS, Driver, make_driver

pytestmark = [pytest.mark.toolchain, pytest.mark.timeout(600)]

ADDRESS = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    # Plugins are written in C, where an enumeration may hold any number; compilers of C++ take it for an int.
    "-fno-sanitize=enum",
)


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return make_driver(tmp_path_factory.mktemp("address"), *ADDRESS)


@pytest.fixture(scope="module")
def threads(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return make_driver(tmp_path_factory.mktemp("thread"), "-fsanitize=thread")


@pytest.mark.parametrize("subject", SUBJECTS)
def test_no_byte_is_used_that_is_not_there_and_none_is_lost(addresses: Driver, subject: str) -> None:
    done = addresses.run(subject)

    assert (done.returncode, done.stdout) == (0, f"{subject}: done\n"), done.stderr
    assert "Sanitizer" not in done.stderr
    assert "runtime error" not in done.stderr


@pytest.mark.parametrize("subject", SUBJECTS)
def test_threads_do_not_race(threads: Driver, subject: str) -> None:
    done = threads.run(subject)

    assert (done.returncode, done.stdout) == (0, f"{subject}: done\n"), done.stderr
    assert "Sanitizer" not in done.stderr


@pytest.mark.parametrize(
    ("mistake", "words"), [("leak", "detected memory leaks"), ("overrun", "heap-buffer-overflow")]
)
def test_the_address_sanitizer_is_awake(addresses: Driver, mistake: str, words: str) -> None:
    done = addresses.run(mistake)

    assert done.returncode != 0
    assert words in done.stderr


def test_the_thread_sanitizer_is_awake(threads: Driver) -> None:
    done = threads.run("race")

    assert done.returncode != 0
    assert "ThreadSanitizer: data race" in done.stderr


@pytest.mark.timeout(1200)
def test_the_tests_of_this_distribution_find_nothing_either(addresses: Driver, tmp_path: Path) -> None:
    # Their runtime has to come before Python, whose memory is nobody's leak; crashes on purpose stay signals.
    compiler = find_compiler(".c")
    assert compiler is not None
    runtimes = [
        subprocess.run(
            [*compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    if not all(map(os.path.isabs, runtimes)):
        pytest.skip(f"{compiler[0]} says not where its sanitizers are")
    environment = {
        "LD_PRELOAD": " ".join(runtimes),
        "ASAN_OPTIONS": (
            f"detect_leaks=0:handle_segv=0:allocator_may_return_null=1:log_path={tmp_path / 'report'}"
        ),
        "UBSAN_OPTIONS": f"log_path={tmp_path / 'report'}",
        "PYTHONMALLOC": "malloc",
        builder.ELSEWHERE: str(addresses.program.with_name(builder.SONAME)),
    }
    tests = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--timeout=120"]
    command += [
        "-m",
        "not (toolchain or parity or stress)",
        f"--ignore={tests / 'test_build.py'}",
        str(tests),
    ]

    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=1180
    )

    lines = [line for report in tmp_path.glob("report*") for line in report.read_text().splitlines()]
    # Some ask for more memory than there is, to be refused it.
    assert [line for line in lines if "AddressSanitizer failed to allocate 0x" not in line] == []
    assert done.returncode == 0, done.stdout
