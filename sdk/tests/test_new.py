"""`corectl new` makes plugins that work as they are."""

from __future__ import annotations

import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tritonpy.cli.main import main
from tritonpy_sdk.template import STAND_IN
from tritonpy_sdk.testing import find_compiler

EXAMPLES = Path(__file__).parents[2] / "examples"
SOURCES = {"c": "strategy.c", "cpp": "strategy.cc", "python": "src/tritonpy_batching_by_tenant/__init__.py"}
WITHOUT = [
    f"-pno:{plugin}" for plugin in ("cacheprovider", "asyncio", "hypothesispytest", "xdist", "timeout")
]
"""Plugins of pytest that tests of plugins have no use for; to import them takes a fifth of such a run."""
LEFT_BY_TOOLS = {"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"}


def made(folder: Path) -> dict[str, bytes]:
    """The files of a folder, without what tools leave behind."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not LEFT_BY_TOOLS.intersection(path.parts)
    }


def skip_without_compiler(lang: str) -> None:
    suffix = Path(SOURCES[lang]).suffix
    if suffix != ".py" and find_compiler(suffix) is None:
        pytest.skip(f"there is no compiler for {SOURCES[lang]}")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("lang", SOURCES)
def test_a_strategy_gets_its_name_and_all_it_needs(lang: str, here: Path) -> None:
    assert main(["new", "strategy", "by-tenant", "--lang", lang]) == 0

    files = made(here / "by-tenant")
    assert {SOURCES[lang], "README.md"} < set(files)
    assert any(path.endswith("config.pbtxt") for path in files)
    assert any(path.endswith("test_strategy.py") for path in files)
    for path, content in files.items():
        assert STAND_IN not in path + content.decode()
        assert b"\r" not in content
    assert b"by-tenant" in files["README.md"]
    recipe = files.get("Makefile", b"").decode().splitlines()
    assert len(recipe) <= 10


def test_operators_get_their_name_where_each_language_wants_it(here: Path) -> None:
    assert main(["new", "ops", "by-tenant"]) == 0

    files = made(here / "by-tenant")
    assert not any(STAND_IN in path + content.decode() for path, content in files.items())
    assert b"STABLE_TORCH_LIBRARY(ops_by_tenant," in files["pytorch.cc"]
    assert b'REGISTER_OP("Ops_by_tenant>SquaredRelu")' in files["tensorflow.cc"]
    assert b'by-tenant = "tritonpy_ops_by_tenant"' in files["pyproject.toml"]
    assert b'"tensorflow": b"Ops_by_tenant>"' in files["src/tritonpy_ops_by_tenant/__init__.py"]


@pytest.mark.parametrize(
    ("arguments", "most_steps"),
    [
        ("agent", 3),
        ("backend", 3),  # with `corectl new` itself four, to an answer
        ("backend --language c++", 4),
        ("cache", 3),
        ("frontend", 3),
        ("model", 2),
        ("ops", 5),
        ("store", 4),
        ("strategy", 3),
        ("strategy --language c", 4),
        ("strategy --language c++", 4),
    ],
)
def test_each_kind_has_its_name_everywhere_and_says_what_leads_to_an_answer(
    arguments: str, most_steps: int, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", *arguments.split(), "by-tenant"]) == 0

    files = made(here / "by-tenant")
    assert not any(STAND_IN in path + content.decode() for path, content in files.items())
    shared = {"LICENSE", ".gitignore", ".github/workflows/test.yml"}
    assert shared | {"README.md", "pyproject.toml", "requirements-dev.txt"} < set(files)
    steps = capsys.readouterr().out.partition("Next:\n")[2].splitlines()
    assert any(step.startswith("  corectl serve") and "by-tenant" in step for step in steps)
    assert any("curl -s localhost:" in step for step in steps)
    assert len(steps) <= most_steps


@pytest.mark.parametrize("output", ["by-tenant", "deep/with blanks"])
def test_the_steps_name_the_folder_as_a_shell_and_pip_want_it(
    output: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for template in ("ops", "store"):
        assert main(["new", template, "by-tenant", "--output", f"{output}-{template}"]) == 0
    absolute = here / "absolute"
    assert main(["new", "backend", "by-tenant", "--output", str(absolute)]) == 0

    steps = [shlex.split(step) for step in capsys.readouterr().out.splitlines() if step.startswith("  ")]
    assert ["pip", "install", "--no-build-isolation", f"./{output}-ops"] in steps
    assert ["python", f"{output}-ops/make_models.py", f"{output}-ops/models"] in steps
    assert ["pip", "install", "--editable", f"./{output}-store"] in steps
    assert ["corectl", "serve", "--model-repository", f"by-tenant://{output}-store/models.zip"] in steps
    assert ["pip", "install", "--editable", absolute.as_posix()] in steps


@pytest.mark.parametrize("kind", ["agent", "backend", "cache", "frontend", "model", "store", "strategy"])
def test_the_tests_of_each_kind_in_python_pass(kind: str, here: Path) -> None:
    assert main(["new", kind, "by-tenant"]) == 0

    command = [sys.executable, "-m", "pytest", "-q", *WITHOUT]
    run = subprocess.run(
        command, cwd=here / "by-tenant", capture_output=True, text=True, timeout=100, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert " passed" in run.stdout


@pytest.mark.parametrize("language", ["c++", "cpp"])
def test_a_backend_gets_its_name_where_it_is_a_file_a_module_and_a_plugin(language: str, here: Path) -> None:
    assert main(["new", "backend", "by-tenant", "--language", language]) == 0

    files = made(here / "by-tenant")
    assert not any(STAND_IN in path + content.decode() for path, content in files.items())
    assert b'by-tenant = "tritonpy_backend_by_tenant:LIBRARY"' in files["pyproject.toml"]
    assert b'"libtriton_by-tenant.so"' in files["src/tritonpy_backend_by_tenant/__init__.py"]
    assert b'"libtriton_by-tenant.so"' in files["build_backend.py"]
    assert b'backend: "by-tenant"' in files["models/fruit/config.pbtxt"]


@pytest.mark.parametrize(
    ("arguments", "selection"),
    [
        # Strategies in C and C++ are run with their pages, tests/docs/test_shared_objects.py. In quick tests
        # a backend in C++ is run with its own, tests/docs/test_write_a_backend_in_cpp.py.
        (["ops", "by-tenant"], "not toolchain"),
        pytest.param(
            ["ops", "by-tenant"], "toolchain", marks=[pytest.mark.toolchain, pytest.mark.timeout(600)]
        ),
        pytest.param(["backend", "by-tenant", "--language", "c++"], "", marks=pytest.mark.toolchain),
    ],
)
def test_its_own_tests_pass(arguments: list[str], selection: str, here: Path) -> None:
    assert main(["new", *arguments, "--output", "deep/in/here"]) == 0
    if selection == "toolchain" or "c++" in arguments:
        skip_without_compiler("cpp")
    if selection == "toolchain":
        pytest.importorskip("torch")

    command = [sys.executable, "-m", "pytest", "-q", *WITHOUT]
    run = subprocess.run(
        [*command, "-m", selection],
        cwd=here / "deep/in/here",
        capture_output=True,
        text=True,
        timeout=100 if selection != "toolchain" else 500,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert " passed" in run.stdout


@pytest.mark.parametrize("lang", ["c", "cpp"])
def test_make_puts_the_shared_object_beside_its_model(lang: str, here: Path) -> None:
    skip_without_compiler(lang)
    assert main(["new", "strategy", "by-tenant", "--lang", lang, "--output", "new"]) == 0

    run = subprocess.run(
        ["make", f"PYTHON={sys.executable}"], cwd="new", capture_output=True, text=True, check=False
    )

    assert (run.returncode, run.stderr) == (0, "")
    [library] = here.glob("new/models/*/batchstrategy.so")
    assert library.with_name("config.pbtxt").is_file()


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("tritonpy-*-xyz")))
def test_the_example_of_a_distribution_is_what_the_command_makes(name: str, here: Path) -> None:
    program = runpy.run_path(str(EXAMPLES / "from_templates.py"))

    program["write"](name, here / "example")

    assert made(here / "example") == made(EXAMPLES / name), "run `make docs`"
    assert len(program["PLUGINS"]) == len(list(EXAMPLES.glob("tritonpy-*-xyz")))


def test_what_is_there_already_is_left_alone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "mine").mkdir()

    assert main(["new", "strategy", "mine", "--lang", "c"]) == 1

    expected = "Error: mine is there already: take another name, or say --output DIR\n"
    assert capsys.readouterr().err == expected
    assert list((here / "mine").iterdir()) == []


@pytest.mark.parametrize("name", ["Big", "1st", "a b", "a/b", "..", "", "a-", "a--b", "ä", "a" * 65, "-a."])
def test_a_name_that_is_none_is_refused(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "strategy", "--lang", "c", "--", name]) == 1

    assert f"got '{name}', expected small letters, digits and single '-' or '_'" in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_a_name_that_is_a_device_on_windows_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "strategy", "aux", "--lang", "c"]) == 1

    assert "got 'aux', which names a device on Windows" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "file").write_text("")

    assert main(["new", "strategy", "mine", "--lang", "c", "--output", "file/mine"]) == 1

    assert capsys.readouterr().err == f"Error: {Path('file/mine')} cannot be made: Not a directory\n"


def test_the_languages_are_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "strategy", "mine", "--lang", "rust"]) == 1

    assert "'rust' is not one of 'c', 'c++', 'cpp', 'python'" in capsys.readouterr().err


def test_the_wheel_holds_every_file_of_the_templates(tmp_path: Path) -> None:
    from zipfile import ZipFile

    from hatchling.builders.wheel import WheelBuilder

    root = Path(__file__).parents[1]
    [wheel] = WheelBuilder(str(root)).build(directory=str(tmp_path), versions=["standard"])

    source = root / "src/tritonpy_sdk/templates"
    with ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("tritonpy_sdk/templates/")}
    assert packed == {f"tritonpy_sdk/templates/{path}" for path in made(source)}
