from __future__ import annotations

import logging
from pathlib import Path

import pytest
import tritonpy_backend_python
from tritonpy.plugin import Backend, InvalidArg, Model
from tritonpy_backend_python.settings import Settings, read_settings

KNOWN = {
    "stub-timeout-seconds": "30",
    "shm-default-byte-size": "8388608",
    "shm-growth-byte-size": "1048576",
    "shm-max-byte-size": "0",
    "shm-region-prefix-name": "triton",
    "initialize-timeout-seconds": "600",
    "unanswered-warning-seconds": "0",
    "traceback-to-client": "True",
    "thread-pool-size": "4",
    "python-runtime": "/usr/bin/python3.10",
    "default-max-batch-size": "4",
}


def test_what_is_known_is_read_without_a_word(caplog):
    assert read_settings(Backend("python", KNOWN)) == Settings(runtime="/usr/bin/python3.10")
    assert read_settings(Backend("python")) == Settings(runtime="")
    assert caplog.records == []


def test_an_unknown_setting_is_named_once_however_many_models_are_loaded(caplog):
    caplog.set_level(logging.WARNING, "tritonpy.backend.python")
    backend = Backend("python", {**KNOWN, "python-runtime": "", "nosuch": "1"})

    for name in ("a", "b"):
        tritonpy_backend_python.worker_command(Model(name, 1, {"name": name}, Path("/models"), backend))

    [record] = caplog.records
    assert record.getMessage().startswith("--backend-config=python,nosuch: there is no such setting")


def test_settings_of_a_backend_that_is_a_file_are_not_ours_to_judge(caplog):
    read_settings(Backend("mine", {"its-own": "1"}, directory=Path("/backends/mine")))

    assert caplog.records == []


@pytest.mark.parametrize(
    ("size", "text"),
    [
        ("0", "thread-pool-size can't be less than 1."),
        ("-2", "thread-pool-size can't be less than 1."),
        ("many", "--backend-config=python,thread-pool-size=many: expected a whole number"),
    ],
)
def test_a_thread_pool_that_cannot_be_is_refused(size, text):
    with pytest.raises(InvalidArg) as refused:
        read_settings(Backend("python", {"thread-pool-size": size}))

    assert refused.value.message == text


def test_a_switch_that_is_neither_on_nor_off_is_refused():
    with pytest.raises(InvalidArg) as refused:
        read_settings(Backend("python", {"traceback-to-client": "maybe"}))

    assert refused.value.message == (
        "--backend-config=python,traceback-to-client=maybe: expected true or false"
    )
