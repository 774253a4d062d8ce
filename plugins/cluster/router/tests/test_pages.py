"""The commands of the pages on several servers are understood, with every option that they have there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tritonpy.cli.serve import options_of
from tritonpy_router import cluster_cli, route_cli

ROOT = Path(__file__).parents[4]
PAGES = {
    "docs/how-to/route-to-several-servers.md",
    "docs/how-to/run-on-kubernetes.md",
    "docs/how-to/run-on-ray.md",
    "docs/how-to/use-all-cores.md",
    "docs/reference/what-is-lost.md",
    "plugins/cluster/ray/README.md",
    "plugins/cluster/router/README.md",
}


def commands() -> list[str]:
    """What the pages tell to type after `corectl`."""
    found = []
    for page in sorted(PAGES):
        text = (ROOT / page).read_text().replace("\\\n", " ")
        blocks = re.findall(r"^ *```console\n(.*?)^ *```|((?:^    .*\n)+)", text, re.MULTILINE | re.DOTALL)
        lines = [line.strip().removeprefix("$ ") for block in blocks for line in "".join(block).splitlines()]
        found += [line.removeprefix("corectl ") for line in lines if line.startswith("corectl ")]
    return [each for each in dict.fromkeys(found) if each.split()[0] in ("serve", "route", "cluster")]


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[Any, ...]]:
    """Calls that would start something, or ask somebody; in a folder with the files that pages name."""
    seen: list[tuple[Any, ...]] = []
    (tmp_path / "token").write_text("x" * 20)
    (tmp_path / "servers").write_text("gpu1\n")
    for name in ("front.pem", "front-key.pem"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tritonpy_router.program.run", lambda *given: seen.append(given) or 0)
    monkeypatch.setattr(
        "tritonpy_router.cluster_program.run", lambda *given, **named: seen.append((*given, named)) or 0
    )
    monkeypatch.setattr(cluster_cli, "_told", lambda *given: seen.append(given) or [])
    monkeypatch.setattr(cluster_cli, "_ask", lambda *given: seen.append(given) or {"servers": []})
    return seen


@pytest.mark.parametrize("command", commands())
def test_the_command_is_understood(command: str, nothing_runs: list[tuple[Any, ...]]) -> None:
    name, *arguments = shlex.split(command.partition(" > ")[0], comments=True)
    if name == "serve":
        assert options_of(arguments).model_repositories
        return
    result = CliRunner().invoke(route_cli.route if name == "route" else cluster_cli.cluster, arguments)

    assert result.exit_code == 0, result.output
    assert nothing_runs or arguments[0] == "envoy"


def test_the_pages_have_commands_of_every_kind() -> None:
    kinds = {" ".join(each.split()[: 2 if each.startswith("cluster") else 1]) for each in commands()}

    below = {f"cluster {name}" for name in cluster_cli.cluster.commands}
    assert kinds == {"serve", "route"} | below
