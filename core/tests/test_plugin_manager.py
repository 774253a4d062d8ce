from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pluggy
import pytest
from tritonpy import hookspecs
from tritonpy.errors import Internal, NotFound
from tritonpy.handles import Backend, Batch, Batcher, Model, ModelInstance
from tritonpy.hookspecs import hookimpl
from tritonpy.plugin_manager import (
    KINDS,
    OWN_DISTRIBUTIONS,
    PluginManager,
    bind_hook,
    bind_object,
    install_hint,
)
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse

PLUGINS = Path(__file__).parents[2] / "plugins"
ECHO = """
from tritonpy.plugin import InferResponse, hookimpl

@hookimpl
def model_instance_execute(instance, requests):
    return [InferResponse(request.inputs.values()) for request in requests]
"""


class Installed:
    """A folder on `sys.path` in which tests install distributions by writing their files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def distribution(
        self,
        name: str,
        entry_points: dict[str, str],
        *,
        module: str = "",
        source: str = ECHO,
        group: str = "tritonpy.backends",
        version: str = "1.2.3",
    ) -> None:
        """Write a distribution whose one module holds `source`."""
        module = module or name.replace("-", "_")
        (self.folder / f"{module}.py").write_text(source)
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines = [f"{point} = {value}" for point, value in entry_points.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
        importlib.invalidate_caches()


@pytest.fixture
def installed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    yield Installed(tmp_path)
    for name in [name for name in sys.modules if name.startswith(("acme_", "other_", "third_"))]:
        del sys.modules[name]


def manager_of(kind: str, **plugins: object) -> PluginManager:
    manager = PluginManager(kind, discover=False)
    for name, plugin in plugins.items():
        manager.register(name, plugin)
    return manager


def bound(manager: PluginManager, plugin: object, hook: str) -> Callable[..., object]:
    function = manager.bind(plugin, hook)
    assert function is not None
    return function


INSTANCE = ModelInstance("m_0_0", 0, "KIND_CPU", 0, Model("m", 1, {"name": "m"}, Path("/"), Backend("b")))
REQUEST = InferRequest("m", {})
BATCH = Batch(Batcher(INSTANCE.model))


# Finding


def test_an_installed_backend_is_found_by_the_name_of_its_entry_point(installed):
    installed.distribution("acme-echo", {"echo": "acme_echo"})

    manager = PluginManager("backends")
    plugin = manager.load("echo")

    assert "echo" in manager.names()
    assert isinstance(bound(manager, plugin, "model_instance_execute")(INSTANCE, [REQUEST])[0], InferResponse)


def test_the_list_shows_distribution_and_version_without_importing_anything(installed):
    installed.distribution("acme-echo", {"echo": "acme_echo"}, version="4.5")

    [info] = [info for info in PluginManager("backends").info() if info.name == "echo"]

    assert (info.kind, info.distribution, info.version, info.state) == (
        "backends",
        "acme-echo",
        "4.5",
        "available",
    )
    assert "acme_echo" not in sys.modules


def test_a_loaded_plugin_shows_its_hooks(installed):
    installed.distribution("acme-echo", {"echo": "acme_echo"})
    manager = PluginManager("backends")

    manager.load("echo")

    [info] = [info for info in manager.info() if info.name == "echo"]
    assert (info.state, info.hooks, info.error) == ("loaded", ["model_instance_execute"], "")


def test_loading_twice_gives_the_same_plugin(installed):
    installed.distribution("acme-echo", {"echo": "acme_echo"})
    manager = PluginManager("backends")

    assert manager.load("echo") is manager.load("echo")


def test_only_the_group_of_the_kind_is_searched(installed):
    installed.distribution("acme-echo", {"echo": "acme_echo"}, group="tritonpy.caches")

    assert "echo" not in PluginManager("backends").names()
    assert "echo" in PluginManager("caches").names()


def test_without_discovery_nothing_is_found(installed):
    installed.distribution("acme-echo", {"echo": "acme_echo"})

    assert PluginManager("backends", discover=False).names() == []


@pytest.mark.parametrize("offers", [{"other": "acme_new"}, {}])
def test_of_distributions_of_one_name_the_first_on_the_path_counts(
    installed, tmp_path, monkeypatch, offers
) -> None:
    installed.distribution("acme-dup", {"dup": "acme_dup"}, version="1.0")
    monkeypatch.syspath_prepend(tmp_path / "first")
    first = Installed(tmp_path / "first")
    first.folder.mkdir()
    first.distribution("Acme_Dup", offers, module="acme_new", version="2.0")

    manager = PluginManager("backends")

    assert "dup" not in manager.names()
    assert ["2.0"] * len(offers) == [info.version for info in manager.info() if info.name in offers]
    assert {entry.name for entry in entry_points(group="tritonpy.backends")} == set(manager.names())


def test_the_name_of_a_distribution_is_what_its_metadata_say_before_their_description(installed) -> None:
    installed.distribution("acme-told", {"told": "acme_told"})
    metadata = installed.folder / "acme_told-1.2.3.dist-info/METADATA"
    text = metadata.read_text().replace("Name: ", "License: x\n Name: of a license\nName:  ")
    metadata.write_text(f"{text}\nName: of the description\nVersion: 9\n")

    info = next(info for info in PluginManager("backends").info() if info.name == "told")

    assert (info.distribution, info.version) == ("acme-told", "1.2.3")


def test_a_missing_plugin_is_reported_with_what_is_installed():
    manager = manager_of("backends", one=object(), two=object())

    with pytest.raises(
        NotFound, match="no installed plugin of kind 'backends' is called 'three'; installed: one, two"
    ):
        manager.load("three")
    with pytest.raises(NotFound, match="installed: none"):
        PluginManager("backends", discover=False).load("three")


def test_the_plugins_of_this_project_and_no_others_are_recommended_to_be_installed():
    projects = [tomllib.loads(path.read_text()) for path in PLUGINS.glob("*/*/pyproject.toml")]

    assert {each["project"]["name"] for each in projects} == OWN_DISTRIBUTIONS
    for project in projects:
        for group, entries in project["project"].get("entry-points", {}).items():
            kind = group.removeprefix("tritonpy.")
            for name in entries if kind in KINDS else ():
                hint = f"; to install it: pip install {project['project']['name']}"
                assert install_hint(kind, name) == hint
                with pytest.raises(NotFound, match=f"installed: none{hint}$"):
                    PluginManager(kind, discover=False).load(name)
    assert not install_hint("backends", "made-up")


def test_the_built_in_backends_enter_by_the_same_door():
    infos = {info.name: info for info in PluginManager("backends").info()}

    for name in ("identity", "repeat", "square"):
        assert infos[name].distribution == "tritonpy"
        assert infos[name].state == "available"


# What can be wrong with a plugin


def test_a_plugin_that_raises_at_import_fails_alone_and_keeps_its_traceback(installed):
    installed.distribution("acme-bad", {"bad": "acme_bad"}, source="def f():\n    return 1 / 0\n\nf()\n")
    installed.distribution("acme-echo", {"echo": "acme_echo"})
    manager = PluginManager("backends")

    with pytest.raises(
        Internal, match="plugin 'bad' of kind 'backends' cannot be used: ZeroDivisionError: division by zero"
    ):
        manager.load("bad")

    [info] = [info for info in manager.info() if info.name == "bad"]
    assert (info.state, info.distribution) == ("failed", "acme-bad")
    assert 'acme_bad.py", line 2, in f' in info.error
    assert manager.load("echo") is not None


def test_a_plugin_that_does_not_parse_names_its_file_and_line(installed):
    installed.distribution("acme-odd", {"odd": "acme_odd"}, source="import os\n\ndef f(:\n    pass\n")

    with pytest.raises(Internal) as refused:
        PluginManager("backends").load("odd")

    assert refused.value.message == (
        f"plugin 'odd' of kind 'backends' cannot be used: SyntaxError: invalid syntax "
        f"({installed.folder / 'acme_odd.py'}, line 3) (entry point 'odd = acme_odd' of acme-odd)"
    )


def test_a_hook_without_its_decorator_fails_the_plugin_and_is_named(installed):
    installed.distribution("acme-bare", {"bare": "acme_bare"}, source=ECHO.replace("@hookimpl\n", ""))
    manager = PluginManager("backends")

    manager.load_all()

    [info] = [info for info in manager.info() if info.name == "bare"]
    assert info.state == "failed"
    assert info.error.endswith(
        "function 'model_instance_execute' is called like a hook and not marked with @hookimpl"
    )
    with pytest.raises(Internal, match="'model_instance_execute' is called like a hook and not marked"):
        manager.load("bare")


def test_a_hook_under_another_name_and_what_only_looks_like_one_are_no_mistake():
    class Fine:
        model_finalize = None

        @hookimpl(specname="model_instance_execute")
        def run(self, instance, requests):
            return []

        @hookimpl(specname="model_initialize")
        def model_instance_initialize(self, model):
            return None

    assert manager_of("backends", fine=Fine()).info()[0].hooks == [
        "model_initialize",
        "model_instance_execute",
    ]


def test_a_broken_plugin_is_not_imported_again(installed):
    installed.distribution("acme-bad", {"bad": "acme_bad"}, source="1 / 0\n")
    manager = PluginManager("backends")
    for _ in range(2):
        with pytest.raises(Internal, match="ZeroDivisionError"):
            manager.load("bad")
        (installed.folder / "acme_bad.py").write_text(ECHO)


def test_a_plugin_that_leaves_the_interpreter_does_not_take_the_server_with_it(installed):
    installed.distribution(
        "acme-exit", {"exit": "acme_exit"}, source="raise SystemExit('no licence found')\n"
    )

    with pytest.raises(Internal, match="cannot be used: SystemExit: no licence found"):
        PluginManager("backends").load("exit")


def test_an_entry_point_to_a_module_that_is_not_there_names_the_module(installed):
    installed.distribution("acme-echo", {"echo": "acme_elsewhere"})

    with pytest.raises(Internal, match="No module named 'acme_elsewhere'"):
        PluginManager("backends").load("echo")


def test_a_name_offered_by_several_distributions_is_refused_and_all_are_named(installed):
    installed.distribution("acme-echo", {"echo": "acme_echo"})
    installed.distribution("other-echo", {"echo": "other_echo", "other": "other_echo"})
    installed.distribution("third-echo", {"echo": "third_echo"})
    manager = PluginManager("backends")

    with pytest.raises(Internal, match="cannot be used") as caught:
        manager.load("echo")

    for distribution in ("acme-echo", "other-echo", "third-echo"):
        assert distribution in str(caught.value)
    assert "uninstall" in str(caught.value)
    assert manager.load("other") is not None


def test_a_distribution_found_twice_on_the_path_is_one(installed, tmp_path_factory, monkeypatch):
    installed.distribution("acme-echo", {"echo": "acme_echo"})
    again = Installed(tmp_path_factory.mktemp("again"))
    again.distribution("acme-echo", {"echo": "acme_echo"})
    monkeypatch.syspath_prepend(again.folder)

    assert PluginManager("backends").load("echo") is not None


def test_an_unknown_hook_is_refused_as_a_spelling_mistake(installed):
    misspelt = ECHO + "\n@hookimpl\ndef model_instance_exceute(instance, requests): ...\n"
    installed.distribution("acme-echo", {"echo": "acme_echo"}, source=misspelt)

    with pytest.raises(
        Internal, match=r"unknown hook 'model_instance_exceute' \(.*acme_echo.py, line 8\), did you "
    ):
        PluginManager("backends").load("echo")


def test_an_argument_the_hook_does_not_have_is_refused(installed):
    strange = "from tritonpy.plugin import hookimpl\n\n@hookimpl\ndef model_initialize(model, gpu): ...\n"
    installed.distribution("acme-echo", {"echo": "acme_echo"}, source=strange)

    with pytest.raises(
        Internal, match=r"hook 'model_initialize' .* has the argument 'gpu'; it may take model"
    ):
        PluginManager("backends").load("echo")


def test_a_refused_plugin_does_not_spoil_those_loaded_after_it(installed):
    misspelt = "from tritonpy.plugin import hookimpl\n\n@hookimpl\ndef model_initialise(model): ...\n"
    installed.distribution("acme-bad", {"bad": "acme_bad"}, source=misspelt)
    installed.distribution("acme-echo", {"echo": "acme_echo"})
    manager = PluginManager("backends")

    with pytest.raises(Internal, match="unknown hook 'model_initialise'"):
        manager.load("bad")

    assert bound(manager, manager.load("echo"), "model_instance_execute")


def test_two_names_may_stand_for_one_module(installed):
    installed.distribution("acme-echo", {"echo": "acme_echo", "acme": "acme_echo"})
    manager = PluginManager("backends")

    plugins = [manager.load(name) for name in ("echo", "acme")]

    assert [bound(manager, plugin, "model_instance_execute") for plugin in plugins]
    assert [info.hooks for info in manager.info() if info.name in ("echo", "acme")] == [
        ["model_instance_execute"]
    ] * 2


@pytest.mark.parametrize("name", ["echo", "nobody-offers-this"])
def test_a_disabled_plugin_is_not_imported_and_the_knob_is_named(installed, name):
    installed.distribution("acme-echo", {"echo": "acme_echo"})
    manager = PluginManager("backends", disabled=[name])

    with pytest.raises(Internal, match=f"is disabled by --disable-plugin backends:{name}"):
        manager.load(name)

    assert "acme_echo" not in sys.modules
    assert [info.state for info in manager.info() if info.name == name] == ["disabled"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ecko", "is called 'ecko', did you mean 'echo'?; installed: "),
        ("nobody-offers-this", "is called 'nobody-offers-this'; installed: "),
    ],
)
def test_disabling_what_nothing_offers_is_told_with_what_there_is(installed, caplog, name, told):
    installed.distribution("acme-echo", {"echo": "acme_echo"})

    PluginManager("backends", disabled=[name, "echo"])

    [line] = caplog.messages
    assert line.startswith(f"--disable-plugin backends:{name} disables nothing: no installed plugin ")
    assert told in line
    assert "echo" in line.rpartition("installed: ")[2].split(", ")


def test_a_plugin_may_be_the_path_of_a_library(installed):
    source = "from pathlib import Path\nLIBRARY = Path(__file__).with_name('libacme.so')\n"
    source += "TEXT = str(LIBRARY)\n"
    installed.distribution("acme-c", {"acme": "acme_c:LIBRARY", "text": "acme_c:TEXT"}, source=source)
    library = installed.folder / "libacme.so"
    library.touch()
    manager = PluginManager("backends")

    assert manager.load("acme") == manager.load("text") == library
    (info,) = [info for info in manager.info() if info.name == "acme"]
    assert (info.state, info.hooks, info.library) == ("loaded", [], str(library))


@pytest.mark.parametrize(
    ("group", "path", "reason"),
    [
        ("backends", "Path(__file__).with_name('libacme.so')", "libacme.so is not there: was acme-c built?"),
        ("backends", "Path(__file__).parent", " is not there: was acme-c built?"),
        ("backends", "Path('acme.so')", "its library is given as acme.so; expected an absolute path"),
        ("frontends", "Path(__file__)", "these kinds may be one: backends, batching, caches, repo_agents"),
    ],
)
def test_a_library_that_cannot_be_one_is_refused_by_its_path(installed, group, path, reason):
    source = f"from pathlib import Path\nLIBRARY = {path}\n"
    installed.distribution("acme-c", {"acme": "acme_c:LIBRARY"}, source=source, group=f"tritonpy.{group}")
    manager = PluginManager(group)

    with pytest.raises(Internal, match="cannot be used") as refused:
        manager.load("acme")

    assert refused.value.message.endswith(reason)
    (info,) = [info for info in manager.info() if info.name == "acme"]
    assert (info.state, info.library) == ("failed", "")


def test_load_all_skips_what_cannot_be_loaded(installed):
    installed.distribution("acme-bad", {"bad": "acme_bad"}, source="1 / 0\n", group="tritonpy.cli")
    source = "from tritonpy.plugin import hookimpl\n\n@hookimpl\ndef cli_commands(group): ...\n"
    installed.distribution("acme-cli", {"acme": "acme_cli"}, source=source, group="tritonpy.cli")
    manager = PluginManager("cli", disabled=["off"])

    manager.load_all()

    states = {info.name: info.state for info in manager.info()}
    assert states["bad"] == "failed"
    assert states["acme"] == "loaded"
    assert states["off"] == "disabled"


# Registering directly


def test_a_registered_plugin_is_loaded_by_name():
    plugin = object()

    assert manager_of("caches", mine=plugin).load("mine") is plugin


def test_a_name_is_registered_once():
    manager = manager_of("caches", mine=object())

    with pytest.raises(Internal, match="a plugin called 'mine' is already registered for 'caches'"):
        manager.register("mine", object())


def test_registering_what_does_not_fit_is_refused_at_once():
    class Strange:
        @hookimpl
        def cache_lookup(self, cache, key, colour):
            return None

    manager = PluginManager("caches", discover=False)

    with pytest.raises(
        Internal,
        match=r"plugin 'strange' of kind 'caches': hook 'cache_lookup' .*'colour'; it may take cache, key",
    ):
        manager.register("strange", Strange())


# Binding


class AnswersNo:
    """A strategy that never includes anything."""

    @hookimpl
    def model_batch_include_request(self, request, batch):
        return False


class Wrapper:
    """Another plugin that looks at every answer of `model_batch_include_request`."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    @hookimpl(wrapper=True)
    def model_batch_include_request(self, request, batch):
        answer = yield
        self.seen.append(answer)
        return answer


class OldWrapper:
    @hookimpl(hookwrapper=True)
    def model_batch_include_request(self, request, batch):
        yield


def test_a_no_stays_a_no():
    plugin = AnswersNo()
    manager = manager_of("batching", no=plugin)

    assert bound(manager, plugin, "model_batch_include_request")(REQUEST, BATCH) is False


@pytest.mark.parametrize("wrapper", [Wrapper(), OldWrapper()], ids=["wrapper", "old style"])
def test_a_no_stays_a_no_through_a_wrapper(wrapper):
    plugin = AnswersNo()
    manager = manager_of("batching", no=plugin, wrapper=wrapper)

    assert bound(manager, plugin, "model_batch_include_request")(REQUEST, BATCH) is False
    if isinstance(wrapper, Wrapper):
        assert wrapper.seen == [False]


def test_a_wrapper_sees_only_the_plugin_that_was_bound():
    class AnswersYes:
        @hookimpl
        def model_batch_include_request(self, request, batch):
            return True

    no, yes, wrapper = AnswersNo(), AnswersYes(), Wrapper()
    manager = manager_of("batching", no=no, yes=yes, wrapper=wrapper)

    bound(manager, no, "model_batch_include_request")(REQUEST, BATCH)
    bound(manager, yes, "model_batch_include_request")(REQUEST, BATCH)

    assert wrapper.seen == [False, True]


@pytest.mark.parametrize("wrapper", [Wrapper(), OldWrapper()], ids=["wrapper", "old style"])
def test_a_plugin_that_only_wraps_a_hook_does_not_implement_it(wrapper):
    assert manager_of("batching", wrapper=wrapper).bind(wrapper, "model_batch_include_request") is None


def test_an_absent_optional_hook_is_none():
    plugin = AnswersNo()
    manager = manager_of("batching", no=plugin, wrapper=Wrapper())

    assert manager.bind(plugin, "model_batch_include_requests") is None


def test_the_hook_of_another_plugin_is_not_taken_for_ones_own():
    mine = object()
    manager = manager_of("batching", no=AnswersNo(), mine=mine)

    assert manager.bind(mine, "model_batch_include_request") is None


def test_a_plugin_may_leave_out_arguments_and_change_their_order():
    class Picky:
        @hookimpl
        def model_instance_execute(self, requests):
            return requests

        @hookimpl
        def model_batch_include_request(self, batch, request):
            return batch, request

        @hookimpl
        def model_batcher_initialize(self):
            return "state"

    plugin = Picky()
    manager = manager_of("backends", picky=plugin)

    assert bound(manager, plugin, "model_instance_execute")(INSTANCE, [REQUEST]) == [REQUEST]
    assert bound(manager, plugin, "model_batch_include_request")(REQUEST, BATCH) == (BATCH, REQUEST)
    assert bound(manager, plugin, "model_batcher_initialize")(INSTANCE.model) == "state"


def test_a_hook_with_all_arguments_in_order_is_called_without_a_layer_between():
    class Plain:
        @hookimpl
        def model_instance_execute(self, instance, requests):
            return None

    plugin = Plain()

    assert bound(manager_of("backends", plain=plugin), plugin, "model_instance_execute") == (
        plugin.model_instance_execute
    )


def test_what_a_hook_raises_reaches_the_caller_also_through_a_wrapper():
    class Raises:
        @hookimpl
        def model_batch_include_request(self, request, batch):
            raise NotFound("no such thing")

    plugin = Raises()
    manager = manager_of("batching", raises=plugin, wrapper=Wrapper())

    with pytest.raises(NotFound, match="no such thing"):
        bound(manager, plugin, "model_batch_include_request")(REQUEST, BATCH)


def test_a_backend_may_bring_a_strategy_for_all_its_models():
    plugin = AnswersNo()

    assert manager_of("backends", no=plugin).bind(plugin, "model_batch_include_request") is not None


# Objects no entry point offers


def test_one_strategy_object_may_serve_two_models():
    plugin = AnswersNo()

    binders = [bind_object("batching", plugin, name) for name in ("model a", "model b")]

    for binder in binders:
        include = binder("model_batch_include_request")
        assert include is not None
        assert include(REQUEST, BATCH) is False
        assert binder("model_batch_include_requests") is None


def test_an_object_with_an_unknown_hook_is_refused_with_its_name():
    class Misspelt:
        @hookimpl
        def model_batch_inclde_request(self, request, batch):
            return True

    with pytest.raises(
        Internal,
        match=r"'strategy.py' does not fit the hooks of kind 'batching': unknown hook 'model_b",
    ):
        bind_object("batching", Misspelt(), "strategy.py")


def test_an_object_with_a_strange_argument_is_refused():
    class Strange:
        @hookimpl
        def model_batch_include_request(self, request, batch, mood):
            return True

    with pytest.raises(Internal, match=r"'strategy.py' does not fit the hooks of kind 'batching'.*'mood'"):
        bind_object("batching", Strange(), "strategy.py")


def test_every_kind_has_a_manager():
    for kind in KINDS:
        assert PluginManager(kind, discover=False).names() == []


def test_binding_needs_no_manager_of_ours():
    manager = pluggy.PluginManager(hookspecs.PROJECT_NAME)
    manager.add_hookspecs(hookspecs.BatchingHooks)
    plugin = AnswersNo()
    manager.register(plugin)

    include = bind_hook(manager, plugin, "model_batch_include_request")

    assert include is not None
    assert include(REQUEST, BATCH) is False
