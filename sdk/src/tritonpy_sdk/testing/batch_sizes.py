"""How strict a backend is about batch sizes: tables of what files, configurations and clients say of them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pytest
from tritonpy.handles import JsonObject
from tritonpy.options import ServerOptions
from tritonpy.server import Server

Shape = list[int]
Load = tuple[str, JsonObject | None, int, bool, Shape, Sequence[Shape], Sequence[Shape]]
"""File and configuration; then max_batch_size, dynamic batching and dims of X as the server settles them,
shapes of X that are served, and shapes that are refused."""
Refusal = tuple[str, JsonObject | None, str]
"""File and configuration; and the reason in the index, in which `{name}` stands for the name of the model. It
begins with the kind of error, unless that is `Invalid argument`."""

_OTHER_KINDS = ("Internal: ", "Unsupported: ", "Not found: ", "Unavailable: ")

NO_BATCHES = (
    "autofill failed for model '{name}': model does not support batching while non-zero max_batch_size is "
    "specified"
)
FIRST_NOT_FREE = (
    "model '{name}', tensor 'X': for the model to support batching the shape should have at least 1 "
    "dimension and the first dimension must be -1; but shape expected by the model is %s"
)
DIMS = (
    "model '{name}', tensor '%s': the model expects %d dimensions (shape %s) but the model configuration "
    "specifies %d dimensions (shape %s)"
)
DIMS_WITH_BATCH = (
    "model '{name}', tensor '%s': the model expects %d dimensions (shape %s) but the model configuration "
    "specifies %d dimensions (an initial batch dimension because max_batch_size > 0 and then the configured "
    "dims, complete shape %s)"
)


class WriteModel(Protocol):
    """Puts a model of one of the table's files into a repository; the fixture `write_model` is one."""

    def __call__(self, root: Path, name: str, file: str, config: JsonObject | None = None) -> object: ...


class BatchSizeStrictness:
    """Subclass this, and each line of your tables is a model: loaded, asked, or refused with its reason.

    ```python
    class TestXyzStrictness(BatchSizeStrictness, backend="xyz", loads=LOADS, refusals=REFUSALS): ...
    ```

    All models lie in the repository of one server. They take X and make Y of it, both FP32: its negative, or
    something else where the model's name begins with `half_fixed`. The test module has a fixture
    `write_model` of the scope of a class or a module, which is a `WriteModel`, and a file `variable`, whose
    first dimension is of any size and the other one of 3.

    Class arguments:
        backend: its name.
        loads: models that load, by name.
        refusals: models that do not.
    """

    backend: ClassVar[str] = ""
    loads: ClassVar[Mapping[str, Load]] = {}
    refusals: ClassVar[Mapping[str, Refusal]] = {}

    def __init_subclass__(
        cls, *, backend: str, loads: Mapping[str, Load], refusals: Mapping[str, Refusal], **rest: object
    ) -> None:
        super().__init_subclass__(**rest)
        cls.backend, cls.loads, cls.refusals = backend, loads, refusals

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run every test once for each line of its table."""
        for argument, table in (("loaded", self.loads), ("refused", self.refusals)):
            if argument in metafunc.fixturenames:
                metafunc.parametrize(argument, table)

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, tmp_path_factory: pytest.TempPathFactory, write_model: WriteModel) -> Iterator[Server]:
        """A server with all models of the tables."""
        root = tmp_path_factory.mktemp("strictness")
        models = {name: line[:2] for name, line in cls.loads.items()}
        models |= {name: line[:2] for name, line in cls.refusals.items()}
        for name, (file, config) in models.items():
            write_model(root, name, file, config)
        with Server(quiet_options(root)) as started:
            yield started

    @pytest.fixture(scope="class")
    @classmethod
    def reasons(cls, server: Server) -> dict[str, str]:
        """Why models are not served, by name; "" for those that are."""
        _, index = post(server, "/v2/repository/index", {})
        return {entry["name"]: entry.get("reason", "") for entry in index}

    def test_what_fits_loads_and_shows_its_batch_size(
        self, server: Server, reasons: dict[str, str], loaded: str
    ) -> None:
        _, _, size, is_dynamic, dims, *_ = self.loads[loaded]
        assert reasons[loaded] == ""

        config = config_of(server, loaded)

        assert config["max_batch_size"] == size
        assert ("dynamic_batching" in config) is is_dynamic
        assert [int(dim) for dim in config["input"][0]["dims"]] == dims

    def test_requests_are_bound_to_the_shapes_that_the_configuration_allows(
        self, server: Server, loaded: str
    ) -> None:
        *_, served, refused = self.loads[loaded]

        for shape in served:
            status, answer = infer(server, loaded, shape)
            assert status == 200, answer
            if not loaded.startswith("half_fixed"):
                assert answer["outputs"][0]["shape"] == shape
                assert answer["outputs"][0]["data"] == [-float(n) for n in range(prod(shape))]
        for shape in refused:
            status, answer = infer(server, loaded, shape)
            assert status == 400, answer
            assert "shape" in answer["error"] or "batch-size" in answer["error"], answer

    def test_what_does_not_fit_is_refused_when_it_is_loaded_and_the_index_says_why(
        self, reasons: dict[str, str], refused: str
    ) -> None:
        *_, reason = self.refusals[refused]
        if not reason.startswith(_OTHER_KINDS):
            reason = f"Invalid argument: {reason}"
        assert reasons[refused] == reason.format(name=refused)

    def test_preferred_sizes_stay_as_they_are_configured(self, server: Server) -> None:
        configured = {
            name: line[1]["dynamic_batching"]["preferred_batch_size"]
            for name, line in self.loads.items()
            if line[1] and "preferred_batch_size" in line[1].get("dynamic_batching", {})
        }

        for name, sizes in configured.items():
            assert config_of(server, name)["dynamic_batching"]["preferred_batch_size"] == sizes

    @pytest.mark.parametrize(
        ("settings", "size", "is_dynamic"),
        [
            ({"": "16"}, 16, True),
            ({"{backend}": "2"}, 2, True),
            ({"{backend}": "2", "": "16"}, 2, True),
            ({"another": "2"}, 4, True),
            ({"": "1"}, 1, False),
            ({"": "0"}, 0, False),
        ],
    )
    def test_default_batch_size_comes_from_the_command_line(
        self,
        tmp_path: Path,
        write_model: WriteModel,
        settings: dict[str, str],
        size: int,
        is_dynamic: bool,
    ) -> None:
        write_model(tmp_path, "net", "variable")
        write_model(tmp_path, "own", "variable", {"max_batch_size": 8})

        with Server(quiet_options(tmp_path, backend_config=self._sizes(settings))) as server:
            found = config_of(server, "net")
            assert (found["max_batch_size"], "dynamic_batching" in found) == (size, is_dynamic)
            assert config_of(server, "own")["max_batch_size"] == 8

    def test_default_batch_size_that_is_no_number_makes_the_model_unavailable_and_says_why(
        self, tmp_path: Path, write_model: WriteModel
    ) -> None:
        write_model(tmp_path, "net", "variable")

        with Server(quiet_options(tmp_path, backend_config=self._sizes({"": "many"}))) as server:
            _, index = post(server, "/v2/repository/index", {})

        assert index[0]["state"] == "UNAVAILABLE"
        assert (
            f"--backend-config={self.backend},default-max-batch-size: got 'many', expected a whole number"
            in (index[0]["reason"])
        )

    def test_without_auto_complete_nothing_is_filled_in(
        self, tmp_path: Path, write_model: WriteModel
    ) -> None:
        whole = {"backend": self.backend, "max_batch_size": 8} | tensors([3])
        write_model(tmp_path, "whole", "variable", whole)
        write_model(tmp_path, "none", "variable")

        with Server(quiet_options(tmp_path, auto_complete_config=False)) as server:
            _, index = post(server, "/v2/repository/index", {})
            assert "dynamic_batching" not in config_of(server, "whole")

        states = {entry["name"]: entry["state"] for entry in index}
        assert states == {"whole": "READY", "none": "UNAVAILABLE"}

    def _sizes(self, settings: Mapping[str, str]) -> tuple[tuple[str, str, str], ...]:
        return tuple(
            (name.format(backend=self.backend), "default-max-batch-size", size)
            for name, size in settings.items()
        )


def tensors(dims: Shape, datatype: str = "TYPE_FP32", **more: object) -> JsonObject:
    """A configuration of X and Y."""
    return {
        "input": [{"name": "X", "data_type": datatype, "dims": dims, **more}],
        "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": dims, **more}],
    }


def quiet_options(root: Path, **more: Any) -> ServerOptions:  # Any: options of the server
    """A server of one repository with HTTP alone, on a free port, which starts whatever models fail."""
    return ServerOptions(
        (str(root),),
        exit_on_error=False,
        http_address="127.0.0.1",
        http_port=0,
        allow_grpc=False,
        allow_metrics=False,
        **more,
    )


def post(server: Server, path: str, document: object) -> tuple[int, Any]:  # Any: JSON
    """Ask over HTTP; returns the status and the answer."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.http_port}{path}", json.dumps(document).encode(), method="POST"
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, json.load(exc)


def infer(server: Server, name: str, shape: Shape) -> tuple[int, Any]:  # Any: JSON
    """Send an X of a shape, which counts from 0."""
    x = {"name": "X", "datatype": "FP32", "shape": shape, "data": [float(n) for n in range(prod(shape))]}
    return post(server, f"/v2/models/{name}/infer", {"inputs": [x]})


def config_of(server: Server, name: str) -> JsonObject:
    """The settled configuration of a model."""
    config: JsonObject = server.runtime.dataplane.find(name).config
    return config
