"""The engine before there is a cluster; without Ray."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
import tritonpy_ray
from tritonpy.errors import Unavailable
from tritonpy_ray.engine import connect
from tritonpy_router.cluster_cli import cluster
from tritonpy_router.engines import find_engine
from tritonpy_router.route_cli import PORT_FLAG, route


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)

    with pytest.raises(Unavailable, match=r"Ray is not installed here: pip install 'tritonpy-ray\[ray\]'"):
        connect("auto")
    with pytest.raises(Unavailable, match="Ray is not installed here"):
        find_engine("ray", "auto")


def test_what_runs_without_ray_does_not_import_it() -> None:
    files = Path(tritonpy_ray.__file__).parent.glob("*.py")
    modules = {path.stem for path in files} - {"__init__", "actors", "controller_actor", "launcher"}
    code = f"import sys, {', '.join(f'tritonpy_ray.{name}' for name in modules)}; print('ray' in sys.modules)"

    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_each_option_of_its_page_is_there() -> None:
    page = (Path(__file__).parents[4] / "docs/how-to/run-on-ray.md").read_text()
    commands = [route, *cluster.commands.values()]
    options = [
        option for command in commands for option in command.params if isinstance(option, click.Option)
    ]
    known = {name for option in options for name in option.opts}

    named = set(re.findall(r"(--[a-z][a-z-]+)", page))
    others = {"--head", "--resources", "--file", "--tag"}  # of `ray` and `docker`
    ours = {flag for flag in named if not PORT_FLAG.fullmatch(flag)} - others
    assert ours <= known
    assert len(ours) > 8
