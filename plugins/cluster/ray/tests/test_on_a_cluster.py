"""A fleet on a real Ray cluster of three nodes: `story.py` is told once, and looked at here."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import site
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.testing import DEADLINE_S

pytestmark = [pytest.mark.neighbours, pytest.mark.timeout(1800)]  # it brings 300 MB, and lives for minutes

NAMESPACE = ("unshare", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has Ray, and all that this one has."""
    if importlib.util.find_spec("ray") is not None:
        return Path(sys.executable)
    folder = tmp_path_factory.mktemp("ray") / "venv"
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.check_output(asked, text=True).strip())
    lines = [f"import site; site.addsitedir({each!r})" for each in site.getsitepackages()]
    (packages / "shared.pth").write_text("\n".join(lines))
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "-q", "ray>=2.40"], check=True
    )
    return python


@pytest.fixture(scope="module")
def seen(python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `story.py` saw."""
    if sys.platform != "linux" or subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode:
        pytest.skip("namespaces, in which a cluster may be killed without harm, are not to be had here")
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as short:  # paths of sockets have 107 bytes
        environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": short}
        environment["TRITONPY_TEST_PATIENCE"] = "4"  # a lost node is replaced after twenty seconds at best
        script = 'ip link set lo up && exec "$@"'
        told = subprocess.run(
            [*NAMESPACE, "sh", "-c", script, "-", python, Path(__file__).with_name("story.py"),
             tmp_path_factory.mktemp("story")],
            capture_output=True,
            text=True,
            env=environment,
            timeout=20 * DEADLINE_S,
        )  # fmt: skip
    assert told.returncode == 0, told.stderr[-8000:]
    document: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return document


def test_servers_start_on_different_nodes_with_a_router_on_each(seen: dict[str, Any]) -> None:
    assert seen["servers"] == ["ready", "ready"]
    assert seen["nodes of servers"] == 2
    assert seen["routers"] == ["up", "up", "up"]
    assert "server-2" in seen["up"]


def test_a_fleet_that_cannot_serve_says_why_and_leaves_nothing(seen: dict[str, Any]) -> None:
    assert "server 'server-1' ended before it served: " in seen["broken up"]
    assert "is called 'nosuch'" in seen["broken up"]
    assert seen["left of broken"] == []


def test_two_fleets_need_two_names(seen: dict[str, Any]) -> None:
    assert "a fleet 'default' runs in this cluster" in seen["again"]


def test_servers_follow_the_load_up_and_down_beside_a_spare(seen: dict[str, Any]) -> None:
    assert seen["elastic counts"] == [2, 3, 2]
    assert seen["elastic traffic"]["ends"] == {"answered": seen["elastic traffic"]["sent"]}


def test_servers_tell_routers_of_themselves_over_tls_by_a_token_that_is_on_no_command_line(
    seen: dict[str, Any],
) -> None:
    assert seen["told"] == ["server-1", "server-2"]
    assert seen["command lines with a token"] == []


def test_it_is_scaled_without_a_lost_request(seen: dict[str, Any]) -> None:
    assert seen["scaled up"] == ["ready"] * 3
    assert seen["scaled down"] == ["server-1", "server-2"]
    assert seen["scale traffic"]["ends"] == {"answered": seen["scale traffic"]["sent"]}


def test_it_is_updated_without_a_lost_request_and_not_to_what_does_not_serve(seen: dict[str, Any]) -> None:
    assert "ended before it served" in seen["broken update"]
    assert "the others were not replaced" in seen["broken update"]
    assert (seen["kept"], seen["replaced"], seen["updated"]) == (True, True, ["ready"] * 2)
    assert (seen["routers replaced"], seen["routers updated"]) == (True, ["up"] * 3)
    assert seen["routers keep ports"]
    assert seen["update traffic"]["ends"] == {"answered": seen["update traffic"]["sent"]}


def test_a_server_that_dies_is_started_again_by_its_actor(seen: dict[str, Any]) -> None:
    assert seen["restarted"]


def test_the_loss_of_the_controller_is_none_for_requests(seen: dict[str, Any]) -> None:
    assert seen["controllers killed"] == 1
    assert seen["after the controller"]
    assert seen["controller traffic"]["ends"] == {"answered": seen["controller traffic"]["sent"]}


def test_a_killed_node_costs_no_more_than_what_was_under_way_there(seen: dict[str, Any]) -> None:
    ends = seen["node traffic"]["ends"]
    errors = {end: count for end, count in ends.items() if end != "answered"}

    assert sum(ends.values()) == seen["node traffic"]["sent"]
    named = re.compile(r"(503|UNAVAILABLE): replica 'server-")
    assert all(named.match(end) for end in errors), errors
    assert sum(errors.values()) <= 3  # clients, each with one request at a time


def test_down_leaves_nothing(seen: dict[str, Any]) -> None:
    assert seen["left"] == seen["actors left"] == []
    assert "no fleet 'default' runs in this Ray cluster" in seen["status after"]
