"""Each fault of a plugin is named in each place where its author may look, for each kind of plugin."""

from __future__ import annotations

import importlib
import logging
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tritonpy import hookspecs, plugin_manager
from tritonpy.cli.main import main
from tritonpy.cli.plugin_check import try_plugin
from tritonpy.errors import Internal, TritonError
from tritonpy.options import ServerOptions
from tritonpy.plugin import API_VERSION, BackendAttributes, hookimpl
from tritonpy.plugin_faults import REQUIRED_HOOKS
from tritonpy.plugin_manager import KINDS, PluginManager
from tritonpy.server import Server

VERSION = ".".join(map(str, API_VERSION))

FIRST = {kind: (*hooks, "model_instance_execute")[0] for kind, hooks in REQUIRED_HOOKS.items()}
SHORT = "from tritonpy.plugin import hookimpl\n"
FAULTS = {
    "misspelt": (
        SHORT + "@hookimpl\ndef {hook}s(): ...\n",
        "unknown hook '{hook}s' ({file}, line 2), did you mean",
    ),
    "argument": (
        SHORT + "@hookimpl\ndef {hook}(colour): ...\n",
        "hook '{hook}' ({file}, line 2) has the argument 'colour'; it may take ",
    ),
    "import": (
        "import acme_nowhere\n",
        "ModuleNotFoundError: No module named 'acme_nowhere' (entry point 'bad = acme_",
    ),
    "old server": (
        "TRITONPY_API_VERSION = (1, 999)\n",
        "it needs version 1.999 of the plugin interface, and this server (tritonpy 0.",
    ),
    "old plugin": (
        "TRITONPY_API_VERSION = (0, 3)\n",
        "it was written for version 0.3 of the plugin interface, and this server (tritonpy ",
    ),
    "twice": (SHORT, "the name 'bad' is offered by several distributions, acme-"),
}
"""The module of a plugin, and what is said of it."""


class Site:
    """A folder on `sys.path` that plugins are installed in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, kind: str, source: str, name: str = "acme-one", value: str = "") -> None:
        module = name.replace("-", "_")
        (self.folder / f"{module}.py").write_text(source)
        info = self.folder / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[tritonpy.{kind}]\nbad = {value or module}\n")
        importlib.invalidate_caches()

    def break_one(self, kind: str, fault: str) -> str:
        """Install a plugin with a fault; returns what is to be said of it."""
        source, told = FAULTS[fault]
        self.install(kind, source.format(hook=FIRST[kind]))
        if fault == "twice":
            self.install(kind, source, "acme-two")
        return told.format(hook=FIRST[kind], file=self.folder / "acme_one.py")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    yield Site(folder)
    for name in [name for name in sys.modules if name.startswith("acme_")]:
        del sys.modules[name]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_load_and_the_check_name_it(site: Site, kind: str, fault: str) -> None:
    told = site.break_one(kind, fault)

    loads: list[Callable[[], object]] = [
        lambda: PluginManager(kind).load("bad"),
        lambda: try_plugin(kind, "bad"),
    ]
    for load in loads:
        with pytest.raises(Internal) as refused:
            load()
        assert refused.value.message.startswith(f"plugin 'bad' of kind '{kind}' cannot be used: {told}")
        assert "\n" not in refused.value.message


@hookimpl
def backend_attributes() -> BackendAttributes:
    return BackendAttributes(op_framework="flow")


@hookimpl
def model_instance_execute() -> None: ...


ASKS = SimpleNamespace(backend_attributes=backend_attributes, model_instance_execute=model_instance_execute)
STARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "backends": ('backend: "bad"', {}),
    "batching": (
        'backend: "identity" max_batch_size: 4 dynamic_batching {} parameters '
        '{ key: "TRITON_BATCH_STRATEGY_PATH" value { string_value: "bad" } }',
        {},
    ),
    "repo_agents": ('backend: "identity" model_repository_agents { agents { name: "bad" } }', {}),
    "caches": ("", {"cache_config": (("bad", "", ""),)}),
    "stores": ("", {"model_repositories": ("bad://here",)}),
    "op_libraries": ('backend: "asks"', {}),
    "frontends": ("", {"frontend_config": (("bad", "", ""),)}),
}
"""What makes a server need the plugin: a configuration, or options."""


@pytest.mark.parametrize(
    ("kind", "fault"), [*((kind, "misspelt") for kind in STARTS), *(("backends", fault) for fault in FAULTS)]
)
def test_the_start_of_a_server_names_it(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, fault: str
) -> None:
    told = site.break_one(kind, fault)
    config, options = STARTS[kind]
    if config:
        (tmp_path / "models/net/1").mkdir(parents=True)
        tensors = 'input { name: "INPUT0" data_type: TYPE_FP32 dims: 1 }\n'
        tensors += tensors.replace("input", "output").replace("INPUT", "OUTPUT")
        (tmp_path / "models/net/config.pbtxt").write_text(f"{config}\n{tensors}")
        options = {"model_repositories": (str(tmp_path / "models"),)}
    ports = {"allow_http": False, "allow_grpc": False, "allow_metrics": False}

    said = ""
    try:
        with Server(
            ServerOptions(**{"model_repositories": (), **ports, **options}),
            plugins={"backends": {"asks": ASKS}},
        ):
            pass
    except TritonError as error:
        said = error.message

    assert said, "the server started"
    assert told in said + caplog.text


def test_two_distributions_with_one_name_are_told_when_the_server_starts_though_nothing_needs_them(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    told = site.break_one("caches", "twice")

    with Server(ServerOptions((), allow_http=False, allow_grpc=False, allow_metrics=False)):
        pass

    assert f"plugin 'bad' of kind 'caches' cannot be used: {told}" in caplog.text


def test_the_command_checks_in_processes_and_lists_what_is_wrong(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = site.break_one("caches", "misspelt")
    monkeypatch.setenv("PYTHONPATH", str(site.folder))

    status = main(["plugins", "check", "caches:bad"])
    checked = capsys.readouterr().out
    main(["plugins", "--load"])
    listed = capsys.readouterr().out

    assert status == 1
    assert (
        f"caches:bad of acme-one 1.0: Internal: plugin 'bad' of kind 'caches' cannot be used: {told}"
        in checked
    )
    assert told in listed
    assert f"plugin interface: {VERSION}\n" in listed


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("cache_lookup(cache, key=None)", "has a default for 'key', which is never given then"),
        (
            "cache_lookup(*arguments)",
            "has '*arguments', which is never given anything; it may take cache, key",
        ),
        ("cache_lookup(cache, *, key)", "has 'key' behind a '*', where it is never given"),
        ("cache_lookup(cache, kye)", "has the argument 'kye', did you mean 'key'?; it may take cache, key"),
        ("cache_usage(cache):\n    yield", "has a `yield`, so calling it runs nothing"),
        ("model_finalize(model)", "unknown hook 'model_finalize'"),
        ("model_finalize(model)", "; it belongs to plugins of kind 'backends'"),
        ("frontend_stop(frontend)", "; it belongs to plugins of kind 'frontends'"),
    ],
)
def test_a_signature_that_would_only_fail_when_it_is_called_is_told(source: str, told: str) -> None:
    module = SimpleNamespace()
    end = "" if ":" in source else ": ..."
    exec(f"{SHORT}@hookimpl\ndef {source}{end}\n", vars(module))

    with pytest.raises(Internal) as refused:
        PluginManager("caches", discover=False).register("bad", module)

    assert told in refused.value.message


def test_what_waits_where_nothing_awaits_it_is_told() -> None:
    @hookimpl
    async def store_open(root: str) -> None: ...

    with pytest.raises(Internal, match=r"hook 'store_open' .* is `async def`, and nothing awaits it"):
        PluginManager("stores", discover=False).register("bad", SimpleNamespace(store_open=store_open))


class Cache:
    @hookimpl
    def cache_lookup(self, cache: object, key: str) -> None: ...


class WithoutSelf:
    @hookimpl
    def cache_lookup(cache: object, key: str) -> None: ...


@pytest.mark.parametrize(
    ("plugin", "told"),
    [
        (Cache, "is a method of the class Cache; expected an instance of it"),
        (WithoutSelf(), "has 'cache' where a method has 'self'"),
        (
            SimpleNamespace(TRITONPY_API_VERSION="1.0"),
            r"TRITONPY_API_VERSION is '1.0'; expected two whole numbers",
        ),
    ],
)
def test_an_object_that_cannot_be_a_plugin_is_told(plugin: object, told: str) -> None:
    with pytest.raises(Internal, match=told):
        PluginManager("caches", discover=False).register("bad", plugin)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("acme_elsewhere", "names a module that is not there: No module named 'acme_elsewhere'"),
        ("acme_one.deeper", "names a module that is not there: No module named 'acme_one.deeper'"),
        (
            "acme_one:plugn",
            "names an object that is not there: 'acme_one' has no 'plugn', did you mean 'plugin'?",
        ),
        ("acme one", "cannot be read; expected a module, or module:object"),
    ],
)
def test_an_entry_point_that_leads_nowhere_is_shown(site: Site, value: str, told: str) -> None:
    site.install("caches", "plugin = object()", value=value)

    with pytest.raises(Internal) as refused:
        PluginManager("caches").load("bad")

    assert f"entry point 'bad = {value}' of acme-one {told}" in refused.value.message


def test_a_name_that_a_later_version_of_the_door_has_is_told(site: Site) -> None:
    site.install("caches", "from tritonpy.plugin import Tomorrow\n")

    told = rf"cannot import name 'Tomorrow'.*is {re.escape(VERSION)}: upgrade tritonpy, or install a version"
    with pytest.raises(Internal, match=told):
        PluginManager("caches").load("bad")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "backends"])
def test_the_check_tells_what_a_plugin_lacks_and_what_may_be_meant(site: Site, kind: str) -> None:
    site.install(kind, f"def {FIRST[kind]}s(): ...\n")

    with pytest.raises(Internal) as refused:
        try_plugin(kind, "bad")

    assert (
        f"it does not implement {', '.join(REQUIRED_HOOKS[kind])}; is its function" in refused.value.message
    )


def test_a_plugin_may_state_the_version_it_was_written_for() -> None:
    manager = PluginManager("caches", discover=False)
    manager.register("good", SimpleNamespace(TRITONPY_API_VERSION=hookspecs.API_VERSION))

    assert manager.info()[0].api_version == hookspecs.API_VERSION


class Hooks:
    @hookspecs.hookspec(firstresult=True, warn_on_impl=DeprecationWarning("use `new` instead; gone in 2.0"))
    def old(self) -> None: ...

    @hookspecs.hookspec(
        firstresult=True,
        warn_on_impl_args={"colour": DeprecationWarning("`colour` is always red; gone in 2.0")},
    )
    def new(self, size: int, colour: str) -> None: ...


def test_what_is_deprecated_is_told_and_works(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(plugin_manager.KINDS, "caches", Hooks)
    manager = PluginManager("caches", discover=False)

    @hookimpl
    def old() -> int:
        return 1

    @hookimpl
    def new(size: int, colour: str) -> int:
        return 2

    plugin = SimpleNamespace(old=old, new=new)
    with pytest.warns(DeprecationWarning, match="gone in 2.0"), caplog.at_level(logging.WARNING):
        manager.register("mine", plugin)

    call: Callable[..., Any] | None = manager.bind(plugin, "old")
    assert call is not None
    assert call() == 1
    told = ["hook 'new': `colour` is always red; gone in 2.0", "hook 'old': use `new` instead; gone in 2.0"]
    assert manager.info()[0].deprecated == told
    assert caplog.messages == [f"plugin 'mine' of kind 'caches': {text}" for text in told]
