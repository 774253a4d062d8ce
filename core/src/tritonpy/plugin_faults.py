"""Faults of plugins that can be seen before any hook is called, each as a sentence for its author.

pluggy sees some of them, too, and says so in its own terms; others it takes for intended, such as an argument
with a default, which it never passes.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib.metadata import EntryPoint
from typing import Any

import pluggy

from tritonpy import hookspecs
from tritonpy.errors import exception_text
from tritonpy.version import __version__

VERSION_ATTRIBUTE = "TRITONPY_API_VERSION"
"""The attribute by which a plugin says for which version of the plugin interface it was written."""

REQUIRED_HOOKS: Mapping[str, Sequence[str]] = {
    "backends": (),  # one of two; see `BoundBackend`
    "batching": (
        "model_batcher_initialize",
        "model_batcher_finalize",
        "model_batch_initialize",
        "model_batch_include_request",
        "model_batch_finalize",
    ),
    "repo_agents": ("repo_agent_model_action",),
    "caches": ("cache_lookup", "cache_insert"),
    "stores": ("store_open",),
    "op_libraries": ("op_library_paths",),
    "loaders": ("load_shared_object",),
    "frontends": ("frontend_start",),
    "cli": ("cli_commands",),
}
"""The hooks that a plugin of each kind cannot be without."""

_MARK = f"{hookspecs.PROJECT_NAME}_impl"
_DOOR = "tritonpy.plugin"


def version_text(version: tuple[int, int]) -> str:
    """A version of the plugin interface as people write it: `1.0`."""
    return ".".join(map(str, version))


def stated_version(plugin: object) -> object:
    """What a plugin says of the version it was written for; None if it says nothing."""
    return inspect.getattr_static(plugin, VERSION_ATTRIBUTE, None)


def version_fault(plugin: object, distribution: str) -> str:
    """Why the plugin interface of this server is not the one that a plugin asks for; "" if it is.

    Args:
        plugin: says so by `TRITONPY_API_VERSION`, or says nothing.
        distribution: that would have to be upgraded; "" if it is not known.
    """
    stated = stated_version(plugin)
    if stated is None:
        return ""
    if not (isinstance(stated, tuple) and len(stated) == 2 and all(type(each) is int for each in stated)):
        return (
            f"{VERSION_ATTRIBUTE} is {stated!r}; expected two whole numbers, such as {hookspecs.API_VERSION}"
        )
    ours = f"this server (tritonpy {__version__}) has {version_text(hookspecs.API_VERSION)}"
    if stated > hookspecs.API_VERSION:
        return (
            f"it needs version {version_text(stated)} of the plugin interface, and {ours}: upgrade tritonpy, "
            f"or install an older {distribution or 'version of the plugin'}"
        )
    if stated[0] < hookspecs.API_VERSION[0]:
        return (
            f"it was written for version {version_text(stated)} of the plugin interface, and {ours}, in "
            f"which hooks are gone or different: upgrade {distribution or 'the plugin'}, or install an older "
            f"tritonpy"
        )
    return ""


def import_fault(entry: EntryPoint, distribution: str, error: BaseException) -> str:
    """Why an entry point cannot be loaded.

    Args:
        entry: is `name = module` or `name = module:object`.
        distribution: offers it.
        error: was raised by `entry.load()`.
    """
    where = f"entry point '{entry.name} = {entry.value}' of {distribution or 'a distribution without a name'}"
    if entry.pattern.match(entry.value) is None:
        return f"{where} cannot be read; expected a module, or module:object"
    if isinstance(error, ModuleNotFoundError) and f"{entry.module}.".startswith(f"{error.name}."):
        return f"{where} names a module that is not there: {error}"
    if isinstance(error, AttributeError) and (lacking := _lacking(entry)):
        return f"{where} names an object that is not there: {lacking}"
    if isinstance(error, ImportError) and error.name == _DOOR:
        return (
            f"{where} cannot be imported: {error.msg}. The plugin interface of this server (tritonpy "
            f"{__version__}) is {version_text(hookspecs.API_VERSION)}: upgrade tritonpy, or install a "
            f"version of {distribution or 'the plugin'} that was written for it"
        )
    return f"{exception_text(error)} ({where})"


def hook_faults(manager: pluggy.PluginManager, plugin: object, homes: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with the hooks of a plugin.

    Args:
        manager: knows the hooks of the plugin's kind.
        plugin: is not registered yet.
        homes: the kind of every hook there is, by the hook's name.
    """
    specs = {name: caller.spec for name, caller in vars(manager.hook).items() if caller.spec is not None}
    marked = {}
    # Of a module what it holds, as `getattr_static` says too, which takes a hundred times as long.
    held = vars(plugin) if type(plugin) is types.ModuleType else None
    for attribute in dir(plugin):
        static = held.get(attribute) if held is not None else inspect.getattr_static(plugin, attribute, None)
        if not isinstance(static, (staticmethod, classmethod)) and not inspect.isroutine(static):
            continue
        function = getattr(plugin, attribute)
        options = getattr(function, _MARK, None)
        if isinstance(options, dict):
            marked[attribute] = options.get("specname") or attribute
            yield from _function_faults(marked[attribute], function, static, options, plugin, specs, homes)
    for hook in sorted(specs.keys() - marked.keys() - set(marked.values())):
        if inspect.isroutine(getattr(plugin, hook, None)):
            yield f"function '{hook}' is called like a hook and not marked with @hookimpl"


def missing_hooks(kind: str, bind: Callable[[str], object | None], plugin: object) -> str:
    """Which hooks a plugin cannot be without and does not have; "" if it has them.

    Args:
        kind: of the plugin.
        bind: gives a hook by its name, or None.
        plugin: where a function may have nearly the name.
    """
    missing = [hook for hook in REQUIRED_HOOKS[kind] if bind(hook) is None]
    if not missing:
        return ""
    functions = [name for name in dir(plugin) if inspect.isroutine(getattr(plugin, name, None))]
    close = get_close_matches(missing[0], functions, 1, 0.8)
    meant = f"; is its function '{close[0]}' meant to be '{missing[0]}'?" if close else ""
    return f"it does not implement {', '.join(missing)}{meant}"


def deprecations(manager: pluggy.PluginManager, plugin: object) -> list[str]:
    """What a registered plugin implements and will not be asked for some day, in the words of the specs."""
    found = []
    for caller in manager.get_hookcallers(plugin) or ():
        for impl in caller.get_hookimpls():
            if impl.plugin is not plugin or caller.spec is None:
                continue
            warnings = [caller.spec.warn_on_impl]
            by_argument = caller.spec.warn_on_impl_args or {}
            warnings += [by_argument.get(argument) for argument in impl.argnames]
            found += [f"hook '{caller.name}': {warning}" for warning in warnings if warning is not None]
    return sorted(found)


def _function_faults(
    hook: str,
    function: Callable[..., object],
    static: object,
    options: Mapping[str, Any],  # Any: pluggy's
    plugin: object,
    specs: Mapping[str, Any],  # Any: pluggy's HookSpec
    homes: Mapping[str, str],
) -> Iterator[str]:
    where = _place(function)
    spec = specs.get(hook)
    if spec is None:
        if not options.get("optionalhook"):
            yield f"unknown hook '{hook}'{where}{_meant(hook, specs)}{_at_home(hook, homes)}"
        return
    if inspect.isclass(plugin) and inspect.isfunction(static):
        yield (
            f"hook '{hook}'{where} is a method of the class {plugin.__name__}; expected an instance of it, "
            f"so let the entry point name one"
        )
        return
    first = next(iter(inspect.signature(static).parameters), "") if inspect.isfunction(static) else ""
    if inspect.ismethod(function) and first in spec.argnames:
        yield f"hook '{hook}'{where} has '{first}' where a method has 'self'; put 'self' before it"
        return
    yield from _argument_faults(hook, where, function, tuple(spec.argnames))
    is_wrapper = options.get("wrapper") or options.get("hookwrapper")
    plain = inspect.unwrap(function)
    if is_wrapper:
        return  # pluggy looks after those
    may_wait = "Awaitable" in str(inspect.signature(spec.function).return_annotation)
    if inspect.iscoroutinefunction(plain) and not may_wait:
        yield f"hook '{hook}'{where} is `async def`, and nothing awaits it; expected a plain function"
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        yield f"hook '{hook}'{where} has a `yield`, so calling it runs nothing; expected a plain function"


def _argument_faults(
    hook: str, where: str, function: Callable[..., object], given: Sequence[str]
) -> Iterator[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return  # of an extension module, say: pluggy passes nothing that it cannot see
    expected = f"it may take {', '.join(given)}" if given else "it takes none"
    for parameter in parameters:
        name = parameter.name
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            yield f"hook '{hook}'{where} has '{parameter}', which is never given anything; {expected}"
        elif parameter.kind is parameter.KEYWORD_ONLY:
            if name in given or parameter.default is parameter.empty:
                yield f"hook '{hook}'{where} has '{name}' behind a '*', where it is never given; {expected}"
        elif parameter.default is not parameter.empty:
            if name in given:
                yield f"hook '{hook}'{where} has a default for '{name}', which is never given then; remove it"
        elif name not in given:
            yield f"hook '{hook}'{where} has the argument '{name}'{_meant(name, given)}; {expected}"


def _meant(name: str, known: Sequence[str] | Mapping[str, object]) -> str:
    close = get_close_matches(name, list(known), 1)
    return f", did you mean '{close[0]}'?" if close else ""


def _at_home(hook: str, homes: Mapping[str, str]) -> str:
    return f"; it belongs to plugins of kind '{homes[hook]}'" if hook in homes else ""


def _place(function: Callable[..., object]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f" ({code.co_filename}, line {code.co_firstlineno})" if code else ""


def _lacking(entry: EntryPoint) -> str:
    found: object = sys.modules.get(entry.module)
    for name in entry.attr.split(".") if found is not None and entry.attr else ():
        if not hasattr(found, name):
            called = getattr(found, "__name__", type(found).__name__)
            return f"'{called}' has no '{name}'{_meant(name, dir(found))}"
        found = getattr(found, name)
    return ""
