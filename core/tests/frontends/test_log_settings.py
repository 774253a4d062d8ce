from __future__ import annotations

import logging

import pytest
from tritonpy import logs
from tritonpy.errors import Unsupported
from tritonpy.frontends.grpc.logging import log_settings
from tritonpy.frontends.http.extensions import change_log_settings, show_log_settings
from tritonpy.frontends.log_settings import SETTINGS
from tritonpy.logs import LogSettings
from tritonpy.protos import LogSettingsRequest


def test_every_setting_of_the_log_is_known_to_clients() -> None:
    assert {setting.field for setting in SETTINGS} == set(LogSettings.__slots__)
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)


def test_where_the_embedding_program_writes_the_log_its_settings_are_shown_and_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert logs.running() is None
    shown = {
        "log_file": "",
        "log_info": False,
        "log_warning": True,
        "log_error": True,
        "log_verbose_level": 0,
        "log_format": "default",
    }
    refusal = "the program that this server is part of writes the log itself"

    caplog.set_level(logging.WARNING, "tritonpy")
    assert show_log_settings() == shown
    assert change_log_settings(b"{}") == shown
    with pytest.raises(Unsupported, match=refusal):
        change_log_settings(b'{"log_info": true}')
    request = LogSettingsRequest()
    request.settings["log_info"].bool_param = True
    with pytest.raises(Unsupported, match=refusal):
        log_settings(request)
    caplog.set_level(logs.verbose(2), "tritonpy")
    assert show_log_settings() == {**shown, "log_info": True, "log_verbose_level": 2}
