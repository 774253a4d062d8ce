"""`--frontend-config`: settings of a stranger's frontend, and other words for the flags of ours."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

import pytest
from tritonpy.cli.main import main
from tritonpy.options import ServerOptions

Read = Callable[..., ServerOptions]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    """Runs `corectl serve` up to the moment the server would start."""
    started: list[ServerOptions] = []
    server = ModuleType("tritonpy.server")
    server.run = lambda options, gc_threshold: started.append(options)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tritonpy.server", server)
    monkeypatch.setattr(sys, "setswitchinterval", lambda interval: None)

    def read(*arguments: str) -> ServerOptions:
        main(["serve", "--model-repository=m", *arguments])
        return started.pop()

    return read


def test_settings_are_kept_by_frontend_and_a_name_alone_is_enough(read: Read) -> None:
    flag = "--frontend-config"

    options = read(f"{flag}=xyz,port=1", flag, "xyz,path=a=b,c", f"{flag}=b")

    assert options.frontend_config == (("xyz", "port", "1"), ("xyz", "path", "a=b,c"), ("b", "", ""))


def test_what_is_said_to_ours_is_what_their_flags_say(read: Read) -> None:
    options = read(
        "--frontend-config=http,port=1",
        "--frontend-config",
        "grpc,keepalive-time=2",
        "--frontend-config=metrics,address=::1",
        "--frontend-config=http,restricted-api=health:a=b",
        "--frontend-config=http,restricted-api=trace:c=d",
    )

    assert options == ServerOptions(
        ("m",),
        http_port=1,
        grpc_keepalive_time_ms=2,
        metrics_address="::1",
        http_restricted_apis=((("health",), "a", "b"), (("trace",), "c", "d")),
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--frontend-config=http,prt=1"], "unrecognized option '--http-prt'; did you mean --http-port"),
        (["--frontend-config=http,port=one"], '"--http-port". Invalid option value. Got one'),
        (
            ["--frontend-config=http,port", "--http-port=1"],
            "--frontend-config option format is '<frontend name>,<setting>=<value>'. Got http,port; "
            "setting 'port' of frontend 'http' has no value, expected http,port=VALUE\n",
        ),
        (["--frontend-config=xyz,port"], "Got xyz,port; setting 'port' of frontend 'xyz' has no value"),
        (["--frontend-config=xyz,=1"], "Got xyz,=1; no setting of frontend 'xyz' is named after the comma"),
        (["--frontend-config=xyz,"], "Got xyz,; no setting of frontend 'xyz' is named after the comma"),
        (["--frontend-config=port=1"], "Got port=1; a frontend's name comes first"),
        (["--frontend-config="], "Got nothing; a frontend's name comes first"),
        (["--frontend-config"], "Got nothing; a frontend's name comes first"),
    ],
)
def test_other_words_are_refused(
    words: list[str], reason: str, read: Read, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--model-repository=m", *words]) == 1
    assert reason in capsys.readouterr().err


def test_the_table_of_options_shows_them_and_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    settings = ["a,port=1", "a,password=secret", "b", "http,port=5"]
    words = [f"--frontend-config={setting}" for setting in settings]

    assert main(["serve", "--model-repository=m", "--show-config", *words]) == 0

    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert ["--frontend-config", "a,port=1 a,password=*** b  command line"] in [
        [flag, " ".join(rest.split()).replace(" command", "  command")] for flag, rest in lines
    ]
    assert ["--http-port", "5", "command", "line"] in [[flag, *rest.split()] for flag, rest in lines]
