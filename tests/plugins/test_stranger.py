"""A third party's wheels, installed beside ours into an environment of their own, listed and served."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.testing import DEADLINE_S, until

from .clean_environment import (
    ROOT,
    Environment,
    Server,
    dependencies_of,
    link_distribution,
    make_wheels,
    run,
)

pytestmark = pytest.mark.timeout(180)  # the first one waits until wheels are made and installed

BACKEND = ROOT / "examples" / "tritonpy-backend-xyz"
STRATEGY = ROOT / "examples" / "tritonpy-batching-xyz"
AGENT = ROOT / "examples" / "tritonpy-repo-agent-xyz"
CACHE = ROOT / "examples" / "tritonpy-cache-xyz"
FRONTEND = ROOT / "examples" / "tritonpy-frontend-xyz"
STORE = ROOT / "examples" / "tritonpy-store-xyz"
PLUGINS = (BACKEND, STRATEGY, AGENT, CACHE, FRONTEND, STORE)
NAMES = [folder.name for folder in PLUGINS]

BROKEN_PLUGIN = """
from tritonpy.plugin import hookimpl

def find_licence():
    raise LookupError("no licence for broken")

find_licence()
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    wheelhouse = tmp_path_factory.mktemp("wheelhouse")
    make_wheels(wheelhouse, ROOT / "core", *PLUGINS)
    clean = Environment(tmp_path_factory.mktemp("clean") / "venv", "tritonpy")
    for name in ("aiohttp", *dependencies_of("aiohttp")):  # the frontend's own
        link_distribution(name, clean.site_packages)
    clean.install(wheelhouse, *NAMES)
    return clean


@pytest.fixture
def serve(environment: Environment) -> Iterator[Callable[..., Server]]:
    """Starts servers; all of them have to stop cleanly."""
    servers: list[Server] = []

    def start(*arguments: str, **variables: str) -> Server:
        servers.append(Server(environment, *arguments, **variables))
        return servers[-1]

    yield start
    assert [server.stop() for server in servers] == [0] * len(servers)


def readme_request(readme: Path) -> tuple[str, Any]:
    """Path and body of the first curl line of a README."""
    found = re.search(r"curl -s localhost:8000(\S+) -d '(.*)'", readme.read_text())
    assert found is not None
    return found[1], json.loads(found[2])


def test_the_environment_sees_nothing_of_this_checkout(environment: Environment) -> None:
    program = (
        "import sys, tritonpy, tritonpy_backend_xyz as xyz; print(tritonpy.__file__, xyz.__file__, *sys.path)"
    )

    assert str(ROOT) not in run(environment.python, "-c", program)


def test_the_stranger_needs_few_lines() -> None:
    for module in (module for plugin in (BACKEND, STRATEGY, AGENT) for module in plugin.glob("src/*/*.py")):
        assert len(module.read_text().splitlines()) < 40
    for module in (module for plugin in (CACHE, FRONTEND, STORE) for module in plugin.glob("src/*/*.py")):
        assert len(module.read_text().splitlines()) < 90


def test_corectl_lists_the_stranger_with_distribution_and_version(environment: Environment) -> None:
    listed = json.loads(run(environment.corectl, "plugins", "--load", "--json"))

    found = {(info["kind"], info["name"]): info for info in listed}
    assert {info["distribution"] for info in listed} == {"tritonpy", *NAMES}
    backend, strategy = found["backends", "xyz"], found["batching", "xyz"]
    agent = found["repo_agents", "xyz"]
    assert (backend["distribution"], backend["version"], backend["state"]) == (
        "tritonpy-backend-xyz",
        "1.0.0",
        "loaded",
    )
    assert backend["hooks"] == ["model_initialize", "model_instance_execute"]
    assert (strategy["distribution"], strategy["state"]) == ("tritonpy-batching-xyz", "loaded")
    assert len(strategy["hooks"]) == 5
    assert (agent["distribution"], agent["state"]) == ("tritonpy-repo-agent-xyz", "loaded")
    assert agent["hooks"] == ["repo_agent_model_action"]
    cache, store = found["caches", "xyz"], found["stores", "xyz"]
    assert (cache["distribution"], cache["state"]) == ("tritonpy-cache-xyz", "loaded")
    assert sorted(cache["hooks"]) == ["cache_initialize", "cache_insert", "cache_lookup"]
    assert (store["distribution"], store["state"]) == ("tritonpy-store-xyz", "loaded")
    assert store["hooks"] == ["store_open"]
    frontends = {name: info for (kind, name), info in found.items() if kind == "frontends"}
    assert {name: info["distribution"] for name, info in frontends.items()} == {
        "grpc": "tritonpy",
        "http": "tritonpy",
        "metrics": "tritonpy",
        "xyz": "tritonpy-frontend-xyz",
    }
    assert {tuple(info["hooks"]) for info in frontends.values()} == {
        ("frontend_initialize", "frontend_start", "frontend_stop")
    }


def test_the_readme_of_the_backend_is_true(serve: Callable[..., Server]) -> None:
    server = serve("--model-repository", str(BACKEND / "models"))
    path, body = readme_request(BACKEND / "README.md")

    status, answer = server.ask(path, body)

    assert (status, answer["model_name"]) == (200, "parabola")
    [output] = answer["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("Y", "FP32", [3, 1])
    assert output["data"] == [-2.0, -1.0, 7.0]
    assert '"data":[-2.0,-1.0,7.0]' in (BACKEND / "README.md").read_text()


@pytest.mark.toolchain
def test_many_clients_of_the_stranger_get_their_own_answers(serve: Callable[..., Server]) -> None:
    server = serve("--model-repository", str(BACKEND / "models"))
    path, _ = readme_request(BACKEND / "README.md")

    def ask(number: int) -> object:
        rows = number % 3 + 1
        x = {"name": "X", "datatype": "FP32", "shape": [rows, 1], "data": [number] * rows}
        return server.ask(path, {"inputs": [x]})[1]["outputs"][0]["data"]

    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(ask, range(64)))

    assert answers == [[number**2 - 2.0] * (number % 3 + 1) for number in range(64)]


def test_what_the_stranger_says_about_a_bad_model_file_reaches_the_operator(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    models = shutil.copytree(BACKEND / "models", tmp_path / "models")
    (models / "parabola" / "1" / "coefficients.json").write_text("one, zero")

    server = serve("--model-repository", str(models), "--exit-on-error=false")

    assert server.ask("/v2/models/parabola/ready")[0] != 200
    server.wait_for_log("model 'parabola': expected a JSON list of numbers in")


@pytest.mark.toolchain
def test_the_strategy_keeps_adapters_apart(serve: Callable[..., Server]) -> None:
    # The scheduler waits until all six are queued, so that the first batches do not depend on timing.
    server = serve("--model-repository", str(STRATEGY / "models"), TRITONSERVER_DELAY_SCHEDULER="6")
    path, body = readme_request(STRATEGY / "README.md")

    def ask(adapter: str) -> int:
        return server.ask(path, {**body, "parameters": {"adapter": adapter}})[0]

    def batches() -> dict[int, int]:
        [stats] = server.ask("/v2/models/adapted/stats")[1]["model_stats"]
        return {batch["batch_size"]: batch["compute_infer"]["count"] for batch in stats["batch_stats"]}

    with ThreadPoolExecutor(6) as clients:
        assert list(clients.map(ask, ["french"] * 6)) == [200] * 6
        together = batches()
        assert list(clients.map(ask, ["a", "b", "c", "d", "e", "f"])) == [200] * 6

    assert together == {6: 1}
    assert batches() == {6: 1, 1: 6}


@pytest.mark.toolchain
def test_the_agent_chooses_the_version_that_is_served(serve: Callable[..., Server], tmp_path: Path) -> None:
    models = shutil.copytree(AGENT / "models", tmp_path / "models")
    server = serve(
        "--model-repository", str(models), "--model-control-mode=explicit", "--load-model=released"
    )
    path, body = readme_request(AGENT / "README.md")

    def version() -> object:
        return server.ask(path, body)[1]["model_version"]

    assert version() == "1"
    assert '"model_version":"1"' in (AGENT / "README.md").read_text()
    release = models / "released" / "release.txt"
    release.write_text("2\n")
    assert server.ask("/v2/repository/models/released/load", {})[0] == 200
    assert version() == "2"
    release.write_text("3\n")
    status, answer = server.ask("/v2/repository/models/released/load", {})
    assert (status, "release.txt names version '3', which is not there" in answer["error"]) == (500, True)
    assert version() == "2"


@pytest.mark.toolchain
def test_the_cache_answers_again_after_a_restart(serve: Callable[..., Server], tmp_path: Path) -> None:
    responses = tmp_path / "responses"
    flags = ("--cache-config", f"xyz,path={responses}")
    path, body = readme_request(CACHE / "README.md")

    def ask_twice(server: Server) -> tuple[object, int, int]:
        answers = []
        for _ in range(2):
            answers.append(server.ask(path, body)[1]["outputs"][0]["data"])
            until(lambda: list(responses.glob("[0-9]*")))  # kept behind its answer
        [stats] = server.ask("/v2/models/remembered/stats")[1]["model_stats"]
        counts = stats["inference_stats"]
        return answers, counts["cache_hit"]["count"], counts["cache_miss"]["count"]

    first = ask_twice(serve("--model-repository", str(CACHE / "models"), *flags))
    second = ask_twice(serve("--model-repository", str(CACHE / "models"), *flags))

    assert first == ([[1.5], [1.5]], 1, 1)
    assert second == ([[1.5], [1.5]], 2, 0)
    assert len(list(responses.iterdir())) == 1


def test_the_store_serves_an_archive(serve: Callable[..., Server], tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "models"), "zip", STORE / "models")
    path, body = readme_request(STORE / "README.md")

    server = serve("--model-repository", f"xyz://{archive}")

    assert server.ask(path, body)[1]["outputs"][0]["data"] == [1.5]
    assert '"data":[1.5]' in (STORE / "README.md").read_text()


def post(url: str, body: str) -> tuple[int, Any]:
    """The status and the JSON of an answer."""
    try:
        with urllib.request.urlopen(url, body.encode(), timeout=DEADLINE_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)


def test_the_readme_of_the_frontend_is_true(serve: Callable[..., Server]) -> None:
    readme = (FRONTEND / "README.md").read_text()
    asked = re.search(r"curl -s localhost:9000(\S+) -d '(.*)'", readme)
    assert asked is not None
    server = serve("--model-repository", str(FRONTEND / "models"), "--frontend-config", "xyz,port=0")
    port = server.wait_for_log(r"Started frontend 'xyz' at 127\.0\.0\.1:(\d+)\D")[1]
    url = f"http://127.0.0.1:{port}"

    status, answer = post(url + asked[1], asked[2])

    assert (status, answer) == (200, {"OUTPUT0": [[0.0], [1.5]]})
    assert json.dumps(answer) in readme
    assert post(f"{url}/nope", "{}") == (
        400,
        {"code": "NOT_FOUND", "error": "Request for unknown model: 'nope' is not found"},
    )
    assert "missing required input(s) ['INPUT0']" in post(url + asked[1], "{}")[1]["error"]
    [statistics] = server.ask("/v2/models/echo/stats")[1]["model_stats"]
    assert statistics["inference_stats"]["success"]["count"] == 1


@pytest.mark.toolchain
def test_a_frontend_that_nobody_asks_for_is_not_started(serve: Callable[..., Server]) -> None:
    server = serve("--model-repository", str(BACKEND / "models"))

    assert "Started HTTPService" in server.log
    assert "xyz' at" not in server.log


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            "xyz,ports=1",
            "failed to start frontend 'xyz': Invalid argument - the one setting of 'xyz'",
        ),
        (
            "abc",
            "creating server: Not found - no installed plugin of kind 'frontends' is called 'abc'",
        ),
    ],
)
def test_a_frontend_with_bad_settings_ends_the_start_before_models_are_loaded(
    environment: Environment, settings: str, reason: str
) -> None:
    command = (environment.corectl, "serve", "--model-repository", BACKEND / "models", "--http-port=0")
    free = ("--grpc-port=0", "--metrics-port=0", "--frontend-config", settings)

    ended = subprocess.run([*command, *free], capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 1
    assert reason in ended.stderr.splitlines()[-1]
    assert "loading: parabola" not in ended.stderr


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH with a distribution whose module raises at import."""
    folder = tmp_path / "broken"
    info = folder / "acme_broken-0.9.dist-info"
    info.mkdir(parents=True)
    (folder / "acme_broken.py").write_text(BROKEN_PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-broken\nVersion: 0.9\n")
    (info / "entry_points.txt").write_text("[tritonpy.backends]\nbroken = acme_broken\n")
    return folder


def test_a_broken_plugin_is_listed_with_its_traceback(environment: Environment, broken: Path) -> None:
    listed = run(environment.corectl, "plugins", "--load", PYTHONPATH=str(broken))

    assert "backends:broken of acme-broken failed:" in listed
    assert 'acme_broken.py", line 5, in find_licence' in listed
    assert "LookupError: no licence for broken" in listed


def test_a_broken_plugin_fails_only_the_models_that_need_it(
    serve: Callable[..., Server], broken: Path, tmp_path: Path
) -> None:
    models = shutil.copytree(BACKEND / "models", tmp_path / "models")
    shutil.copytree(models / "parabola", models / "unlucky")
    config = models / "unlucky" / "config.pbtxt"
    config.write_text(config.read_text().replace('backend: "xyz"', 'backend: "broken"'))

    server = serve("--model-repository", str(models), "--exit-on-error=false", PYTHONPATH=str(broken))

    path, body = readme_request(BACKEND / "README.md")
    assert server.ask(path, body)[0] == 200
    status, answer = server.ask(path.replace("parabola", "unlucky"), body)
    assert status != 200
    assert "unlucky" in answer["error"]
    server.wait_for_log("LookupError: no licence for broken")
