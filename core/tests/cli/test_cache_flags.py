from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

import pytest
from tritonpy.cli.main import main
from tritonpy.options import ServerOptions

FORMAT = "--cache-config option format is"

Read = Callable[..., ServerOptions]


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> Read:
    """What `corectl serve` makes of a command line."""
    started: list[ServerOptions] = []
    server = ModuleType("tritonpy.server")
    server.run = lambda options: started.append(options) or 0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tritonpy.server", server)
    monkeypatch.setattr(sys, "setswitchinterval", lambda interval: None)

    def read(*arguments: str) -> ServerOptions:
        assert main(["serve", "--model-repository=m", *arguments]) == 0
        return started.pop()

    return read


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["serve", "--model-repository=m", *arguments]) == 1
    return capsys.readouterr().err.splitlines()[-1]


def test_settings_of_one_cache_come_together(options: Read) -> None:
    settings = options(
        "--cache-config=redis,host=example.org",
        "--cache-config=redis,key_prefix=a=b,c",
        "--cache-directory=/caches",
        "--cache-timeout-ms=20",
    )

    assert settings.cache_config == (("redis", "host", "example.org"), ("redis", "key_prefix", "a=b,c"))
    assert (settings.cache_directory, settings.cache_timeout_ms) == ("/caches", 20)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("local", f"No cache specified. {FORMAT} <cache name>,<setting>=<value>. Got local"),
        (",size=1", f"No cache specified. {FORMAT} <cache name>,<setting>=<value>. Got ,size=1"),
        ("local,", f"{FORMAT} '<cache name>,<setting>=<value>'. Got local,"),
        ("local,size", f"{FORMAT} '<cache name>,<setting>=<value>'. Got local,size"),
        ("local,=1", f"{FORMAT} '<cache name>,<setting>=<value>'. Got local,=1"),
        ("local,size=", f"{FORMAT} '<cache name>,<setting>=<value>'. Got local,size="),
    ],
)
def test_a_setting_of_another_form_is_refused(
    capsys: pytest.CaptureFixture[str], value: str, text: str
) -> None:
    assert refusal(capsys, f"--cache-config={value}") == f'Error: Bad option: "--cache-config". {text}'


@pytest.mark.parametrize("value", ["0", "-1", "soon"])
def test_a_timeout_is_a_number_from_one(capsys: pytest.CaptureFixture[str], value: str) -> None:
    assert refusal(capsys, f"--cache-timeout-ms={value}").startswith(
        'Error: Bad option: "--cache-timeout-ms". '
    )


def test_the_old_option_is_a_size_of_the_local_cache(
    options: Read, capsys: pytest.CaptureFixture[str]
) -> None:
    assert options("--response-cache-byte-size=1048576").cache_config == (("local", "size", "1048576"),)
    assert "use --cache-config local,size=BYTES" in capsys.readouterr().err
    assert options("--response-cache-byte-size=0").cache_config == ()


def test_the_old_option_and_the_new_one_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    error = refusal(capsys, "--response-cache-byte-size=1", "--cache-config=local,size=1")

    assert error == (
        "Error: Incompatible flags --response-cache-byte-size and --cache-config both provided. "
        "Please provide one or the other."
    )


def test_a_password_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    main(
        [
            *("serve", "--model-repository=m", "--show-config"),
            *("--cache-config=redis,host=h", "--cache-config=redis,password=hush"),
        ]
    )

    shown = capsys.readouterr().out
    assert "redis,host=h redis,password=***" in shown
    assert "hush" not in shown
