from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy.cli.config_preview import settled_preview
from tritonpy.lifecycle.loading import loader, version_load
from tritonpy.lifecycle.loading.settings import LoaderSettings


def test_the_loop_does_not_wait_for_a_configuration_to_be_gone_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, threading.Thread] = {}

    def watched(module: Any, name: str) -> None:
        original: Callable[..., object] = getattr(module, name)

        def watch(*args: Any, **options: Any) -> object:
            threads[name] = threading.current_thread()
            return original(*args, **options)

        monkeypatch.setattr(module, name, watch)

    watched(loader, "proposed_config")
    watched(version_load, "settled_config")
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/config.pbtxt").write_text('backend: "identity"')

    settled_preview(tmp_path / "m", LoaderSettings())

    assert threads.keys() == {"proposed_config", "settled_config"}
    assert threading.current_thread() not in threads.values()  # here the loop ran
