"""Find, check, register and bind plugins: one manager per kind.

pluggy finds and checks; it is not on the hot path. `bind_hook` resolves an implementation once, when a model
is loaded, to a plain function.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.metadata import Distribution, EntryPoint, distributions
from pathlib import Path
from typing import Any, Literal

import pluggy

from tritonpy import hookspecs
from tritonpy.errors import Internal, NotFound, TritonError, exception_text
from tritonpy.plugin_faults import deprecations, hook_faults, import_fault, stated_version, version_fault

_log = logging.getLogger(__name__)

Hook = Callable[..., Any]  # Any: every hook has its own signature, see hookspecs

KINDS: dict[str, type] = {
    "backends": hookspecs.BackendHooks,
    "batching": hookspecs.BatchingHooks,
    "repo_agents": hookspecs.RepoAgentHooks,
    "caches": hookspecs.CacheHooks,
    "stores": hookspecs.StoreHooks,
    "op_libraries": hookspecs.OpLibraryHooks,
    "loaders": hookspecs.LoaderHooks,
    "frontends": hookspecs.FrontendHooks,
    "cli": hookspecs.CliHooks,
}
"""Every kind of plugin and its hook specs; the entry-point group is `tritonpy.<kind>`."""

_GROUP = "tritonpy."
_HOMES = {hook: kind for kind, specs in KINDS.items() for hook in vars(specs) if not hook.startswith("_")}

LIBRARY_KINDS = frozenset({"backends", "batching", "caches", "repo_agents"})
"""The kinds whose plugins may be libraries, which the plugins of kind `loaders` open."""

OWN_DISTRIBUTIONS = frozenset(
    {
        "tritonpy-analyze",
        "tritonpy-backend-litert",
        "tritonpy-backend-onnxruntime",
        "tritonpy-backend-python",
        "tritonpy-backend-pytorch",
        "tritonpy-backend-tensorflow",
        "tritonpy-batching-pad",
        "tritonpy-batching-single",
        "tritonpy-batching-volume",
        "tritonpy-bench",
        "tritonpy-cache-redis",
        "tritonpy-compose",
        "tritonpy-frontend-bind",
        "tritonpy-frontend-tfserving",
        "tritonpy-ray",
        "tritonpy-repo-agent-checksum",
        "tritonpy-router",
        "tritonpy-store-cloud",
    }
)
"""The plugins of this project. No other name is ever recommended: a made-up one could be anyone's."""

_PREFIXES = {
    "backends": "backend",
    "batching": "batching",
    "caches": "cache",
    "frontends": "frontend",
    "repo_agents": "repo-agent",
}
_OTHERS = {
    "cli": {
        "analyze": "tritonpy-analyze",
        "bench": "tritonpy-bench",
        "compose": "tritonpy-compose",
        "route": "tritonpy-router",
    },
    "frontends": {"replica": "tritonpy-router"},
    "stores": dict.fromkeys(("as", "gs", "s3"), "tritonpy-store-cloud"),
}

State = Literal["available", "loaded", "disabled", "failed"]


@dataclass(slots=True)
class PluginInfo:
    """A plugin as `corectl plugins` shows it.

    Attributes:
        name: the entry point's name, which is what people write in their configuration.
        kind: one of `KINDS`.
        distribution: the distribution that offers it, such as `tritonpy-backend-onnxruntime`.
        version: that distribution's version.
        state: `available` until something needs it.
        hooks: the hooks it implements, once loaded; those of a library are in the library.
        library: the path of its library, once loaded, if it is one; else "".
        api_version: the version of the plugin interface that it says it was written for, once loaded; None
            if it says nothing.
        deprecated: what it implements and will not be asked for some day, once loaded.
        reason: why it cannot be used, in a sentence.
        error: the same, with the traceback of a failed import.
        failure: what its import or registration raised.
    """

    name: str
    kind: str
    distribution: str = ""
    version: str = ""
    state: State = "available"
    hooks: list[str] = field(default_factory=list)
    library: str = ""
    api_version: object = None
    deprecated: list[str] = field(default_factory=list)
    reason: str = ""
    error: str = ""
    entry: EntryPoint | None = None
    plugin: object | None = None
    failure: BaseException | None = None


def installed_plugins(kinds: Iterable[str] = tuple(KINDS)) -> dict[str, list[EntryPoint]]:
    """The entry points of every installed distribution, by kind; looking for them reads a file of each.

    As with `importlib.metadata.entry_points`, of distributions of one name the first on the path counts. That
    takes apart what all of hundreds of distributions offer, which costs a server more than reading it.
    """
    found: dict[str, list[EntryPoint]] = {f"{_GROUP}{kind}": [] for kind in kinds}
    seen: set[str] = set()
    for distribution in distributions():
        name = _normalized_name(distribution)
        if name in seen:
            continue
        seen.add(name)
        if _GROUP in (distribution.read_text("entry_points.txt") or ""):
            for entry in distribution.entry_points:
                if entry.group in found:
                    found[entry.group].append(entry)
    return {group.removeprefix(_GROUP): entries for group, entries in found.items()}


def _normalized_name(distribution: Distribution) -> str:
    """A distribution's name, as all ways to write it come to; from its file's name where that has it."""
    name: str | None = getattr(distribution, "_normalized_name", None)  # reading its metadata takes longer
    return name or re.sub(r"[-_.]+", "-", distribution.name or "").lower()


def _name_and_version(distribution: Distribution) -> tuple[str, str]:
    """What a distribution's metadata say of both; to parse all of them as a message takes much longer."""
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO")
    if not text:
        return distribution.name or "", distribution.version or ""
    headers, _, _ = text.partition("\n\n")  # the description follows
    stated = {key: value.strip() for key, _, value in (line.partition(":") for line in headers.splitlines())}
    return stated.get("Name", ""), stated.get("Version", "")


class PluginManager:
    """The plugins of one kind, by the names people use.

    Args:
        kind: one of `KINDS`.
        discover: look for entry points of installed distributions; tests pass False.
        disabled: names that must not be loaded (`--disable-plugin KIND:NAME`).
        installed: what `installed_plugins` found just now; None looks for it.

    Raises nothing for a broken or doubly offered plugin: only what needs that name fails, with the reason.
    """

    def __init__(
        self,
        kind: str,
        *,
        discover: bool = True,
        disabled: Iterable[str] = (),
        installed: Mapping[str, Iterable[EntryPoint]] | None = None,
    ) -> None:
        self.kind = kind
        self._pluggy = _new_pluggy(kind)
        self._plugins: dict[str, PluginInfo] = {}
        self._disabled = set(disabled)
        if discover:
            self._find((installed or installed_plugins((kind,)))[kind])
            self._warn_of_unknown(sorted(self._disabled - self._plugins.keys()))
        for name in self._disabled:
            self._plugins.setdefault(name, PluginInfo(name, kind)).state = "disabled"

    def register(self, name: str, plugin: object) -> None:
        """Add a plugin object directly, as embedding programs and tests do.

        Raises:
            Internal: the name is taken, or a hook does not fit its spec.
        """
        if name in self._plugins:
            raise Internal(f"a plugin called '{name}' is already registered for '{self.kind}'")
        info = PluginInfo(name, self.kind)
        self._plugins[name] = info
        self._adopt(info, plugin)
        if info.state == "failed":
            raise Internal(f"plugin '{name}' of kind '{self.kind}': {info.reason}") from info.failure

    def names(self) -> list[str]:
        """All names on offer, sorted, whether they can be used or not."""
        return sorted(self._plugins)

    def info(self) -> list[PluginInfo]:
        """Every plugin of this kind, sorted by name; loads nothing."""
        return [self._plugins[name] for name in self.names()]

    def load(self, name: str) -> object:
        """Import and register the plugin called `name`, once.

        Returns:
            The plugin; for one that is a library, its `Path`.

        Raises:
            NotFound: no installed distribution offers it.
            Internal: it is disabled, offered twice, or its import or registration failed.
        """
        info = self._plugins.get(name)
        if info is None:
            raise NotFound(
                f"no installed plugin of kind '{self.kind}' is called '{name}'; "
                f"installed: {', '.join(self.names()) or 'none'}{install_hint(self.kind, name)}"
            )
        if info.state == "available":
            assert info.entry is not None  # what was registered directly is loaded or failed
            try:
                plugin = info.entry.load()
            except (Exception, SystemExit) as exc:  # a broken plugin must not take the server with it
                info.state, info.error, info.failure = "failed", traceback.format_exc(), exc
                info.reason = import_fault(info.entry, info.distribution, exc)
            else:
                self._adopt(info, plugin)
        if info.state == "disabled":
            raise Internal(
                f"plugin '{name}' of kind '{self.kind}' is disabled by --disable-plugin {self.kind}:{name}"
            )
        if info.state == "failed":
            raise Internal(
                f"plugin '{name}' of kind '{self.kind}' cannot be used: {info.reason}"
            ) from info.failure
        return info.plugin

    def load_all(self) -> list[object]:
        """Load every plugin that can be loaded; the others are listed as failed."""
        loaded = []
        for name in self.names():
            try:
                loaded.append(self.load(name))
            except TritonError:
                continue
        return loaded

    def bind(self, plugin: object, hook: str) -> Hook | None:
        """The hook of a plugin of this kind, bound by `bind_hook`; None if it has none."""
        return bind_hook(self._pluggy, plugin, hook)

    def _find(self, entries: Iterable[EntryPoint]) -> None:
        for entry in entries:
            distribution, version = "", ""
            if entry.dist is not None:
                distribution, version = _name_and_version(entry.dist)
            info = PluginInfo(entry.name, self.kind, distribution, version, entry=entry)
            rival = self._plugins.setdefault(entry.name, info)
            if rival.distribution != info.distribution:
                rival.state = "failed"
                rival.distribution += f", {info.distribution}"
                rival.reason = rival.error = (
                    f"the name '{entry.name}' is offered by several distributions, {rival.distribution}; "
                    f"keep one of them and uninstall the others"
                )

    def _warn_of_unknown(self, names: Iterable[str]) -> None:
        """Say of names that nothing has that disabling them does nothing: they may be misspelt."""
        for name in names:
            close = get_close_matches(name, self.names(), 1)
            meant = f", did you mean '{close[0]}'?" if close else ""
            _log.warning(
                "--disable-plugin %s:%s disables nothing: no installed plugin of kind '%s' is called '%s'%s; "
                "installed: %s",
                *(self.kind, name, self.kind, name, meant),
                ", ".join(self.names()) or "none",
            )

    def _adopt(self, info: PluginInfo, plugin: object) -> None:
        if isinstance(plugin, (str, os.PathLike)):
            self._adopt_library(info, plugin)
            return
        fault = version_fault(plugin, info.distribution)
        # Two names may stand for one plugin, which is registered under the first.
        if not fault and not any(known.plugin is plugin for known in self._plugins.values()):
            fault = "; ".join(hook_faults(self._pluggy, plugin, _HOMES))
        if fault:
            info.state, info.reason, info.error = "failed", fault, fault
            return
        try:
            if not any(known.plugin is plugin for known in self._plugins.values()):
                self._pluggy.register(plugin, info.name)
        except Exception as exc:  # what pluggy alone sees, or a warning that this process makes an error of
            is_refusal = isinstance(exc, pluggy.PluginValidationError)
            info.state, info.error = "failed", _one_line(exc) if is_refusal else traceback.format_exc()
            info.reason = _one_line(exc) if is_refusal else exception_text(exc)
            info.failure = None if is_refusal else exc
            return
        info.api_version, info.deprecated = stated_version(plugin), deprecations(self._pluggy, plugin)
        for text in info.deprecated:
            _log.warning("plugin '%s' of kind '%s': %s", info.name, self.kind, text)
        info.plugin, info.state = plugin, "loaded"
        info.hooks = sorted(caller.name for caller in self._pluggy.get_hookcallers(plugin) or [])

    def _adopt_library(self, info: PluginInfo, path: str | os.PathLike[str]) -> None:
        """Note where a library is; whoever needs its hooks has a plugin of kind `loaders` open it."""
        library = Path(path)
        if self.kind not in LIBRARY_KINDS:
            kinds = ", ".join(sorted(LIBRARY_KINDS))
            info.error = f"it is the path of a file, {library}; plugins of these kinds may be one: {kinds}"
        elif not library.is_absolute():
            info.error = f"its library is given as {library}; expected an absolute path"
        elif not library.is_file():
            info.error = f"its library {library} is not there: was {info.distribution or info.name} built?"
        if info.error:
            info.state, info.reason = "failed", info.error
            return
        info.plugin, info.state, info.library = library, "loaded", str(library)


def own_plugins(kind: str) -> dict[str, str]:
    """The plugins of a kind that this project has: the distribution by the name of the plugin."""
    prefix = f"tritonpy-{_PREFIXES.get(kind, kind)}-"
    called_so = {name.removeprefix(prefix): name for name in OWN_DISTRIBUTIONS if name.startswith(prefix)}
    return called_so | _OTHERS.get(kind, {})


def install_hint(kind: str, name: str) -> str:
    """The command that installs a missing plugin, to end an error with; "" for those of third parties."""
    distribution = own_plugins(kind).get(name)
    return f"; to install it: pip install {distribution}" if distribution else ""


def _new_pluggy(kind: str) -> pluggy.PluginManager:
    manager = pluggy.PluginManager(hookspecs.PROJECT_NAME)
    manager.add_hookspecs(KINDS[kind])
    if kind == "backends":  # a backend may bring the strategy for all its models
        manager.add_hookspecs(hookspecs.BatchingHooks)
    return manager


def _one_line(exc: Exception) -> str:
    """The text of a pluggy error on one line, without the line breaks between plugin, hook and fault."""
    return ", ".join(str(exc).splitlines()) or type(exc).__name__


def source_file(plugin: object) -> str:
    """The file that a plugin, a module or an object, was imported from; "" for one without a file."""
    try:
        return inspect.getfile(plugin if inspect.ismodule(plugin) else type(plugin))
    except (TypeError, OSError):
        return ""


def bind_object(kind: str, plugin: object, name: str) -> Callable[[str], Hook | None]:
    """Check an object that no entry point offers and return a binder for its hooks.

    Such an object (a strategy file beside a model, say) may serve several models, so it is never registered
    in the shared manager.

    Raises:
        Internal: a hook does not fit its spec, or is none of this kind's hooks.
    """
    manager = _new_pluggy(kind)
    where = f"'{name}' does not fit the hooks of kind '{kind}'"
    fault = version_fault(plugin, "") or "; ".join(hook_faults(manager, plugin, _HOMES))
    if fault:
        raise Internal(f"{where}: {fault}")
    try:
        manager.register(plugin, name)
    except pluggy.PluginValidationError as exc:
        raise Internal(f"{where}: {_one_line(exc)}") from exc
    for text in deprecations(manager, plugin):
        _log.warning("'%s': %s", name, text)
    return lambda hook: bind_hook(manager, plugin, hook)


def bind_hook(manager: pluggy.PluginManager, plugin: object, name: str) -> Hook | None:
    """Return `plugin`'s implementation of hook `name`, callable with positional spec arguments, or None.

    Every hook with a single owner is declared `firstresult`, so the value comes back bare also when another
    plugin wraps the call (tracing, fault injection); only then is the full call chain paid for.
    """
    caller = getattr(manager.hook, name)
    impls = caller.get_hookimpls()
    plain = [impl for impl in impls if not impl.wrapper and not impl.hookwrapper]
    impl = next((impl for impl in plain if impl.plugin is plugin), None)
    if impl is None:
        return None
    argnames = tuple(caller.spec.argnames)
    if len(plain) < len(impls):
        rivals = [other.plugin for other in plain if other is not impl]
        chain = manager.subset_hook_caller(name, remove_plugins=rivals)
        return lambda *args: chain(**dict(zip(argnames, args, strict=True)))
    function: Hook = impl.function
    if tuple(impl.argnames) == argnames:
        return function
    picks = [argnames.index(arg) for arg in impl.argnames]
    return lambda *args: function(*(args[i] for i in picks))
