"""The batching strategies in C and C++: their pages are true, and Triton forms the same batches with them."""

from __future__ import annotations

import json
import re
import shutil
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy.plugin import TritonError
from tritonpy_sdk.testing import WaitingRequest, compile_shared_object, find_compiler, open_strategy

from ..counting import comes_to
from ..shell import run

EXAMPLES = Path(__file__).parents[2] / "examples"
SOURCES = {"batching_strategy_c": "volume.c", "batching_strategy_cpp": "tokens.cc"}
MODELS = {"batching_strategy_c": "volumes", "batching_strategy_cpp": "tokens"}
REQUEST_COUNTS = {"batching_strategy_c": 8, "batching_strategy_cpp": 18}
ELSEWHERE = ("pip install", "make", "corectl serve")

ECHO = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", x)]) for x in inputs]
"""


@pytest.fixture(params=SOURCES)
def example(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of an example, made with its Makefile."""
    name: str = request.param
    if find_compiler(Path(SOURCES[name]).suffix) is None:
        pytest.skip(f"there is no compiler for {SOURCES[name]}")
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    run("make", folder)
    return folder


def blocks(folder: Path, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", (folder / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def commands(folder: Path) -> list[str]:
    lines = "".join(blocks(folder, "console")).splitlines()
    return [line.removeprefix("$ ") for line in lines]


def send_requests(folder: Path, http: str, grpc: str) -> None:
    """Run the command of the page that sends them."""
    [line] = [line for line in commands(folder) if line.startswith(("python client.py", "curl --parallel"))]
    if "client.py" in line:
        line += f" --grpc-url {grpc}"
    run(line.replace("localhost:8000", http), folder)


def test_the_page_is_true(
    example: Path, corectl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {"make", "corectl serve --model-repository models"} <= set(commands(example))
    # All are there before the first batch is formed, however slow their client is here.
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", str(REQUEST_COUNTS[example.name]))
    server = corectl(f"--model-repository={example / 'models'}")
    ports = {service: f"localhost:{port}" for service, port in server.ports.items()}
    send_requests(example, ports["HTTPService"], ports["GRPCInferenceService"])

    shown = []
    for line in commands(example):
        if line.startswith("corectl explain"):
            shown.append(run(f"{line} --url {ports['HTTPService']}", example))
        elif "metrics" in line:
            shown.append(run(line.replace("localhost:8002", ports["Metrics Service"]), example))

    promised = blocks(example, "text")
    assert len(shown) == len(promised)
    for output, promise in zip(shown, promised, strict=True):
        assert promise in output
    if example.name == "batching_strategy_c":
        server.wait_for_log("batches have at most 96 bytes")
    assert server.stop() == 0


@pytest.mark.parametrize("name", SOURCES)
def test_the_recipe_has_ten_lines_at_most(name: str) -> None:
    assert len((EXAMPLES / name / "Makefile").read_text().splitlines()) <= 10


@pytest.mark.parametrize("example", ["batching_strategy_c"], indirect=True)
def test_a_limit_that_is_no_number_ends_the_load_as_the_page_says(example: Path) -> None:
    expected = "parameter MAX_BATCH_VOLUME_BYTES: got 'many', expected bytes, 1 or more"
    assert f"`{expected}`" in (example / "README.md").read_text()
    limit = {"MAX_BATCH_VOLUME_BYTES": "many"}
    library = example / "models/volumes/batchstrategy.so"

    with pytest.raises(TritonError, match=re.escape(expected)), open_strategy(library, limit):
        pass


@pytest.fixture(scope="session")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_compiler(".cc") is None:
        pytest.skip("there is no compiler for tokens.cc")
    source = EXAMPLES / "batching_strategy_cpp/tokens.cc"
    return compile_shared_object(source, tmp_path_factory.mktemp("tokens") / "tokens.so", "-std=c++17")


def test_a_budget_that_is_no_number_is_refused(tokens: Path) -> None:
    limits = {"MAX_TOKENS": "99999999999999999999999"}
    with pytest.raises(TritonError, match=r"MAX_TOKENS: got '9{23}'"), open_strategy(tokens, limits):
        pass


def text_of(tokens: int) -> WaitingRequest:
    return WaitingRequest((1, tokens), "INT32", input_name="TOKENS")


def test_the_budget_of_tokens_grows_under_load_and_shrinks_in_a_calm(tokens: Path) -> None:
    def sizes(calm_ms: int) -> list[list[int]]:
        limits = {"MIN_TOKENS": "32", "MAX_TOKENS": "64", "CALM_MILLISECONDS": f"{calm_ms}"}
        with open_strategy(tokens, limits) as strategy:
            loaded = strategy.batches([text_of(16)] * 10)
            time.sleep(0.01)
            later = [strategy.batches([text_of(16)] * count) for count in (1, 4)]
        return [[len(batch) for batch in batches] for batches in (loaded, *later)]

    assert sizes(calm_ms=1) == [[2, 4, 4], [1], [2, 2]]
    assert sizes(calm_ms=100_000) == [[2, 4, 4], [1], [4]]


def test_a_text_over_the_budget_runs_alone(tokens: Path) -> None:
    with open_strategy(tokens, {"MIN_TOKENS": "32", "MAX_TOKENS": "32"}) as strategy:
        batches = strategy.batches([text_of(16), text_of(100), text_of(16), text_of(16)])

    assert batches == [[text_of(16)], [text_of(100)], [text_of(16)] * 2]


def test_a_request_without_the_input_fails_with_the_words_of_the_server(tokens: Path) -> None:
    other = WaitingRequest((1, 4), "INT32", input_name="OTHER")
    with open_strategy(tokens) as strategy:
        assert strategy.batches([other, text_of(4)]) == [[text_of(4)]]

    [(request, error)] = strategy.failed
    assert request is other
    assert "TOKENS" in str(error)


@pytest.mark.parity
def test_triton_forms_the_same_batches(
    example: Path, real_triton: Callable[..., dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = example / "models" / MODELS[example.name]
    config = (model / "config.pbtxt").read_text()
    (model / "config.pbtxt").write_text(config.replace('"identity"', '"python"'))
    (model / "1" / "model.py").write_text(ECHO)
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", str(REQUEST_COUNTS[example.name]))
    ports = real_triton(example / "models")

    send_requests(example, f"localhost:{ports['http']}", f"localhost:{ports['grpc']}")

    url = f"http://localhost:{ports['http']}/v2/models/{MODELS[example.name]}/stats"

    def formed() -> dict[int, int]:
        with urllib.request.urlopen(url, timeout=20) as answer:
            [stats] = json.loads(answer.read())["model_stats"]
        return {batch["batch_size"]: batch["compute_infer"]["count"] for batch in stats["batch_stats"]}

    rows = blocks(example, "text")[0].partition("Rows of a batch\n")[2]
    promised = {int(size): int(times) for size, times in re.findall(r"^ +(\d+) +(\d+)", rows, re.MULTILINE)}
    assert comes_to(formed, promised) == promised
