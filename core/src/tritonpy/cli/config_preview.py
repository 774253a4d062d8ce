"""Preview of the configuration that a model gets when it is loaded, without serving the model."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Never

from prometheus_client import CollectorRegistry

from tritonpy.config.complete import normalize
from tritonpy.config.versions import select_versions
from tritonpy.config.write import config_to_dict
from tritonpy.errors import NotFound
from tritonpy.handles import JsonObject
from tritonpy.lifecycle.loading.loader import LoaderSettings, ModelLoader
from tritonpy.lifecycle.resolved_config import read_config
from tritonpy.metrics.server import ServerMetrics
from tritonpy.model.bridge import LoopBridge
from tritonpy.plugin_manager import PluginManager
from tritonpy.repository.layout import read_model, require_versions
from tritonpy.repository.stores.opener import secret_variables
from tritonpy.scheduler.strategy_finder import StrategyFinder
from tritonpy.secret_variables import keep_secret
from tritonpy.workers.calls import ServerAccess
from tritonpy.workers.worker_services import Services


def settled_preview(
    path: Path, settings: LoaderSettings, *, asks_backend: bool = True, config_name: str = ""
) -> JsonObject:
    """The configuration of the newest version that would be served, as the server's `/config` shows it.

    Args:
        path: the model's directory.
        settings: as for a server.
        asks_backend: let the backend complete it, as in a load: it may read the model's files, and a Python
            model's `auto_complete_config` runs. False only derives names and fills in defaults.
        config_name: which of several configurations; see `find_config`.

    Raises:
        TritonError: why the model could not be served.
    """
    directory = read_model(Path(os.path.abspath(path)))  # a link is a model of its own name, as for a server
    config = read_config(directory, is_strict=not settings.auto_complete_config, config_name=config_name)
    versions = select_versions(config, directory.versions)
    require_versions(directory, versions)
    if not asks_backend or config.HasField("ensemble_scheduling"):  # which has no backend
        normalize(config)
        return config_to_dict(config)

    keep_secret(secret_variables(PluginManager("stores")))

    async def settle() -> JsonObject:
        return await _loader(settings).settle(directory, versions[-1], config)

    return asyncio.run(settle())


def _loader(settings: LoaderSettings) -> ModelLoader:
    loaders = PluginManager("loaders")
    strategies = StrategyFinder(PluginManager("batching"), loaders, is_strict=False)
    return ModelLoader(
        PluginManager("backends"),
        strategies,
        settings,
        LoopBridge(asyncio.get_running_loop()),
        ServerMetrics(CollectorRegistry()),
        ServerAccess(_NoModels(), Services()),
        PluginManager("op_libraries"),
        loaders,
    )


class _NoModels:
    """There are no other models that a configuration's completion could call."""

    def find(self, name: str, version: str = "") -> Never:
        """Refuse."""
        raise NotFound(f"Request for unknown model: '{name}' is not found: no server runs")
