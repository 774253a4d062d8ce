"""The images and their composition, read but not built: that needs an engine, which not every machine has."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from tritonpy.cli.main import main as corectl

EXAMPLE = Path(__file__).resolve().parents[1]
ROOT = EXAMPLE.parents[1]
INSTRUCTIONS = (
    "ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL RUN SHELL STOPSIGNAL USER VOLUME WORKDIR"
)


@dataclass
class Stage:
    """One image of a Dockerfile: its instructions, each with what stands behind it."""

    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, instruction: str) -> list[str]:
        return [rest for name, rest in self.instructions if name == instruction]

    def one(self, instruction: str) -> str:
        [rest] = self.all(instruction)
        return rest


def read_dockerfile(path: Path) -> dict[str, Stage]:
    """The stages of a Dockerfile by name."""
    lines = [
        line for line in path.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    stages: dict[str, Stage] = {}
    stage = None
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        name, _, rest = line.partition(" ")
        assert name in INSTRUCTIONS.split(), line
        assert rest.strip(), line
        if name == "FROM":
            match = re.fullmatch(r"(\S+) AS (\S+)", rest)
            assert match is not None, line
            stage = stages[match[2]] = Stage(match[1])
        else:
            assert stage is not None, "an instruction before FROM"
            stage.instructions.append((name, rest))
    return stages


@pytest.fixture(scope="module")
def stages() -> dict[str, Stage]:
    return read_dockerfile(EXAMPLE / "Dockerfile")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    document = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())
    assert set(document) == {"services"}
    found: dict[str, Any] = document["services"]
    return found


def test_both_images_come_from_the_slim_python_and_run_as_somebody_else_than_root(
    stages: dict[str, Stage],
) -> None:
    assert set(stages) == {"server", "client"}
    for stage in stages.values():
        names = [name for name, _ in stage.instructions]
        user = stage.one("USER")
        assert stage.base == "python:3.12-slim"
        assert any(re.search(rf"^useradd .*\b{user}$", command) for command in stage.all("RUN"))
        assert names.index("USER") > max(place for place, name in enumerate(names) if name in ("RUN", "COPY"))


def test_everything_that_is_copied_exists_and_is_not_ignored(stages: dict[str, Stage]) -> None:
    lines = (EXAMPLE / "Dockerfile.dockerignore").read_text().splitlines()
    wanted = [line[1:] for line in lines if line.startswith("!")]

    for stage in stages.values():
        for copy in stage.all("COPY"):
            *sources, target = shlex.split(copy)
            assert target.startswith("/")
            for source in sources:
                assert (ROOT / source).exists(), source
                assert any(source == path or source.startswith(f"{path}/") for path in wanted), source
    assert lines[1] == "*"
    assert all((ROOT / path).is_dir() for path in wanted)


def test_what_is_installed_was_copied_before_and_is_a_distribution(stages: dict[str, Stage]) -> None:
    copied = {target: source for source, target in (copy.split() for copy in stages["server"].all("COPY"))}
    [install] = [command for command in stages["server"].all("RUN") if command.startswith("pip install")]

    folders = [word for word in shlex.split(install.split("&&")[0]) if word.startswith("/")]

    assert folders
    assert all((ROOT / copied[folder] / "pyproject.toml").is_file() for folder in folders)


def test_the_image_starts_a_server_with_options_that_it_knows(
    stages: dict[str, Stage], capsys: pytest.CaptureFixture[str]
) -> None:
    program, *arguments = json.loads(stages["server"].one("CMD"))
    copied = {target: source for source, target in (copy.split() for copy in stages["server"].all("COPY"))}

    status = corectl([*arguments, "--show-config"])

    assert program == "corectl"
    assert status == 0, capsys.readouterr().err
    assert copied[arguments[arguments.index("--model-repository") + 1]] == "examples/text_generation/models"


def test_the_image_exposes_the_ports_the_server_listens_on_and_asks_it_whether_it_is_ready(
    stages: dict[str, Stage], capsys: pytest.CaptureFixture[str]
) -> None:
    server = stages["server"]
    corectl(["serve", "--model-repository", "/models", "--show-config"])
    shown = capsys.readouterr().out
    defaults = {int(port) for port in re.findall(r"--(?:http|grpc|metrics)-port\s+(\d+)", shown)}

    _, _, check = server.one("HEALTHCHECK").partition("CMD ")

    assert set(map(int, server.one("EXPOSE").split())) == defaults == {8000, 8001, 8002}
    assert json.loads(check)[:2] == ["python", "-c"]
    compile(json.loads(check)[2], "HEALTHCHECK", "exec")
    assert "http://localhost:8000/v2/health/ready" in check


def test_the_composition_builds_both_images_from_the_root_of_the_repository(
    stages: dict[str, Stage], services: dict[str, Any]
) -> None:
    assert set(services) == set(stages)
    for name, service in services.items():
        build = service["build"]
        context = (EXAMPLE / build["context"]).resolve()
        assert context == ROOT
        assert context / build["dockerfile"] == EXAMPLE / "Dockerfile"
        assert build["target"] == name


def test_the_client_waits_for_a_healthy_server_and_asks_it_on_published_ports(
    stages: dict[str, Stage], services: dict[str, Any]
) -> None:
    exposed = stages["server"].one("EXPOSE").split()
    [host, port], [grpc_host, grpc_port] = (
        address.split(":") for address in json.loads(stages["client"].one("ENTRYPOINT"))[3::2]
    )

    assert services["client"]["depends_on"] == {"server": {"condition": "service_healthy"}}
    assert services["server"]["ports"] == [f"{port}:{port}" for port in exposed]
    assert (host, grpc_host) == ("server", "server")
    assert [port, grpc_port] == exposed[:2]
