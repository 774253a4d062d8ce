"""What backends may ask of the server beside inference; the questions with the prefix `server`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tritonpy.dataplane import Dataplane
from tritonpy.errors import Internal
from tritonpy.lifecycle.model_control import ModelControl, WorkerModelControl
from tritonpy.metrics.exposition import MetricsPage
from tritonpy.workers.worker_services import Caller


class ServerQuestions:
    """Answers with plain values, as they are in JSON; satisfies `Subject`.

    Args:
        dataplane: the server.
        control: unloads models.
        worker_control: loads them.
        page: its metrics.
    """

    def __init__(
        self,
        dataplane: Dataplane,
        control: ModelControl,
        worker_control: WorkerModelControl,
        page: MetricsPage,
    ) -> None:
        self._dataplane = dataplane
        self._worker_control = worker_control
        self._answers: dict[str, Callable[..., Any]] = {  # Any: see above
            "is_live": dataplane.is_live,
            "is_ready": dataplane.is_ready,
            "model_ready": dataplane.model_ready,
            "metadata": dataplane.server_metadata,
            "model_metadata": dataplane.model_metadata,
            "model_config": self._config,
            "model_version": self._version,
            "model_statistics": dataplane.model_statistics,
            "label": self._label,
            "index": dataplane.repository_index,
            "metrics": page.text,
            "unload_model": control.unload_soon,
        }

    async def ask(self, caller: Caller, what: str, args: tuple[Any, ...]) -> Any:  # Any: see above
        """See `Subject`."""
        if what == "load_model":
            await self._worker_control.load(caller, *args)
            return None
        answer = self._answers.get(what)
        if answer is None:
            known = sorted([*self._answers, "load_model"])
            raise Internal(f"this server does not answer 'server.{what}'; it knows {known}")
        value = answer(*args)
        return await value if hasattr(value, "__await__") else value

    def tell(self, caller: Caller, what: str, args: tuple[Any, ...]) -> None:  # Any: see above
        """See `Subject`; there is nothing to be told."""

    def caller_gone(self, caller: Caller) -> None:
        """See `Subject`; nothing is kept."""

    def _config(self, name: str, version: str = "") -> Any:  # Any: JSON
        return self._dataplane.find(name, version).config

    def _version(self, name: str, version: str = "") -> int:
        return int(self._dataplane.find(name, version).version)

    def _label(self, name: str, version: str, output: str, index: int) -> str | None:
        labels = self._dataplane.find(name, version).labels.get(output, ())
        return labels[index].decode(errors="replace") if index < len(labels) else None
