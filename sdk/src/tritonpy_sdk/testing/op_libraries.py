"""A plugin with custom operators, asked as a server asks it, for a model that is never loaded."""

from __future__ import annotations

import copy
import os
import sys
from pathlib import Path

from tritonpy.handles import Backend, JsonObject, Model
from tritonpy.lifecycle.loading.op_plugins import OpPlugins
from tritonpy.plugin_manager import PluginManager
from tritonpy.repository.layout import read_model

_MODULES = {"pytorch": "torch", "tensorflow": "tensorflow"}
_UNKNOWN = "a framework of tomorrow"


def ask_op_libraries(
    plugin: str | object,
    framework: str,
    directory: str | os.PathLike[str],
    config: JsonObject | None = None,
) -> list[Path]:
    """The libraries that a plugin names for the newest version of a model.

    Example:
        >>> ask_op_libraries("xyz", "pytorch", "models/net")
        [PosixPath('/…/tritonpy_ops_xyz/lib/pytorch.so')]

    Args:
        plugin: the name of an installed plugin, or a plugin object.
        framework: `tensorflow` or `pytorch`.
        directory: the model's; its name is the model's.
        config: its configuration.

    Raises:
        TritonError: the load of such a model fails.
        AssertionError: the plugin breaks a rule of the hook: it imports the framework, changes the model,
            answers otherwise when it is asked again, or names libraries for a framework that it cannot know.
    """
    plugins = op_plugins_of(plugin)
    path = Path(directory).absolute()
    model = Model(path.name, max(read_model(path).versions), config or {}, path, Backend(framework))
    before, module = copy.deepcopy(model), _MODULES.get(framework, "")
    was_imported = module in sys.modules

    named = [library.path for library in plugins.libraries_of(framework, model)]

    assert was_imported or module not in sys.modules, f"the plugin imports '{module}' in the server's process"
    assert model == before, f"the plugin changed the model: {model}, it was {before}"
    again = [library.path for library in plugins.libraries_of(framework, model)]
    assert again == named, f"asked again, the plugin names {again}; it named {named}"
    unknown = plugins.libraries_of(_UNKNOWN, model)
    assert not unknown, f"the plugin names libraries for '{_UNKNOWN}': {[each.path for each in unknown]}"
    return named


def op_plugins_of(plugin: str | object) -> OpPlugins:
    """What asks one plugin and no other; see `ask_op_libraries`."""
    installed = PluginManager("op_libraries", discover=isinstance(plugin, str))
    if isinstance(plugin, str):
        others = [name for name in installed.names() if name != plugin]
        installed = PluginManager("op_libraries", disabled=others)
        installed.load(plugin)
    else:
        installed.register("plugin under test", plugin)
    return OpPlugins(installed)
