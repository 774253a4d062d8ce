"""Servers whose response cache is a shared object: ours and a real one, with the same library.

The library is a cache of the tests, and Triton's own, as NVIDIA has compiled it, on our server.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import numpy.typing as npt
import pytest
import tritonclient.http as httpclient
from tritonpy.errors import TritonError
from tritonpy.server import Server
from tritonpy_abi.caches import calls
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, until

from ..cache.place import CONFIG, MODEL, ONE_MISS_AND_TWO_HITS, ROW, Place
from ..counting import comes_to
from ..servers import local_options
from .conftest import Compiled

BYTE_SIZE = 65536
IDENTITY: dict[str, Any] = {
    "backend": "identity",
    "max_batch_size": 4,
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "response_cache": {"enable": True},
}


def install(library: Path, directory: Path, name: str) -> Path:
    """Put a library where the cache `name` is looked for; returns the directory of all caches."""
    place = directory / name / f"libtritoncache_{name}.so"
    place.parent.mkdir(parents=True)
    shutil.copy(library, place)
    return directory


def ours(models: Path, caches: Path, name: str, settings: Mapping[str, str], **options: int) -> Server:
    return Server(
        local_options(
            models,
            cache_config=tuple((name, *setting) for setting in settings.items()),
            cache_directory=str(caches),
            **options,
        )
    )


@pytest.fixture(scope="module")
def nvidias(real_caches: Path) -> Path:
    return real_caches / "local/libtritoncache_local.so"


@pytest.fixture(
    scope="module",
    params=[
        "our server, table",
        pytest.param("real server, table", marks=pytest.mark.parity),
        pytest.param("our server, nvidia", marks=pytest.mark.parity),
    ],
)
def place(
    request: pytest.FixtureRequest, compiled: Compiled, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    server, name = request.param.split(", ")
    directory = tmp_path_factory.mktemp(name)
    library = compiled("caches/table.c") if name == "table" else request.getfixturevalue("nvidias")
    caches = install(library, directory / "caches", name)
    models = ModelRepository(directory / "models")
    for model in ("counting", "fresh"):
        models.python(model, MODEL, CONFIG)
    with ExitStack() as stack:
        if server == "our server":
            started = stack.enter_context(
                ours(models.path, caches, name, {"size": str(BYTE_SIZE)}, cache_timeout_ms=20_000)
            )
            ports = (started.http_port, started.grpc_port, started.metrics_port)
        else:
            real = request.getfixturevalue("real_triton")(
                models.path, f"--cache-directory={caches}", f"--cache-config={name},size={BYTE_SIZE}"
            )
            ports = (real["http"], real["grpc"], real["metrics"])
        place = Place("ours" if server == "our server" else "real", models, ports)
        yield place
        for client in place.clients.values():
            client.close()


@pytest.fixture(params=["http", "grpc"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_three_equal_requests_are_one_execution(place: Place) -> None:
    answers = [place.ask(ROW, model="fresh", request_id=str(number)) for number in range(3)]

    assert answers == [{"Y": ROW.tolist(), "COUNT": [[1]]}] * 3
    assert comes_to(lambda: place.counts("fresh"), ONE_MISS_AND_TWO_HITS) == ONE_MISS_AND_TWO_HITS


def test_both_protocols_find_what_the_other_has_left(place: Place) -> None:
    x = place.new(2, 3)

    assert place.ask(x, "http") == place.ask(x, "grpc")
    assert place.ask(x + 0.5, "grpc") == place.ask(x + 0.5, "http")


def test_what_was_not_used_for_longest_makes_room(place: Place) -> None:
    rows = [place.new(1, BYTE_SIZE // 4 // 4) for _ in range(4)]  # three of these fit
    first, second, third = (execution(place, x) for x in rows[:3])
    assert [execution(place, x) for x in (*rows[:3], rows[0])] == [first, second, third, first]
    fourth = execution(place, rows[3])

    assert len({first, second, third, fourth}) == 4
    assert [execution(place, rows[number]) for number in (0, 2, 3)] == [first, third, fourth]
    assert execution(place, rows[1]) > fourth


def test_a_response_larger_than_the_cache_is_executed_each_time_and_others_are_not(
    place: Place, protocol: str
) -> None:
    large, small = place.new(1, BYTE_SIZE // 4), place.new(1, 2)

    assert len({execution(place, large, protocol) for _ in range(5)}) == 5
    assert len({execution(place, small, protocol) for _ in range(5)}) == 1


def execution(place: Place, x: npt.NDArray[np.float32], protocol: str = "http") -> int:
    """The number of the execution that an answer comes from; the real server counts it only later."""
    return int(place.ask(x, protocol)["COUNT"][0][0])


def test_many_at_once_get_their_own_answers(place: Place) -> None:
    rows = [place.new(1, 64) for _ in range(8)]

    def is_right(number: int) -> bool:
        x = rows[number % len(rows)]
        return place.ask(x, "grpc")["Y"] == x.tolist()

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(is_right, range(160)))


def test_the_metrics_count_with_the_statistics(place: Place) -> None:
    x = place.new(1, 2)
    for _ in range(3):
        place.ask(x)
    labels = '{model="counting",version="1"}'

    def agree() -> bool:
        counts, metrics = place.counts(), place.metrics()
        return counts["cache_hit"] >= 2 and [counts["cache_hit"], counts["cache_miss"]] == [
            metrics[f"nv_cache_num_{outcome}_per_model{labels}"] for outcome in ("hits", "misses")
        ]

    until(agree)


@pytest.mark.parity
def test_nvidias_library_tells_how_full_it_is(
    corectl: Callable[..., Any], nvidias: Path, tmp_path: Path
) -> None:
    caches = install(nvidias, tmp_path / "caches", "nvidia")
    models = ModelRepository(tmp_path / "models")
    models.python("counting", MODEL, CONFIG)
    server = corectl(
        f"--model-repository={models.path}",
        f"--cache-directory={caches}",
        f"--cache-config=nvidia,size={BYTE_SIZE}",
    )
    names = ("HTTPService", "GRPCInferenceService", "Metrics Service")
    place = Place("ours", models, tuple(server.ports[name] for name in names))
    for _ in range(6):
        place.ask(place.new(1, BYTE_SIZE // 4 // 4))
    until(lambda: place.metrics()["nv_cache_num_evictions"] == 3)  # it counts them now and then
    metrics = place.metrics()
    for client in place.clients.values():
        client.close()

    assert metrics["nv_cache_num_entries"] == 3
    assert 0.75 < metrics["nv_cache_util"] <= 1
    assert metrics["nv_cache_num_misses"] == 6
    assert server.stop() == 0
    assert "is not shown" not in server.log


@pytest.mark.parity
@pytest.mark.parametrize(
    ("size", "text"),
    [
        ("100", "Could not initialize buffer in basic_managed_external_buffer constructor"),
        ("many", "stoull"),
        ("", "config didn't contain a valid 'size' field"),
    ],
)
def test_nvidias_library_says_why_it_does_not_begin(
    nvidias: Path, tmp_path: Path, size: str, text: str
) -> None:
    caches = install(nvidias, tmp_path / "caches", "nvidia")
    settings = {"size": size} if size else {"other": "1"}

    server = ours(ModelRepository(tmp_path / "models").path, caches, "nvidia", settings)

    with pytest.raises(TritonError, match=f"Failed to initialize LocalCache: {text}"), server:
        pass


def without_sizes(report: str) -> list[str]:
    """The sections of a report that try something, with sizes told by what they differ in."""

    def difference(found: re.Match[str]) -> str:
        return f"{found[1]} has {int(found[3]) - int(found[2])} more"

    text = re.sub(r"(buffer size) does not match. Expected: (\d+), received: (\d+)", difference, report)
    return [section for section in text.split("-- ")[1:] if "all is tried" not in section]


@pytest.mark.parity
def test_wrong_calls_are_answered_as_by_the_real_server(
    compiled: Compiled, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    caches = install(compiled("caches/tries.c"), tmp_path / "caches", "tries")
    models = ModelRepository(tmp_path / "models")
    models.python("counting", MODEL, CONFIG)
    odd = 'q"u\\o/te ü'
    reports = {kind: tmp_path / kind for kind in ("ours", "real")}

    def ask(kind: str, ports: tuple[int, int, int]) -> None:
        place = Place(kind, models, ports)
        for _ in range(24):
            place.ask(place.new(1, 2))
        for client in place.clients.values():
            client.close()

    settings = {"report": str(reports["ours"]), "odd": odd, "a": "2"}
    with ours(models.path, caches, "tries", settings, cache_timeout_ms=20_000) as server:
        ask("ours", (server.http_port, server.grpc_port, server.metrics_port))
    flags = [f"report={reports['real']}", f"odd={odd}", "a=1", "a=2"]
    ports = request.getfixturevalue("real_triton")(
        models.path, f"--cache-directory={caches}", *(f"--cache-config=tries,{flag}" for flag in flags)
    )
    ask("real", (ports["http"], ports["grpc"], ports["metrics"]))

    mine, theirs = (reports[kind].read_text() for kind in ("ours", "real"))
    assert without_sizes(mine.replace("finalize: ours\n", "")) == without_sizes(theirs)
    config, *rest = ([*text.split("-- ")[0].splitlines()] for text in (mine, theirs))
    assert config[1:] == rest[0][1:]
    assert json.loads(config[0]) == settings
    assert json.loads(rest[0][0]) == settings | {"report": str(reports["real"])}


def test_requests_go_on_without_a_cache_that_hangs(
    compiled: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITONPY_ABI_PROBE_S", "0")
    caches = install(compiled("caches/gate.c"), tmp_path / "caches", "gate")
    gate = tmp_path / "gate"
    models = ModelRepository(tmp_path / "models")
    models.model("m", IDENTITY)
    settings = {"wait": "Lookup", "path": str(gate)}
    most = calls.MOST_THREADS
    with ours(models.path, caches, "gate", settings, cache_timeout_ms=500) as server:

        def ask(value: float) -> float:
            with httpclient.InferenceServerClient(f"127.0.0.1:{server.http_port}") as client:
                tensor = httpclient.InferInput("INPUT0", [1, 1], "FP32")
                tensor.set_data_from_numpy(np.full((1, 1), value, np.float32))
                return float(client.infer("m", [tensor]).as_numpy("OUTPUT0")[0, 0])

        def lookups(*reasons: str) -> int:
            """How many came to nothing for these reasons."""
            with urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=DEADLINE_S) as page:
                found = re.findall(
                    r'^tritonpy_cache_errors_total{operation="lookup",reason="(.+)"} (\d+)$',
                    page.read().decode(),
                    re.MULTILINE,
                )
            return sum(int(count) for reason, count in found if reason in reasons)

        values = [float(number) for number in range(2 * most)]
        with ThreadPoolExecutor(2 * most) as pool:  # all of them ask before the first has failed
            assert list(pool.map(ask, values)) == values
        assert lookups("timeout", "failure") >= 3
        assert Path(f"{gate}.log").read_text().count("begin") <= most
        skipped = lookups("skipped")
        assert [ask(value) for value in values] == values
        assert lookups("skipped") - skipped > most  # most of them did not wait
        gate.touch()

        def have_returned() -> bool:
            log = Path(f"{gate}.log").read_text()
            return log.count("end ") == log.count("begin")  # once a second it may have been asked again

        until(have_returned)

    assert Path(f"{gate}.log").read_text().splitlines()[-1] == "ended by Finalize"


@pytest.mark.stress  # it waits for what does not come
def test_a_server_ends_although_its_cache_hangs(
    corectl: Callable[..., Any], compiled: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITONPY_ABI_PROBE_S", "0")
    caches = install(compiled("caches/gate.c"), tmp_path / "caches", "gate")
    models = ModelRepository(tmp_path / "models")
    models.model("m", IDENTITY)
    server = corectl(
        f"--model-repository={models.path}",
        f"--cache-directory={caches}",
        "--cache-config=gate,wait=Lookup",
        f"--cache-config=gate,path={tmp_path / 'never'}",
    )
    with httpclient.InferenceServerClient(f"127.0.0.1:{server.ports['HTTPService']}") as client:
        tensor = httpclient.InferInput("INPUT0", [1, 1], "FP32")
        tensor.set_data_from_numpy(np.ones((1, 1), np.float32))
        for _ in range(4):
            assert client.infer("m", [tensor]).as_numpy("OUTPUT0").tolist() == [[1.0]]

    assert server.stop() == 0
    assert "have not returned after 3 seconds, so TRITONCACHE_CacheFinalize is not called" in server.log
    assert "no answer in 100 ms (--cache-timeout-ms)" in server.log
