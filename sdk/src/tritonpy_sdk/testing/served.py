"""The tests of a backend behind a real server, its instances on threads and in processes of their own."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from tritonpy.handles import JsonObject
from tritonpy.options import ServerOptions
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.runtime import ServerRuntime
from tritonpy.tensor import Array

from tritonpy_sdk.testing.conformance import find_models
from tritonpy_sdk.testing.driver import Answer, BackendDriver
from tritonpy_sdk.testing.outputs import check_same
from tritonpy_sdk.testing.rules import rule
from tritonpy_sdk.testing.samples import build_request, sample_inputs

_ISOLATION = """
parameters { key: "TRITONPY_ISOLATION" value { string_value: "%s" } }
"""


_LOAD_ALL = """
import asyncio
import sys

from tritonpy.options import ServerOptions
from tritonpy.runtime import ServerRuntime


async def load_all():
    ports = {"allow_http": False, "allow_grpc": False, "allow_metrics": False}
    runtime = ServerRuntime(ServerOptions(tuple(sys.argv[1:]), model_namespacing=True, **ports))
    try:
        await runtime.start()
    finally:
        await runtime.stop()


asyncio.run(load_all())
"""
"""A server of its own that ends when all models of the repositories are loaded, or one is not."""


class ServedBackendConformance:
    """Subclass this beside `BackendConformance` to run the models in a server as well.

    ```python
    class TestXyzServed(ServedBackendConformance, backend="xyz", models="tests/models"): ...
    ```

    Every model is served alone, once with the execution that the backend declares and, where that is
    `thread` or the backend is a library, once with the other one. What comes out has to be what the hooks
    give without a server.

    Class arguments:
        backend: the name of an installed plugin, by which a worker finds it, or the `Path` of a library,
            which is put beside the models.
        models: a model repository: absolute, or relative to the test file's directory or one above it.

    Override `make_inputs` when a model needs more than made-up contents.
    """

    relative_tolerance: ClassVar[float] = 1e-4
    absolute_tolerance: ClassVar[float] = 1e-5
    driver: ClassVar[BackendDriver]
    models: ClassVar[Path]
    library: ClassVar[Path | None]

    def __init_subclass__(cls, *, backend: str | Path = "", models: str | Path = "", **rest: object) -> None:
        super().__init_subclass__(**rest)
        if backend:
            cls.library = backend if isinstance(backend, Path) else None
            cls.models = find_models(models, cls)
            cls.driver = BackendDriver(backend, cls.models)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run every test once for each model and execution."""
        if "model_name" in metafunc.fixturenames:
            metafunc.parametrize("model_name", self.driver.model_names)
        if "execution" in metafunc.fixturenames:
            declared = self.driver.bound.attributes.execution
            is_free = declared == "thread" or self.library is not None
            metafunc.parametrize("execution", ["thread", "process"] if is_free else [declared])

    def make_inputs(
        self, model_name: str, config: JsonObject, row_count: int, random: np.random.Generator
    ) -> dict[str, Array]:
        """Make one request's inputs; see `BackendConformance.make_inputs`."""
        return sample_inputs(config, row_count, random)

    @rule(
        "a model in a server answers as without one, on threads and in processes, until the server stops",
        "keep nothing outside of model.state and instance.state, and give arrays that nothing changes later",
        "how-to/write-a-backend.md",
        is_bounded=False,
    )
    def test_a_served_model_is_as_by_the_hooks_alone_until_its_server_stops(
        self, model_name: str, execution: str, tmp_path: Path
    ) -> None:
        """Its configuration, answers to requests at once, and to those accepted before the stop."""
        with self.driver.load(model_name) as model:
            config = model.config
            rows = [1 + seed % max(1, min(3, config["max_batch_size"])) for seed in range(16)]
            alone = [
                model.execute([self._request(model_name, config, count, seed)])[0]
                for seed, count in enumerate(rows)
            ]

        def infer_all(runtime: ServerRuntime) -> list[asyncio.Task[Answer]]:
            requests = [self._request(model_name, config, *sample[::-1]) for sample in enumerate(rows)]
            return [asyncio.ensure_future(_infer(runtime, request)) for request in requests]

        async def serve() -> tuple[JsonObject, list[Answer], list[Answer]]:
            async with self._serve(model_name, execution, tmp_path) as runtime:
                served = runtime.dataplane.find(model_name).config
                answers = await asyncio.gather(*infer_all(runtime))
                waiting = infer_all(runtime)
                await asyncio.sleep(0)  # every request is accepted before the server is asked to stop
            return served, answers, await asyncio.gather(*waiting)

        served, answers, last = asyncio.run(serve())

        shown, alone_shown = _without_parameters(served), _without_parameters(config)
        differ = [key for key in {**shown, **alone_shown} if shown.get(key) != alone_shown.get(key)]
        assert not differ, (
            f"has {differ[0]} {shown.get(differ[0])!r} in a server, {alone_shown.get(differ[0])!r} without"
        )
        for got, expected in zip([*answers, *last], [*alone, *alone], strict=True):
            assert got.final_count == 1, f"gave {got.final_count} final responses to a request"
            assert len(got.responses) == len(expected.responses), (
                f"gave {len(got.responses)} responses in a server, and {len(expected.responses)} without"
            )
            for one, other in zip(got.responses, expected.responses, strict=True):
                assert one.error is None, one.error
                check_same(one.outputs, other.outputs, self.relative_tolerance, self.absolute_tolerance)

    @rule(
        "models are loaded at the same time, each on a thread of its own, also in a process that is new",
        "import the framework in backend_initialize, once, and guard with a lock what loads share",
        "reference/hooks.md",
        is_bounded=False,
    )
    def test_models_load_at_the_same_time_in_a_new_process(self, tmp_path: Path) -> None:
        """Hooks may import modules for the first time on several threads at once."""
        repositories = [tmp_path / "one", tmp_path / "two"]
        for repository in repositories:
            for name in self.driver.model_names:
                self._copy(name, repository)

        loaded = subprocess.run(
            [sys.executable, "-c", _LOAD_ALL, *map(str, repositories)],
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

        assert loaded.returncode == 0, loaded.stderr

    def _request(self, model_name: str, config: JsonObject, rows: int, seed: int) -> InferRequest:
        arrays = self.make_inputs(model_name, config, rows, np.random.default_rng(seed))
        return build_request(config, arrays)

    def _copy(self, model_name: str, repository: Path) -> Path:
        """Copy a model into a repository, with the library beside it if the backend is one."""
        model = repository / model_name
        shutil.copytree(self.models / model_name, model)
        if self.library is not None:
            shutil.copy(self.library, model)
        return model

    @asynccontextmanager
    async def _serve(self, model_name: str, execution: str, directory: Path) -> AsyncIterator[ServerRuntime]:
        model = self._copy(model_name, directory)
        if execution != self.driver.bound.attributes.execution:
            with (model / "config.pbtxt").open("a") as file:
                file.write(_ISOLATION % execution)
        options = ServerOptions((str(directory),), allow_http=False, allow_grpc=False, allow_metrics=False)
        runtime = ServerRuntime(options)
        try:
            await runtime.start()
            yield runtime
        finally:
            await runtime.stop()


def _without_parameters(config: JsonObject) -> JsonObject:
    """Where a model runs is a parameter."""
    return {key: value for key, value in config.items() if key != "parameters"}


async def _infer(runtime: ServerRuntime, request: InferRequest) -> Answer:
    sink = _Sink()
    runtime.dataplane.find(request.model_name, request.model_version).infer(request, sink)
    await sink.done.wait()
    return sink.answer


class _Sink:
    """Collects the answers of one request; satisfies `ResponseSink`."""

    def __init__(self) -> None:
        self.answer = Answer()
        self.done = asyncio.Event()

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        if response is not None:
            self.answer.responses.append(response)
        if final:
            self.answer.final_count += 1
            self.done.set()
