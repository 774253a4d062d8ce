"""All models the server knows: the loaded ones, and why the others are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tritonpy.errors import InvalidArg, NotFound, TritonError, Unavailable
from tritonpy.handles import JsonObject
from tritonpy.model.model import LoadedModel

UNLOADED = "unloaded"
"""The reason of a version that was taken out of service on request."""

_HIGHEST_VERSION = 2**63 - 1
_MOST_DIGITS = 19


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
        leaving: what still answers the requests it has accepted while it is UNLOADING.
    """

    state: ModelState
    reason: str = ""
    model: LoadedModel | None = None
    leaving: LoadedModel | None = None


class ModelRegistry:
    """Finds models by name and version; owned by the loop.

    Attributes:
        refusals: why a model was refused before any version was tried; the index has no place for it.
    """

    def __init__(self) -> None:
        self._entries: dict[str, dict[int, VersionEntry]] = {}
        self._by_text: dict[tuple[str, str], LoadedModel] = {}
        self.refusals: dict[str, str] = {}

    def note_loading(self, name: str, version: int) -> None:
        """A version is being loaded; one that serves goes on to serve meanwhile, and stays READY."""
        self._note(name, version, VersionEntry(ModelState.LOADING))

    def note_failed(self, name: str, version: int, reason: str) -> None:
        """A version could not be loaded; one that serves goes on to serve, and stays READY."""
        self._note(name, version, VersionEntry(ModelState.UNAVAILABLE, reason))

    def note_leaving(self, model: LoadedModel) -> None:
        """A version that was loaded but never served is taken down again."""
        self._note(model.name, model.version, VersionEntry(ModelState.UNLOADING, leaving=model))

    def refuse(self, name: str, reason: str) -> None:
        """Note a model that was refused before any of its versions was tried."""
        self._entries.setdefault(name, {})
        self.refusals[name] = reason

    def switch(self, name: str, models: Sequence[LoadedModel]) -> list[LoadedModel]:
        """Serve these versions of a model from now on and no others, in one step.

        Returns:
            The versions that served until now. What they have accepted is theirs to answer; `left` is to be
            called for each when it is closed.
        """
        before = self.versions_of(name)
        if not before and not models:
            return []
        entries = self._entries.setdefault(name, {})
        for version, entry in list(entries.items()):
            if entry.model is not None:
                entries[version] = VersionEntry(ModelState.UNLOADING, leaving=entry.model)
            elif entry.state is ModelState.UNAVAILABLE and entry.reason != UNLOADED and models:
                del entries[version]  # why it failed then says nothing about what is loaded now
        for model in models:
            entries[model.version] = VersionEntry(ModelState.READY, model=model)
        if models:
            self.refusals.pop(name, None)
        self._reindex(name)
        return before

    def left(self, model: LoadedModel) -> None:
        """A version that `switch` took out of service, or that never served, is closed."""
        entry = self._entries[model.name].get(model.version)
        if entry is not None and entry.leaving is model:  # else a newer load has its place
            self._entries[model.name][model.version] = VersionEntry(ModelState.UNAVAILABLE, UNLOADED)

    def _note(self, name: str, version: int, entry: VersionEntry) -> None:
        entries = self._entries.setdefault(name, {})
        present = entries.get(version)
        if present is None or present.model is None:
            entries[version] = entry

    def find(self, name: str, version: str = "") -> LoadedModel:
        """The model version a client means; "" is the newest ready one.

        Raises:
            NotFound, Unavailable, InvalidArg: in Triton's words.
        """
        model = self._by_text.get((name, version))
        if model is not None:
            return model
        number = _parse_version(version) if version else None
        if number is not None:  # perhaps written differently, such as "01"
            model = self._by_text.get((name, str(number)))
        if model is None:
            raise self._why_not(name, number)
        return model

    def _why_not(self, name: str, number: int | None) -> TritonError:
        versions = self._entries.get(name)
        if versions is None:
            return NotFound(f"Request for unknown model: '{name}' is not found")
        if number is None:
            return NotFound(f"Request for unknown model: '{name}' has no available versions")
        entry = versions.get(number)
        if entry is None:
            return NotFound(f"Request for unknown model: '{name}' version {number} is not found")
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

    def unready(self) -> Iterator[JsonObject]:
        """Rows as in the index, of every known version that neither serves nor was unloaded on purpose."""
        for name, versions in self._entries.items():
            if not versions:
                yield {"name": name, "reason": self.refusals.get(name, "")}
            for version, entry in versions.items():
                model = entry.model
                if not (model.is_ready if model is not None else entry.reason == UNLOADED):
                    row: JsonObject = {"name": name, "version": str(version), "state": str(entry.state)}
                    reason = entry.reason if model is None else model.down_reason
                    yield {**row, "reason": reason} if reason else row

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
    """The number that `version` is written as; only digits are one, where Triton also takes `1x` and ` 1`."""
    digits = version.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits.lstrip("0")) <= _MOST_DIGITS:
        number = int(digits)
        if number <= _HIGHEST_VERSION:
            if digits == version:
                return number
            raise InvalidArg(
                f"invalid model version specified '{version}' , version should be an integral value > 0"
            )
    raise InvalidArg(
        f"failed to get model version from specified version string '{version}' (details: stol), version "
        f"should be an integral value > 0"
    )
