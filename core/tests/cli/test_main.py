from __future__ import annotations

import importlib
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tritonpy.cli.main import BUILT_IN, ELSEWHERE, main
from tritonpy.version import __version__

HEAVY = {"numpy", "aiohttp", "grpc", "google.protobuf", "uvloop", "rich"}


def test_help_lists_every_command_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; from tritonpy.cli.main import main; main(['--help']);"
        f"print(sorted({HEAVY!r} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    *listing, heavy = run.stdout.splitlines()
    assert heavy == "[]"
    for name in BUILT_IN:
        assert any(line.split()[:1] == [name] for line in listing)


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_every_command_has_the_help_that_the_listing_promises(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: corectl {name}")
    module, summary = BUILT_IN[name]
    assert getattr(importlib.import_module(module), name).name == name
    assert summary.endswith(".")


def test_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"corectl {__version__}\n"


def test_unknown_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sevre"]) == 1
    assert "No such command 'sevre'; did you mean serve?" in capsys.readouterr().err


def test_an_unknown_command_that_is_like_no_other_gets_no_advice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["xyzzy"]) == 1
    assert "No such command 'xyzzy'.\n" in capsys.readouterr().err


def completion(**variables: str) -> str:
    """What a shell is told that asks `corectl` as its completion does."""
    program = "import sys; from tritonpy.cli.main import main; sys.exit(main([]))"
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return run.stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("corectl mo", "models"),
        ("corectl models re", "reload"),
        ("corectl serve --model-repo", "--model-repository"),
    ],
)
def test_the_tab_key_completes_commands_and_options(typed: str, offered: str) -> None:
    place = str(len(typed.split()) - 1)

    told = completion(_CORECTL_COMPLETE="bash_complete", COMP_WORDS=typed, COMP_CWORD=place)

    assert told == f"plain,{offered}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_that_turns_completion_on_is_printed(shell: str) -> None:
    script = completion(_CORECTL_COMPLETE=f"{shell}_source")

    assert f"_CORECTL_COMPLETE={shell}_complete" in script


def test_a_command_of_another_distribution_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(ELSEWHERE, "knit", "tritonpy-wool")

    assert main(["knit", "socks"]) == 1

    assert (
        capsys.readouterr().err
        == "Error: 'corectl knit' comes with tritonpy-wool: pip install tritonpy-wool\n"
    )
    assert ELSEWHERE["new"] == "tritonpy-sdk"


@pytest.fixture
def plugin_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory whose distributions are installed for as long as the test runs."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def install(directory: Path, distribution: str, entry_points: str, **modules: str) -> None:
    info = directory / f"{distribution.replace('-', '_')}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(entry_points)
    for name, text in modules.items():
        (directory / f"{name}.py").write_text(text)


GREET = """
import click
from tritonpy.plugin import hookimpl

@hookimpl
def cli_commands(group):
    @group.command(short_help="Say hello.")
    def greet():
        click.echo("hello")
"""


def test_a_plugins_command_is_listed_and_runs(
    plugin_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(plugin_directory, "greetings", "[tritonpy.cli]\ngreet = greet_plugin\n", greet_plugin=GREET)

    assert main(["--help"]) == 0
    assert "greet    Say hello." in capsys.readouterr().out
    assert main(["greet"]) == 0
    assert capsys.readouterr().out == "hello\n"


def test_a_broken_cli_plugin_is_named_and_takes_nothing_with_it(
    plugin_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(
        plugin_directory,
        "broken-dist",
        "[tritonpy.cli]\nbroken = broken_plugin\n",
        broken_plugin="raise RuntimeError('no luck')",
    )

    assert main(["--help"]) == 0

    out, err = capsys.readouterr()
    assert "serve" in out
    assert "plugin 'broken' of kind 'cli' cannot be used: RuntimeError: no luck" in err


def test_a_cli_plugin_that_raises_takes_nothing_with_it(
    plugin_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(
        plugin_directory,
        "raising-dist",
        "[tritonpy.cli]\nraising = raising_plugin\n",
        raising_plugin=GREET.replace("@group.command", "raise RuntimeError('no luck')\n    @group.command"),
    )

    assert main(["--help"]) == 0

    out, err = capsys.readouterr()
    assert "serve" in out
    assert "no luck" in err


def test_plugins_shows_state_hooks_and_tracebacks(
    plugin_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(
        plugin_directory,
        "tritonpy-backend-good",
        "[tritonpy.backends]\ngood = good_plugin\nbad = bad_plugin\n",
        good_plugin=(
            "from tritonpy.plugin import hookimpl\n"
            "@hookimpl\ndef model_instance_execute(instance, requests): return []\n"
        ),
        bad_plugin="import no_such_framework",
    )

    assert main(["plugins"]) == 0
    before = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines()}
    assert main(["plugins", "--load"]) == 0
    text = capsys.readouterr().out
    after = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}

    assert before["good"] == ["good", "backends", "1.2", "tritonpy-backend-good", "available", "-"]
    assert after["good"][-2:] == ["loaded", "model_instance_execute"]
    assert after["bad"][-2:] == ["failed", "-"]
    assert "backends:bad of tritonpy-backend-good failed:\nTraceback" in text
    assert "No module named 'no_such_framework'" in text


def test_plugins_check_tries_each_in_a_process_of_its_own(
    plugin_directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(plugin_directory))
    backend = (
        "import os\nfrom tritonpy.plugin import Unavailable, hookimpl\n"
        "@hookimpl\ndef backend_initialize(backend):\n"
        "    if backend.name == 'refuses': raise Unavailable('not today')\n"
        "    if backend.name == 'leaves':\n        print('I am off', flush=True)\n        os._exit(0)\n"
        "@hookimpl\ndef model_instance_execute(instance, requests): return []\n"
    )
    entry_points = "works = a_backend\nrefuses = a_backend\nleaves = a_backend\nempty = an_empty\n"
    install(
        plugin_directory,
        "four-backends",
        f"[tritonpy.backends]\n{entry_points}[tritonpy.frontends]\nbad = a_missing_module\n",
        a_backend=backend,
        an_empty="",
    )
    names = [f"backends:{name}" for name in ("works", "refuses", "leaves", "empty")]

    assert main(["plugins", "check", *names, "frontends:bad"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert main(["plugins", "check", "backends:works"]) == 0
    assert main(["plugins", "check", "backends:works", "backends:nosuch"]) == 1

    of = "of four-backends 1.2: "
    assert lines == [
        f"backends:works {of}can be used",
        f"backends:refuses {of}Unavailable: not today",
        f"backends:leaves {of}the process that tried it exited with code 0",
        "  I am off",
        f"backends:empty {of}Internal: backend 'empty' does not implement model_instance_execute",
        f"frontends:bad {of}Internal: plugin 'bad' of kind 'frontends' cannot be used: entry point 'bad = "
        f"a_missing_module' of four-backends names a module that is not there: No module named "
        f"'a_missing_module'",
    ]
    assert "no plugin 'backends:nosuch' is installed; installed: backends:" in capsys.readouterr().err


def test_plugins_as_json_names_both_owners_of_a_doubly_offered_name(
    plugin_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import json

    install(plugin_directory, "first-dist", "[tritonpy.backends]\ntwice = a_module\n")
    install(plugin_directory, "second-dist", "[tritonpy.backends]\ntwice = b_module\n")

    assert main(["plugins", "--json"]) == 0

    (twice,) = [entry for entry in json.loads(capsys.readouterr().out) if entry["name"] == "twice"]
    assert twice["state"] == "failed"
    assert "first-dist" in twice["error"]
    assert "second-dist" in twice["error"]


def test_help_is_quick() -> None:
    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "tritonpy.cli.main", "--help"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # About 0.1 s of a core; how long that takes is up to whoever else is there. The margin is for slow cores.
    assert min(once() for _ in range(5)) < 0.5


def test_standard_streams_that_are_closed_lead_nowhere(tmp_path: Path) -> None:
    """A socket with the number of standard error would be written to by every library that complains."""
    code = (
        "import os, pathlib, sys; from tritonpy.cli.main import main; main(['--version']);"
        "found = [(os.readlink(f'/proc/self/fd/{n}'), os.get_inheritable(n)) for n in range(3)];"
        "pathlib.Path(sys.argv[1]).write_text(repr(found))"
    )
    found = tmp_path / "found"

    script = 'exec "$@" <&- >&- 2>&-'
    subprocess.run(["sh", "-c", script, "sh", sys.executable, "-c", code, str(found)], check=True)

    assert found.read_text() == repr([("/dev/null", True)] * 3)
