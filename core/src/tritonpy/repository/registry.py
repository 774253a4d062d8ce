"""All models the server knows: the loaded ones, and why the others are not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tritonpy.errors import InvalidArg, NotFound, TritonError, Unavailable
from tritonpy.handles import JsonObject
from tritonpy.model.model import LoadedModel

_HIGHEST_VERSION = 2**63 - 1


class ModelState(StrEnum):
    """The states of the model repository extension."""

    UNKNOWN = "UNKNOWN"
    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(slots=True)
class VersionEntry:
    """One version of one model.

    Attributes:
        state: where it is in its life.
        reason: why it is UNAVAILABLE.
        model: what takes its requests while it is READY.
    """

    state: ModelState
    reason: str = ""
    model: LoadedModel | None = None


class ModelRegistry:
    """Finds models by name and version; owned by the loop.

    Attributes:
        refusals: why a model was refused before any version was tried; the index has no place for it.
    """

    def __init__(self) -> None:
        self._entries: dict[str, dict[int, VersionEntry]] = {}
        self._by_text: dict[tuple[str, str], LoadedModel] = {}
        self.refusals: dict[str, str] = {}

    def set_state(self, name: str, version: int, state: ModelState, reason: str = "") -> None:
        """Note where a version that takes no requests is in its life."""
        self._entries.setdefault(name, {})[version] = VersionEntry(state, reason)
        self._reindex(name)

    def refuse(self, name: str, reason: str) -> None:
        """Note a model that was refused before any of its versions was tried."""
        self._entries.setdefault(name, {})
        self.refusals[name] = reason

    def add(self, model: LoadedModel) -> None:
        """Serve a loaded model version from now on."""
        entry = VersionEntry(ModelState.READY, "", model)
        self._entries.setdefault(model.name, {})[model.version] = entry
        self._reindex(model.name)

    def remove(self, model: LoadedModel) -> None:
        """Serve a version no more; requests it has accepted are its own to finish."""
        self.set_state(model.name, model.version, ModelState.UNAVAILABLE, "unloaded")

    def find(self, name: str, version: str = "") -> LoadedModel:
        """The model version a client means; "" is the newest ready one.

        Raises:
            NotFound, Unavailable, InvalidArg: in Triton's words.
        """
        model = self._by_text.get((name, version))
        if model is None:
            raise self._why_not(name, version)
        return model

    def _why_not(self, name: str, version: str) -> TritonError:
        number = _parse_version(version) if version else None
        versions = self._entries.get(name)
        if versions is None:
            return NotFound(f"Request for unknown model: '{name}' is not found")
        if number is None:
            return NotFound(f"Request for unknown model: '{name}' has no available versions")
        entry = versions.get(number)
        if entry is None:
            return NotFound(f"Request for unknown model: '{name}' version {number} is not found")
        if entry.model is not None:  # written differently, such as "01"
            return Unavailable(f"Request for unknown model: '{name}' version {number} is not at ready state")
        return Unavailable(f"Request for unknown model: '{name}' version {number} is not at ready state")

    def _reindex(self, name: str) -> None:
        for key in [key for key in self._by_text if key[0] == name]:
            del self._by_text[key]
        models = self.versions_of(name)
        for model in models:
            self._by_text[name, model.version_text] = model
        if models:
            self._by_text[name, ""] = models[-1]

    def versions_of(self, name: str) -> list[LoadedModel]:
        """The loaded versions of a model, ascending."""
        return [entry.model for _, entry in sorted(self._entries.get(name, {}).items()) if entry.model]

    def ready_versions(self, name: str) -> list[int]:
        """The version numbers that take requests, ascending."""
        return [model.version for model in self.versions_of(name)]

    def all_models(self) -> list[LoadedModel]:
        """Every loaded model version, by name and version."""
        return [model for name in sorted(self._entries) for model in self.versions_of(name)]

    def is_fully_ready(self) -> bool:
        """Whether every known version serves or was unloaded on purpose."""
        return all(
            entry.model.is_ready if entry.model is not None else entry.reason == "unloaded"
            for versions in self._entries.values()
            for entry in versions.values()
        ) and all(self._entries.values())

    def index(self, ready: bool = False) -> list[JsonObject]:
        """Name, version, state and reason of everything known."""
        rows: list[JsonObject] = []
        for name, versions in sorted(self._entries.items()):
            if not versions and not ready:
                rows.append({"name": name})
            for version, entry in sorted(versions.items()):
                if ready and entry.state is not ModelState.READY:
                    continue
                row: JsonObject = {"name": name, "version": str(version), "state": str(entry.state)}
                if entry.reason:
                    row["reason"] = entry.reason
                rows.append(row)
        return rows


def _parse_version(version: str) -> int:
    if not version.isascii() or not version.isdigit() or int(version) > _HIGHEST_VERSION:
        raise InvalidArg(
            f"failed to get model version from specified version string '{version}' (details: stol), version "
            f"should be an integral value > 0"
        )
    return int(version)
