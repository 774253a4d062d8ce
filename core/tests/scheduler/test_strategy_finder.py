"""Where a batching strategy is looked for, in which order, and which paths are refused."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tritonpy.errors import InvalidArg, NotFound, TritonError, Unsupported
from tritonpy.handles import Backend, Model
from tritonpy.model.backend import BATCHING_HOOKS, BoundBackend
from tritonpy.plugin import hookimpl
from tritonpy.plugin_manager import PluginManager
from tritonpy.scheduler.strategy_finder import StrategyFinder

SOURCE = """
from tritonpy.plugin import hookimpl

@hookimpl
def model_batcher_initialize(model): ...

@hookimpl
def model_batcher_finalize(batcher): ...

@hookimpl
def model_batch_initialize(batcher): ...

@hookimpl
def model_batch_include_request(request, batch):
    return True

@hookimpl
def model_batch_finalize(batch): ...
"""

HOOKS: dict[str, Callable[..., Any]] = {
    "model_batcher_initialize": lambda model: None,
    "model_batcher_finalize": lambda batcher: None,
    "model_batch_initialize": lambda batcher: None,
    "model_batch_include_request": lambda request, batch: True,
    "model_batch_finalize": lambda batch: None,
}


class Loader:
    """Opens shared objects that hold the word `strategy`."""

    @hookimpl
    def load_shared_object(self, kind: str, path: str) -> object:
        if Path(path).read_text() != "strategy":
            raise NotFound(f"unable to load shared library: {path}: file too short")
        return SimpleNamespace(**{name: hookimpl(hook) for name, hook in HOOKS.items()})


class Place:
    """A model and a directory of backends, and what finds strategies there."""

    def __init__(self, directory: Path) -> None:
        self.outside = directory
        self.model = directory / "models/m"
        self.backend = directory / "backends/b"
        self.own_hooks: dict[str, Any] = {}
        self.backend_files: Path | None = None
        self.config: dict[str, Any] = {"name": "m", "dynamic_batching": {}}
        for path in (self.model / "1", self.backend):
            path.mkdir(parents=True)

    def put(self, path: Path | str) -> Path:
        full = self.model / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(SOURCE if full.suffix == ".py" else "strategy")
        return full

    def find(self, name: str | None = None, *, is_strict: bool = False, is_override: bool = False) -> str:
        if name is not None:
            self.config["parameters"] = {"TRITON_BATCH_STRATEGY_PATH": {"string_value": name}}
        loaders = PluginManager("loaders", discover=False)
        loaders.register("loader", Loader())
        finder = StrategyFinder(
            PluginManager("batching"),
            loaders,
            is_strict=is_strict,
            backend_directory=str(self.backend.parent),
        )
        handle = Backend("b", directory=self.backend_files)
        hooks = {name: self.own_hooks.get(name) for name in BATCHING_HOOKS}
        backend: Any = SimpleNamespace(name="b", handle=handle, batching=hooks)
        model = Model("m", 1, self.config, self.model, handle)
        found = finder.find(model, backend, is_strict=is_override)
        return found.name if found is not None else ""

    def reason(self, kind: type[TritonError], name: str | None = None, **arguments: bool) -> str:
        with pytest.raises(kind) as caught:
            self.find(name, **arguments)
        assert type(caught.value) is kind
        return str(caught.value)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_files_are_looked_for_beside_the_version_then_the_model_then_the_backend(place: Place) -> None:
    directories = (place.model / "1", place.model, place.backend)
    paths = [
        place.put(each / name) for each in directories for name in ("batchstrategy.so", "batchstrategy.py")
    ]
    place.own_hooks = HOOKS

    for path in paths:
        assert place.find() == str(path)
        path.unlink()

    assert place.find() == "backend b"
    place.own_hooks = {}
    assert place.find() == ""


def test_a_strategy_beside_a_backend_made_of_files_is_found_where_that_lies(place: Place) -> None:
    place.backend_files = place.outside / "elsewhere"
    path = place.put(place.backend_files / "batchstrategy.py")
    place.put(place.backend / "batchstrategy.py")

    assert place.find() == str(path)


def test_what_the_configuration_names_wins_over_files(place: Place) -> None:
    place.put("1/batchstrategy.so")

    assert place.find("volume") == "volume"
    assert place.find(str(place.put("other.so"))) == str(place.model / "other.so")


@pytest.mark.parametrize("name", ["mine.so", "deep/mine.py", "./mine.so", "deep//mine.so", "deep/../mine.so"])
def test_a_relative_path_begins_at_the_version_then_at_the_model(place: Place, name: str) -> None:
    (place.model / "deep").mkdir()
    (place.model / "1/deep").mkdir()
    place.put(name)
    assert place.find(name, is_strict=True) == str(place.model / name)

    place.put(f"1/{name}")
    assert place.find(name, is_strict=True) == str(place.model / "1" / name)


@pytest.mark.parametrize("name", ["", "nosuch.so", "./nosuch.so", "/nosuch.so", "a\0b.so", "x" * 300 + ".so"])
def test_a_path_that_leads_nowhere_is_refused_in_tritons_words(place: Place, name: str) -> None:
    place.put("batchstrategy.so")  # does not stand in

    assert place.reason(NotFound, name).startswith(f"Batching library path not found: {name} (model 'm'")


@pytest.mark.parametrize("name", ["fuor", "four.dll", "Four 4"])
def test_a_name_that_nothing_has_is_refused_with_its_model_and_what_is_meant_by_it(
    place: Place, name: str
) -> None:
    reason = place.reason(NotFound, name)

    assert reason.startswith(f"no installed plugin of kind 'batching' is called '{name}'; installed: ")
    assert reason.endswith(
        "volume (model 'm', parameter TRITON_BATCH_STRATEGY_PATH; a path has a '/' in it, or ends in "
        ".so or .py)"
    )


def test_a_directory_is_refused_in_tritons_words(place: Place) -> None:
    (place.model / "mine.so").mkdir()

    assert place.reason(NotFound, "mine.so").startswith(
        f"unable to load shared library: {place.model}/mine.so is no file (model 'm'"
    )


@pytest.mark.parametrize("is_directory", [True, False])
def test_what_lies_beside_the_model_and_is_no_file_is_not_overlooked(
    place: Place, is_directory: bool
) -> None:
    path = place.model / "batchstrategy.so"
    if is_directory:
        path.mkdir()
    else:
        path.symlink_to("nosuch.so")

    assert place.reason(NotFound).startswith(f"unable to load shared library: {path} is no file")


def test_what_the_loader_says_reaches_whoever_loads(place: Place) -> None:
    (place.model / "batchstrategy.so").write_text("no strategy")

    assert place.reason(NotFound).endswith("batchstrategy.so: file too short")


def test_a_shared_object_that_nothing_opens_says_what_to_install(place: Place) -> None:
    path = place.put("batchstrategy.so")
    finder = StrategyFinder(
        *(PluginManager(kind, discover=False) for kind in ("batching", "loaders")), is_strict=False
    )
    handle = Backend("b")

    with pytest.raises(Unsupported) as caught:
        finder.find(Model("m", 1, place.config, place.model, handle), bound(handle))

    assert str(caught.value) == (
        f"batching strategy {path} is a shared object, and nothing is installed that opens it: "
        f"pip install tritonpy-abi"
    )


def bound(handle: Backend) -> BoundBackend:
    backend: Any = SimpleNamespace(name="b", handle=handle, batching={})
    made: BoundBackend = backend
    return made


ESCAPES = "Batching library path escapes model repository: "


@pytest.mark.parametrize("link", ["file", "directory"])
@pytest.mark.parametrize(
    "name", ["{outside}/mine.so", "../../mine.so", "in/../../../mine.so", "in//mine.so", "link.so"]
)
def test_paths_lead_out_of_the_model_only_while_the_policy_allows_any(
    place: Place, name: str, link: str
) -> None:
    place.put("../../mine.so")
    if link == "file":
        (place.model / "link.so").symlink_to("../../mine.so")
        (place.model / "in").mkdir()
        (place.model / "in/mine.so").symlink_to(place.outside / "mine.so")
    else:
        (place.model / "in").symlink_to(place.outside, target_is_directory=True)
        (place.model / "link.so").symlink_to("in/mine.so")
        if name == "in/../../../mine.so":
            name = "in/mine.so"
    name = name.format(outside=place.outside)

    assert place.find(name)
    assert place.reason(InvalidArg, name, is_strict=True) == (
        f"{ESCAPES}{name} (model 'm'; --strategy-path-policy=any allows it)"
    )
    assert place.reason(InvalidArg, name, is_override=True) == (
        f"{ESCAPES}{name} (model 'm'; never in a load request)"
    )


def test_a_file_beside_the_model_that_leads_out_is_refused_when_the_policy_is_strict(place: Place) -> None:
    (place.model / "batchstrategy.so").symlink_to(place.put("../../mine.so"))

    assert place.find() == place.find(is_override=True) == f"{place.model}/batchstrategy.so"
    assert place.reason(InvalidArg, is_strict=True).startswith(f"{ESCAPES}{place.model}/batchstrategy.so")


def test_a_link_inside_a_model_that_is_a_link_itself_stays_inside(place: Place) -> None:
    (place.model / "batchstrategy.so").symlink_to(place.put("real/mine.so"))
    linked = place.outside / "linked"
    linked.symlink_to(place.model)
    place.model = linked

    assert place.find(is_strict=True) == f"{linked}/batchstrategy.so"


def test_a_strategy_of_the_backend_is_the_operators_also_when_the_policy_is_strict(place: Place) -> None:
    path = place.put(place.backend / "batchstrategy.so")

    assert place.find(is_strict=True, is_override=True) == str(path)


def test_an_object_to_import_is_no_file_of_the_model(place: Place) -> None:
    name = "tritonpy_batching_single:nosuch"

    for arguments, hint in (
        ({"is_strict": True}, "with --strategy-path-policy=strict"),
        ({"is_override": True}, "in a load request"),
    ):
        assert place.reason(InvalidArg, name, **arguments) == (
            f"batching strategy '{name}' of model 'm' is an object to import: {hint} expected the name of an "
            f"installed strategy, or a file inside the model's directory"
        )


@pytest.mark.parametrize("name", ["volume", "/nosuch.so", ""])
def test_a_strategy_that_is_named_beside_sequences_is_refused_in_tritons_words(
    place: Place, name: str
) -> None:
    place.config = {"name": "m", "sequence_batching": {}}

    assert place.reason(InvalidArg, name) == (
        "TRITON_BATCH_STRATEGY_PATH cannot be specified with sequence batcher, using default batching "
        f"strategy (model 'm' has '{name}')"
    )


def test_a_file_beside_a_model_with_sequences_is_passed_over_and_named_in_the_log(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.put(place.backend / "batchstrategy.so")
    place.config = {"name": "m", "sequence_batching": {}}

    with caplog.at_level(logging.WARNING, "tritonpy.batching"):
        assert place.find() == ""  # that of the backend is there for all its models: nothing to say
        path = place.put("batchstrategy.so")
        assert place.find() == ""

    (message,) = caplog.messages
    assert message == f"batching strategy '{path}' is never asked: model 'm' has sequence_batching"


def test_a_strategy_that_is_never_asked_is_named_in_the_log(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.put(place.backend / "batchstrategy.so")
    del place.config["dynamic_batching"]

    with caplog.at_level(logging.WARNING, "tritonpy.batching"):
        assert place.find()  # it is there for all models of the backend: nothing to say
        path = place.put("batchstrategy.so")
        assert place.find() == str(path)

    assert caplog.messages == [
        f"batching strategy '{path}' is never asked: model 'm' has no dynamic_batching"
    ]
