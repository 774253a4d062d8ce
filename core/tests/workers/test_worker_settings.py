from __future__ import annotations

import pytest
from tritonpy.errors import InvalidArg
from tritonpy.workers.worker_settings import SharedMemorySettings, WorkerSettings, read_worker_settings


def test_nothing_said_leaves_the_defaults():
    assert read_worker_settings("python", {}, start_timeout_s=30) == WorkerSettings(30)


def test_every_setting_is_read_and_those_of_the_backend_itself_are_left_alone():
    settings = {
        "stub-timeout-seconds": "1.5",
        "initialize-timeout-seconds": "600",
        "unanswered-warning-seconds": "0",
        "shm-default-byte-size": "8388608",
        "shm-growth-byte-size": "1",
        "shm-max-byte-size": "16777216",
        "its-own": "?",
    }

    read = read_worker_settings("python", settings, start_timeout_s=30)

    assert read == WorkerSettings(1.5, SharedMemorySettings(8388608, 1, 16777216), 600, 0)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("shm-default-byte-size", "4194303", "shm-default-byte-size can't be smaller than 4 MiBs"),
        ("shm-default-byte-size", "-5", "shm-default-byte-size can't be smaller than 4 MiBs"),
        ("shm-growth-byte-size", "0", "shm-growth-byte-size can't be smaller than or equal to zero."),
        ("shm-max-byte-size", "-1", "shm-max-byte-size can't be smaller than zero."),
        ("stub-timeout-seconds", "0", "stub-timeout-seconds can't be smaller than or equal to zero."),
        ("stub-timeout-seconds", "-3", "stub-timeout-seconds can't be smaller than or equal to zero."),
        ("initialize-timeout-seconds", "-1", "initialize-timeout-seconds can't be smaller than zero."),
        ("unanswered-warning-seconds", "-1", "unanswered-warning-seconds can't be smaller than zero."),
    ],
)
def test_a_value_out_of_range_is_refused_in_triton_s_words(key, value, text):
    with pytest.raises(InvalidArg) as refused:
        read_worker_settings("python", {key: value}, start_timeout_s=30)

    assert refused.value.message == text


@pytest.mark.parametrize(
    ("key", "value", "unit"),
    [
        ("shm-default-byte-size", "", "bytes"),
        ("shm-default-byte-size", "8M", "bytes"),
        ("shm-growth-byte-size", "1.5", "bytes"),
        ("stub-timeout-seconds", "soon", "seconds"),
        ("stub-timeout-seconds", "nan", "seconds"),
        ("stub-timeout-seconds", "inf", "seconds"),
        ("initialize-timeout-seconds", "long", "seconds"),
        ("unanswered-warning-seconds", "never", "seconds"),
    ],
)
def test_what_is_no_number_is_refused_with_flag_and_unit(key, value, unit):
    with pytest.raises(InvalidArg) as refused:
        read_worker_settings("mine", {key: value}, start_timeout_s=30)

    assert refused.value.message == f"--backend-config=mine,{key}={value}: expected a number of {unit}"
