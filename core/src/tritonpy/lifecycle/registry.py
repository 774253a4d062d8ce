"""All models the server knows: the loaded ones, and why the others are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tritonpy.errors import InvalidArg, NotFound, TritonError, Unavailable
from tritonpy.handles import JsonObject
from tritonpy.lifecycle.turns import NOT_READY
from tritonpy.model.model import LoadedModel
from tritonpy.repository.key import ModelKey

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
        is_excused: nobody wants it any more, so the server may be ready without it.
    """

    state: ModelState
    reason: str = ""
    model: LoadedModel | None = None
    leaving: LoadedModel | None = None
    is_excused: bool = False


class ModelRegistry:
    """Finds models by name and version; owned by the loop.

    With namespaces several models may have one name. A name that more than one of them lays claim to says
    nothing: requests are refused, rather than answered by whichever has loaded. A model claims its name from
    its first load on, also a failed one, until it is unloaded.

    Attributes:
        refusals: why a model was refused before any version was tried.
        failure: why the server serves no model at all, whatever it is asked for; None if it does.
    """

    def __init__(self) -> None:
        self._entries: dict[ModelKey, dict[int, VersionEntry]] = {}
        self._keys: dict[str, list[ModelKey]] = {}
        self._by_text: dict[tuple[str, str], LoadedModel] = {}
        self._claims: set[ModelKey] = set()
        self._without_versions: set[ModelKey] = set()
        self.refusals: dict[ModelKey, str] = {}
        self.failure: TritonError | None = None
        self._stale: dict[ModelKey, str] = {}
        self._gone: set[ModelKey] = set()

    def note_loading(self, key: ModelKey, version: int) -> None:
        """A version is being loaded; one that serves goes on to serve meanwhile, and stays READY."""
        self._note(key, version, VersionEntry(ModelState.LOADING))
        if key not in self._claims:
            self._claims.add(key)
            self._reindex(key.name)

    def note_failed(self, key: ModelKey, version: int, reason: str) -> None:
        """A version could not be loaded; one that serves goes on to serve, and stays READY."""
        self._note(key, version, VersionEntry(ModelState.UNAVAILABLE, reason))

    def note_leaving(self, key: ModelKey, model: LoadedModel) -> None:
        """A version that was loaded but never served is taken down again."""
        self._note(key, model.version, VersionEntry(ModelState.UNLOADING, leaving=model))

    def refuse(self, key: ModelKey, reason: str, *, has_versions: bool = True) -> None:
        """Note a model that was refused before any of its versions was tried.

        Args:
            key: the model.
            reason: why.
            has_versions: False if that is the reason; clients are told so, not that there is no such model.
        """
        self._drop_closed(key)
        self.refusals[key] = reason
        if not has_versions:
            self._without_versions.add(key)

    def note_stale(self, key: ModelKey, reason: str) -> None:
        """What serves is not what lies in the repository, because that could not be loaded; "" if it is."""
        self._stale[key] = reason

    def forget(self, key: ModelKey) -> None:
        """A model lies in no repository any more: what is left of it goes when its last version is closed."""
        self._drop_closed(key)
        self.refusals.pop(key, None)
        self._without_versions.discard(key)
        self._gone.add(key)

    def excuse(self, key: ModelKey) -> None:
        """Nobody wants a model any more; that it failed to load is in nobody's way."""
        self.refusals.pop(key, None)
        for entry in self._entries.get(key, {}).values():
            entry.is_excused = entry.state is ModelState.UNAVAILABLE

    def switch(self, key: ModelKey, models: Sequence[LoadedModel]) -> list[LoadedModel]:
        """Serve these versions of a model from now on and no others, in one step.

        Returns:
            The versions that served until now and do not go on. What they have accepted is theirs to answer;
            `left` is to be called for each when it is closed.
        """
        before = self.versions_of(key)
        if not models:
            self._claims.discard(key)
            if not before:
                self._reindex(key.name)
                return []
        entries = self._entries_of(key)
        for version, entry in list(entries.items()):
            if entry.model is not None and entry.model not in models:
                entries[version] = VersionEntry(ModelState.UNLOADING, leaving=entry.model)
            elif entry.state is ModelState.UNAVAILABLE and entry.reason != UNLOADED and models:
                del entries[version]  # why it failed then says nothing about what is loaded now
        for model in models:
            entries[model.version] = VersionEntry(ModelState.READY, model=model)
        self._stale.pop(key, None)
        if models:
            self.refusals.pop(key, None)
            self._without_versions.discard(key)
            self._claims.add(key)
        self._reindex(key.name)
        return [model for model in before if model not in models]

    def left(self, key: ModelKey, model: LoadedModel) -> None:
        """A version that `switch` took out of service, or that never served, is closed."""
        entries = self._entries[key]
        entry = entries.get(model.version)
        if entry is not None and entry.leaving is model:  # else a newer load has its place
            if key in self._gone or key in self.refusals:
                del entries[model.version]
            else:
                entries[model.version] = VersionEntry(ModelState.UNAVAILABLE, UNLOADED)

    def _drop_closed(self, key: ModelKey) -> None:
        entries = self._entries_of(key)
        for version in [version for version, entry in entries.items() if not (entry.model or entry.leaving)]:
            del entries[version]

    def _entries_of(self, key: ModelKey) -> dict[int, VersionEntry]:
        self._gone.discard(key)
        entries = self._entries.get(key)
        if entries is None:
            entries = self._entries[key] = {}
            self._keys.setdefault(key.name, []).append(key)
        return entries

    def _note(self, key: ModelKey, version: int, entry: VersionEntry) -> None:
        entries = self._entries_of(key)
        self.refusals.pop(key, None)  # it has come further now
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

    def check_failure(self) -> None:
        """Refuse what has to do with models where none is served.

        Raises:
            Unavailable: in Triton's words.
        """
        if self.failure is not None:
            raise Unavailable(NOT_READY)

    def _why_not(self, name: str, number: int | None) -> TritonError:
        self.check_failure()
        ambiguity = self.ambiguity_of(name)
        if ambiguity:
            return InvalidArg(ambiguity)
        keys = [key for key in self.keys_of(name) if self._is_known(key)]
        if not keys:
            return NotFound(f"Request for unknown model: '{name}' is not found")
        if number is None:
            return NotFound(f"Request for unknown model: '{name}' has no available versions")
        if not any(number in self._entries[key] for key in keys):
            return NotFound(f"Request for unknown model: '{name}' version {number} is not found")
        return Unavailable(f"Request for unknown model: '{name}' version {number} is not at ready state")

    def _is_known(self, key: ModelKey) -> bool:
        return bool(self._entries[key]) or key in self._without_versions or key in self._gone

    def ambiguity_of(self, name: str) -> str:
        """Why a name does not say which model is meant, in Triton's words; "" when it does."""
        count = len(self._claimed(name))
        if count < 2:
            return ""
        return (
            f"There are {count} identifiers of model '{name}' in global map, model namespace must be "
            f"provided to resolve ambiguity."
        )

    def _claimed(self, name: str) -> list[ModelKey]:
        return [key for key in self.keys_of(name) if key in self._claims]

    def _reindex(self, name: str) -> None:
        for text in [text for text in self._by_text if text[0] == name]:
            del self._by_text[text]
        claimed = self._claimed(name)
        models = self.versions_of(claimed[0]) if len(claimed) == 1 else []
        for model in models:
            self._by_text[name, model.version_text] = model
        if models:
            self._by_text[name, ""] = models[-1]

    def failure_of(self, key: ModelKey) -> str:
        """Why no version of a model could be loaded; "" if none was tried, or one was unloaded."""
        if key in self.refusals:
            return self.refusals[key]
        return "".join(
            f"version {version} is at {entry.state} state: {entry.reason};"
            for version, entry in sorted(self._entries.get(key, {}).items())
            if entry.state is ModelState.UNAVAILABLE and entry.reason != UNLOADED
        )

    def keys_of(self, name: str) -> list[ModelKey]:
        """The models known under a name: at most one without namespacing."""
        return list(self._keys.get(name, ()))

    def versions_of(self, key: ModelKey) -> list[LoadedModel]:
        """The loaded versions of a model, ascending."""
        return [entry.model for _, entry in sorted(self._entries.get(key, {}).items()) if entry.model]

    def loaded_as(self, name: str) -> list[LoadedModel]:
        """Every loaded version of a name, ascending within each model of that name."""
        return [model for key in sorted(self.keys_of(name)) for model in self.versions_of(key)]

    def ready_versions(self, name: str) -> list[int]:
        """The version numbers that take requests, ascending."""
        return [model.version for model in self.loaded_as(name)]

    def all_models(self) -> list[LoadedModel]:
        """Every loaded model version, by name and version."""
        return [model for _, model in self.all_keyed()]

    def all_keyed(self) -> list[tuple[ModelKey, LoadedModel]]:
        """Every loaded model version with what tells its model from others of its name."""
        return [(key, model) for key in sorted(self._entries) for model in self.versions_of(key)]

    def unready(self) -> Iterator[JsonObject]:
        """Rows as in the index, of every known version that neither serves nor was unloaded on purpose."""
        for key, versions in sorted(self._entries.items()):
            if key in self.refusals:
                yield self._refusal_row(key)
            for version, entry in versions.items():
                model = entry.model
                is_out = entry.is_excused or entry.reason == UNLOADED
                if not (model.is_ready if model is not None else is_out):
                    row: JsonObject = {"name": key.name, "version": str(version), "state": str(entry.state)}
                    reason = entry.reason if model is None else model.down_reason
                    yield {**row, "reason": reason} if reason else row

    def shows(self, key: ModelKey) -> bool:
        """Whether the index tells of a model."""
        return key in self.refusals or bool(self._entries.get(key))

    def index(self, ready: bool = False) -> list[JsonObject]:
        """Name, version, state and reason of everything known."""
        rows: list[JsonObject] = []
        for key, versions in sorted(self._entries.items()):
            if key in self.refusals and not ready:
                rows.append(self._refusal_row(key))
            for version, entry in sorted(versions.items()):
                if ready and entry.state is not ModelState.READY:
                    continue
                row: JsonObject = {"name": key.name, "version": str(version), "state": str(entry.state)}
                reason = entry.reason if entry.model is None else self._stale.get(key, "")
                if reason:
                    row["reason"] = reason
                rows.append(row)
        return rows

    def _refusal_row(self, key: ModelKey) -> JsonObject:
        return {"name": key.name, "state": str(ModelState.UNAVAILABLE), "reason": self.refusals[key]}


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
