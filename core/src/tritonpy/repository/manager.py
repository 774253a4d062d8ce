"""Loads what the repositories hold, and takes everything down at the end."""

from __future__ import annotations

import asyncio
import logging

from tritonpy.config.schema import ModelConfig
from tritonpy.config.versions import missing_versions, select_versions
from tritonpy.errors import TritonError, Unavailable
from tritonpy.model.model import LoadedModel
from tritonpy.repository.layout import ModelDirectory, read_repositories, require_versions
from tritonpy.repository.loader import ModelLoader
from tritonpy.repository.registry import ModelRegistry, ModelState
from tritonpy.repository.settle import read_config

_log = logging.getLogger("tritonpy.repository")

_MOST_LOADS_AT_ONCE = 4


class RepositoryManager:
    """Control mode *none*: everything is loaded at start and stays.

    Args:
        roots: the repositories.
        loader: loads model versions.
        registry: where loaded versions, and reasons for the others, are kept.
        auto_complete_config: a model may do without a configuration file.
    """

    def __init__(
        self,
        roots: tuple[str, ...],
        loader: ModelLoader,
        registry: ModelRegistry,
        *,
        auto_complete_config: bool,
    ) -> None:
        self._roots = roots
        self._loader = loader
        self._registry = registry
        self._auto_complete_config = auto_complete_config

    async def load_all(self) -> bool:
        """Load every model of every repository; whether all of them could be loaded.

        Raises:
            NotFound: a repository does not exist.
        """
        directories, refused = await asyncio.to_thread(read_repositories, self._roots)
        for name, reason in refused.items():
            _log.error("failed to load '%s': %s", name, reason)
            self._registry.refuse(name, reason)
        gate = asyncio.Semaphore(_MOST_LOADS_AT_ONCE)

        async def load(directory: ModelDirectory) -> bool:
            async with gate:
                return await self._load(directory)

        loaded = await asyncio.gather(*map(load, directories))
        return all(loaded) and not refused

    async def unload_all(self) -> None:
        """Take down every loaded version; what still waits is answered UNAVAILABLE."""
        error = Unavailable(
            "Server is stopping, scheduler for model has stopped accepting new inference requests"
        )
        await asyncio.gather(*(model.close(error) for model in self._registry.all_models()))

    async def _load(self, directory: ModelDirectory) -> bool:
        try:
            must_exist = not self._auto_complete_config
            config = await asyncio.to_thread(read_config, directory, must_exist=must_exist)
            versions = select_versions(config, directory.versions)
            for version in missing_versions(config, directory.versions):
                _log.error(
                    "version %d is specified for model '%s', but the version directory is not present",
                    version,
                    directory.name,
                )
            require_versions(directory, versions)
        except (TritonError, OSError) as error:
            reason = error.described() if isinstance(error, TritonError) else str(error)
            _log.error("failed to load '%s': %s", directory.name, reason)
            self._registry.refuse(directory.name, reason)
            return False
        return await self._load_versions(directory, versions, config)

    async def _load_versions(
        self, directory: ModelDirectory, versions: list[int], config: ModelConfig
    ) -> bool:
        """All versions or none: a model that is half there would answer with the wrong version."""
        name = directory.name
        for version in versions:
            _log.info("loading: %s:%d", name, version)
            self._registry.set_state(name, version, ModelState.LOADING)
        results = await asyncio.gather(
            *(self._loader.load(directory, version, config) for version in versions), return_exceptions=True
        )
        models = [result for result in results if isinstance(result, LoadedModel)]
        if len(models) == len(versions):
            for model in models:
                self._registry.add(model)
                _log.info("successfully loaded '%s' version %d", name, model.version)
            return True
        for version, result in zip(versions, results, strict=True):
            if isinstance(result, LoadedModel):
                await result.close(Unavailable("another version of the model failed to load"))
                reason = "unloaded because another version of the model failed to load"
            else:
                reason = self._reason(name, version, result)
            self._registry.set_state(name, version, ModelState.UNAVAILABLE, reason)
        return False

    def _reason(self, name: str, version: int, error: BaseException) -> str:
        if isinstance(error, TritonError):
            reason = error.described()
            _log.error("failed to load '%s' version %d: %s", name, version, reason)
            return reason
        if not isinstance(error, Exception):
            raise error
        _log.error("failed to load '%s' version %d", name, version, exc_info=error)
        return f"Internal: {type(error).__name__}: {error}"
