"""From where a model lies to what can be loaded: files on a local disk, and a configuration that was read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from tritonpy.config.files import check_config_name
from tritonpy.config.load import MAX_CONFIG_BYTE_SIZE
from tritonpy.config.schema import ModelConfig
from tritonpy.repository.settle import read_config
from tritonpy.repository.source import ModelSource


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A model that is ready to be loaded.

    Attributes:
        source: its files.
        config: its configuration, checked as far as it can be before its backend has seen it.
    """

    source: ModelSource
    config: ModelConfig

    async def discard(self) -> None:
        """Give up what was made for this load."""
        await asyncio.to_thread(self.source.remove)


class ModelPreparation:
    """Prepares models; on the loop, with everything that blocks on threads.

    Args:
        auto_complete_config: a model may do without a configuration file.
        config_name: models that have a configuration of this name are configured by it; "" for none.
        max_config_byte_size: how large a configuration may be.

    Raises:
        InvalidArg: `config_name` could lead out of the models' directories.
    """

    def __init__(
        self,
        *,
        auto_complete_config: bool,
        config_name: str = "",
        max_config_byte_size: int = MAX_CONFIG_BYTE_SIZE,
    ) -> None:
        if config_name:
            check_config_name(config_name)
        self._auto_complete_config = auto_complete_config
        self._config_name = config_name
        self._max_config_byte_size = max_config_byte_size

    async def prepare(self, fetch: Callable[[], ModelSource]) -> PreparedModel:
        """Get a model's files and read its configuration.

        Args:
            fetch: gets the files; blocking.

        Raises:
            TritonError, OSError: why the model cannot even be tried; nothing is left behind.
        """
        source = await _fetched(fetch)
        try:
            return PreparedModel(source, await self._read_config(source))
        except BaseException:
            await asyncio.to_thread(source.remove)
            raise

    async def _read_config(self, source: ModelSource) -> ModelConfig:
        return await asyncio.to_thread(
            read_config,
            source.directory,
            must_exist=not self._auto_complete_config,
            override=source.config_override,
            config_name=self._config_name,
            max_byte_size=self._max_config_byte_size,
        )


async def _fetched(fetch: Callable[[], ModelSource]) -> ModelSource:
    """`fetch` on a thread; cancelled, it leaves no directory behind."""
    fetching = asyncio.ensure_future(asyncio.to_thread(fetch))
    try:
        return await asyncio.shield(fetching)
    except asyncio.CancelledError:
        source = await fetching
        await asyncio.to_thread(source.remove)
        raise
