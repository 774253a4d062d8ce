"""`corectl compose`: complete recipes, engines that build them, environments that move."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml
from tritonpy.cli.main import main
from tritonpy_compose.engine import ENGINES

from .wheelhouse import make_wheel

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run `corectl compose` with the wheels, in an empty folder; returns status, output and errors."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        status = main(["compose", f"--find-links={wheels}", *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One model of ONNX."""
    (tmp_path / "models/net/1").mkdir(parents=True)
    (tmp_path / "models/net/1/model.onnx").touch()
    return tmp_path / "models"


def engines(folder: Path, names: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs of these names alone on the PATH, which write down what they are called with."""
    folder.mkdir()
    said = folder / "said.json"
    for name in names:
        program = folder / name
        program.write_text(
            f"#!{shutil.which('sh')}\nfor word; do printf '%s\\n' \"$word\"; done > '{said}'\nexit $STATUS\n"
        )
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("STATUS", "0")
    return said


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Containerfile, each with what stands behind it."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    joined = re.sub(r" *\\\n\s*", " ", "\n".join(lines))
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in joined.splitlines()]


def test_the_recipe_has_the_plugins_of_the_models_and_every_hash(
    run: Run, repository: Path, wheels: Path, tmp_path: Path
) -> None:
    status, out, err = run(
        f"--model-repository={repository}", "--dry-run", "--output-name=nets:1", "--", "--log-verbose=1"
    )

    assert (status, err) == (0, "")
    assert re.search(
        r"^backends +onnxruntime +tritonpy-backend-onnxruntime +model 'net': 1/model\.onnx$", out, re.M
    )
    assert "to build it: docker build --file compose/Containerfile --tag nets:1 --pull compose" in out
    folder = tmp_path / "compose"
    assert {path.name for path in folder.iterdir()} == {
        "Containerfile",
        "compose.yaml",
        "requirements.txt",
        "wheels",
    }
    locked = re.findall(
        r"^(\S+)==(\S+) --hash=sha256:(\w+)$", (folder / "requirements.txt").read_text(), re.M
    )
    assert [name for name, _, _ in locked] == ["engine-cpu", "tritonpy", "tritonpy-backend-onnxruntime"]
    for name, version, sha256 in locked:
        wheel = folder / "wheels" / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        assert hashlib.sha256(wheel.read_bytes()).hexdigest() == sha256

    told = instructions((folder / "Containerfile").read_text())
    names = [name for name, _ in told]
    assert set(names) <= {
        *("ARG", "FROM", "RUN", "COPY", "ENV", "LABEL", "USER", "WORKDIR", "EXPOSE", "HEALTHCHECK", "CMD"),
    }
    assert names.count("FROM") == 2
    [install] = [rest for name, rest in told if name == "RUN" and " install " in rest]
    assert all(
        option in install for option in ("--require-hashes", "--no-deps", "--find-links /build/wheels")
    )
    assert install.endswith("corectl plugins check backends:onnxruntime")
    assert ("USER", "1000:1000") in told
    command = ["corectl", "serve", "--model-repository", "/models", "--log-verbose=1"]
    assert json.loads(dict(told)["CMD"]) == command
    for run_in_image in (json.loads(rest) for name, rest in told if name == "RUN" and rest.startswith("[")):
        assert subprocess.run(["python3", *run_in_image[1:]], check=False).returncode in (0, 1)
    assert compile(json.loads(dict(told)["HEALTHCHECK"].partition("CMD ")[2])[2], "HEALTHCHECK", "exec")

    service = yaml.safe_load((folder / "compose.yaml").read_text())["services"]["server"]
    assert service["command"] == command
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp:mode=1777"]
    assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
    assert service["volumes"] == [
        {"type": "bind", "source": str(repository), "target": "/models", "read_only": True}
    ]
    assert "deploy" not in service


def test_gpus_other_plugins_stores_and_no_network(run: Run, wheels: Path, tmp_path: Path) -> None:
    status, out, err = run(
        *(
            "--backend=onnxruntime",
            "--repoagent=acme",
            "--enable-gpu",
            "--vendor",
            "--dry-run",
            "--work-dir=image",
        ),
    )

    assert (status, err) == (0, "")
    assert re.search(r"^repo_agents +acme +acme-agents +asked for$", out, re.M)
    assert "wheels: 4 of 4 packages" in out
    assert (tmp_path / "image/wheels/engine_gpu-1.6-py3-none-any.whl").is_file()
    text = (tmp_path / "image/Containerfile").read_text()
    assert "--no-index --find-links" in text
    assert "NVIDIA_VISIBLE_DEVICES=all" in text
    assert "PIP_INDEX_URL" not in text
    service = yaml.safe_load((tmp_path / "image/compose.yaml").read_text())["services"]["server"]
    [device] = service["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_that_is_there_builds_the_recipe(
    name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = engines(tmp_path / "bin", [name], monkeypatch)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "file:///secret@nowhere")

    status, out, _ = run("--output-name=x", *(["--skip-pull"] if name == "podman" else []))

    assert status == 0
    assert out.endswith("built x\n")
    pull = {
        "docker": ["--pull"],
        "podman": ["--pull=never", "--format=docker"],
        "buildah": ["--pull=always", "--format=docker"],
    }
    arguments = ["build", "--file", "compose/Containerfile", "--tag", "x", *pull[name]]
    assert said.read_text().splitlines() == [*arguments, "--build-arg", "PIP_EXTRA_INDEX_URL", "compose"]
    assert "secret" not in (tmp_path / "compose/Containerfile").read_text()


def test_an_engine_that_fails_and_none_at_all(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines(tmp_path / "bin", ["buildah"], monkeypatch)
    monkeypatch.setenv("STATUS", "3")

    failed = run()
    (tmp_path / "bin/buildah").unlink()
    nowhere = run()  # over the recipe of the first run
    unnamed = run("--engine=podman")

    assert failed[0] == 1
    assert "buildah ended with status 3; the recipe stays where it is: compose" in failed[2]
    assert nowhere[0] == 1
    assert nowhere[2] == "nothing here builds images: none of docker, podman, buildah is on the PATH\n"
    assert "to build it: docker build" in nowhere[1]
    assert unnamed[2] == "Error: --engine podman: no program of that name is on the PATH\n"


def test_an_environment_works_where_it_was_moved(run: Run, tmp_path: Path) -> None:
    status, out, err = run("--venv=it is here")
    os.rename(tmp_path / "it is here", tmp_path / "moved")

    said = subprocess.run(
        [tmp_path / "moved/bin/corectl", "serve"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    ).stdout

    assert (status, err) == (0, "")
    assert re.search(r"^made it is here: 1 packages, \d+\.\d MB$", out, re.M)
    assert said == f"{tmp_path / 'moved'} serve\n"
    assert not list((tmp_path / "moved/bin").glob("activate*"))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ["--backend=onnxruntme"],
            r"asked for: no backend is called 'onnxruntme'; did you mean 'onnxruntime'\?",
        ),
        (["--plugin=tfserving"], "--plugin 'tfserving': expected KIND:NAME, such as frontends:tfserving"),
        (
            ["--find-links=gone"],
            "--find-links 'gone': expected a wheel, a folder with wheels for this Python, or",
        ),
        (["--find-links=odd"], "pyproject.toml' has no \\[project\\] with a name: expected the folder of"),
        (["--model-repository=gone"], "'gone': no such file or directory"),
        (["--venv=odd"], "--venv 'odd' is there already: expected a new or empty directory"),
        (["--work-dir=odd"], "--work-dir 'odd' has files that are not of an earlier recipe, such as 'pyproj"),
        (["--package=engine-cpu<1"], "(?s)pip could not resolve the packages:.*engine-cpu<1"),
        (
            ["--backend=onnxruntime", "--constraint=c.txt"],
            r"(?s)conflicting dependencies.*caused by:.*\(constraint\) engine-cpu<1\.5",
        ),
    ],
)
def test_what_cannot_be_composed_is_refused_in_a_sentence(
    run: Run, tmp_path: Path, arguments: Sequence[str], error: str
) -> None:
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd/pyproject.toml").touch()
    (tmp_path / "c.txt").write_text("engine-cpu<1.5\n")

    status, _, err = run("--dry-run", *arguments)

    assert status == 1
    assert re.search(error, err)
    assert "Traceback" not in err


def test_a_package_for_gpus_is_noted_where_none_were_asked_for(run: Run, tmp_path: Path) -> None:
    make_wheel(tmp_path / "more", "nvidia-cublas", "13.0")

    _, _, err = run("--package=nvidia-cublas", f"--constraint={os.devnull}", "--dry-run", "--find-links=more")

    assert "1 packages are for GPUs, such as nvidia-cublas, without --enable-gpu" in err
