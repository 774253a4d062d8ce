"""One model, one record: everything that the server knows of a model, and the changes of its state.

    versions     each LOADING, READY, UNLOADING or UNAVAILABLE, with the reason and what serves or leaves
    served       the files, fingerprint, configuration and agents that READY versions were loaded from
    ensemble     of a model that is made of others: its settled configuration, and what it is bound to
    refusal      the reason why not even a version was tried
    stale        the reason why what serves is not what lies in the repository
    due          the reload that waits for its turn

A version moves like this, and in no other way; what serves stays READY while its successor is loaded:

    new ── note_loading ──► LOADING ── switch ──► READY ── switch ──► UNLOADING ── left ──► UNAVAILABLE
                               ├── note_failed ──► UNAVAILABLE             ▲
                               └── note_leaving ───────────────────────────┘
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum

from tritonpy.handles import JsonObject
from tritonpy.lifecycle.loading.ensemble_load import SettledEnsemble
from tritonpy.lifecycle.prepared_model import PreparedModel
from tritonpy.model.model import LoadedModel
from tritonpy.repository.layout import ModelKey
from tritonpy.repository.repositories import FoundModel

UNLOADED = "unloaded"
"""The reason of a version that was taken out of service on request."""


class ModelState(StrEnum):
    """The states of the model repository extension."""

    UNKNOWN = "UNKNOWN"
    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


class Want(Enum):
    """The reason why models of a name are to be served."""

    NOT = "not wanted, or sent by a client: changes in the repositories are ignored"
    AS_STEP = "wanted by ensembles only"
    BY_NAME = "wanted for itself"


@dataclass(slots=True)
class VersionEntry:
    """One version of one model.

    Attributes:
        state: where it is in its life.
        reason: why it is UNAVAILABLE.
        model: takes its requests while it is READY.
        leaving: still answers the requests it has accepted while it is UNLOADING.
        is_excused: it is not wanted any more, so the server may be ready without it.
    """

    state: ModelState
    reason: str = ""
    model: LoadedModel | None = None
    leaving: LoadedModel | None = None
    is_excused: bool = False


@dataclass(frozen=True, slots=True)
class Binding:
    """Versions of an ensemble, and the models they were made of."""

    ensemble: SettledEnsemble
    models: Sequence[LoadedModel]
    loaded: Sequence[LoadedModel]


@dataclass(frozen=True, slots=True)
class DueReload:
    """A reload that waits for its turn, and where the model was seen last."""

    task: asyncio.Task[bool]
    found: FoundModel


class ModelRecord:
    """Everything that the server knows of one model; owned by the loop.

    Args:
        key: the model.
        named: the models of its name.

    Attributes:
        key: as given.
        named: as given.
        served: what its versions were loaded from; None for a model that is not served. For an ensemble also
            while it waits for models that it is made of.
        ensemble: its settled configuration while it is wanted, served or not; None for other models.
        binding: what the ensemble was bound to last.
        binding_failure: the reason why the ensemble cannot be served; "" if it can.
        refusal: the reason why it was refused before any version was tried; "" for none.
        due: the reload that waits for its turn.
    """

    def __init__(self, key: ModelKey, named: NamedModels) -> None:
        self.key = key
        self.named = named
        self.served: PreparedModel | None = None
        self.ensemble: SettledEnsemble | None = None
        self.binding: Binding | None = None
        self.binding_failure = ""
        self.refusal = ""
        self.due: DueReload | None = None
        self._versions: dict[int, VersionEntry] = {}
        self._stale = ""
        self._lacks_versions = False
        self._is_known = False
        self._is_gone = False
        self._is_claimed = False

    def __repr__(self) -> str:
        states = {version: str(entry.state) for version, entry in self._versions.items()}
        return f"<ModelRecord {self.key} {states}{self.refusal and f' refused: {self.refusal}'}>"

    # What it is.

    @property
    def is_known(self) -> bool:
        """True if it was ever tried or refused."""
        return self._is_known or self.ensemble is not None

    @property
    def is_claimed(self) -> bool:
        """True if it holds its name: from its first load on, failed or not, until it is unloaded."""
        return self._is_claimed

    @property
    def is_shown(self) -> bool:
        """True if the index lists it."""
        return bool(self.refusal or self._versions)

    @property
    def is_answered_for(self) -> bool:
        """True if requests for it fail for want of a version, and not of a model."""
        return bool(self._versions) or self._lacks_versions or self._is_gone

    @property
    def versions(self) -> Mapping[int, VersionEntry]:
        """Every known version."""
        return self._versions

    @property
    def models(self) -> list[LoadedModel]:
        """The versions that take requests, ascending."""
        return [entry.model for _, entry in sorted(self._versions.items()) if entry.model]

    @property
    def is_sent(self) -> bool:
        """True if the files that it is served from came with a load request."""
        return self.served is not None and not self.served.source.root

    @property
    def failure(self) -> str:
        """The reason why no version could be loaded; "" if none was tried, or one was unloaded."""
        return self.refusal or "".join(
            f"version {version} is at {entry.state} state: {entry.reason};"
            for version, entry in sorted(self._versions.items())
            if entry.state is ModelState.UNAVAILABLE and entry.reason != UNLOADED
        )

    def serves(self, found: FoundModel, config_override: str | None) -> bool:
        """True if what is served is what a load of `found` would give, and takes requests."""
        models = self.models
        return (
            self.served is not None
            and self.served.source.serves(found, config_override)
            and bool(models)
            and all(model.is_ready for model in models)
        )

    # What happens to it.

    def note_loading(self, version: int) -> None:
        """Load a version; one that serves goes on to serve meanwhile, and stays READY."""
        self._note(version, VersionEntry(ModelState.LOADING))
        if not self._is_claimed:
            self._is_claimed = True
            self.named.reindex()

    def note_failed(self, version: int, reason: str) -> None:
        """Record that a version could not be loaded; one that serves goes on to serve, and stays READY."""
        self._note(version, VersionEntry(ModelState.UNAVAILABLE, reason))

    def note_leaving(self, model: LoadedModel) -> None:
        """Take down again a version that was loaded but never served."""
        self._note(model.version, VersionEntry(ModelState.UNLOADING, leaving=model))

    def refuse(self, reason: str, *, lacks_versions: bool = False) -> None:
        """Record that the model was refused before any of its versions was tried.

        Args:
            reason: why.
            lacks_versions: that is the reason; clients get it instead of an error about an unknown model.
        """
        self._drop_closed()
        self.refusal = reason
        self._lacks_versions = self._lacks_versions or lacks_versions

    def note_stale(self, reason: str) -> None:
        """Record why what serves is not what lies in the repository; "" if it is."""
        self._stale = reason

    def forget(self) -> None:
        """Record that it lies in no repository any more: the rest goes when its last version is closed."""
        self._drop_closed()
        self.refusal = ""
        self._lacks_versions = False
        self._is_gone = True

    def excuse(self) -> None:
        """Record that it is not wanted any more: the server may be ready although it failed to load."""
        self.refusal = ""
        for entry in self._versions.values():
            entry.is_excused = entry.state is ModelState.UNAVAILABLE

    def switch(self, models: Sequence[LoadedModel]) -> list[LoadedModel]:
        """Serve these versions from now on and no others, in one step.

        Returns:
            The versions that served until now and do not go on. They answer what they have accepted; `left`
            is to be called for each when it is closed.
        """
        before = self.models
        if not models:
            self._is_claimed = False
            if not before:
                self.named.reindex()
                return []
        self._know()
        for version, entry in list(self._versions.items()):
            if entry.model is not None and entry.model not in models:
                self._versions[version] = VersionEntry(ModelState.UNLOADING, leaving=entry.model)
            elif entry.state is ModelState.UNAVAILABLE and entry.reason != UNLOADED and models:
                del self._versions[version]  # why it failed then says nothing about what is loaded now
        for model in models:
            self._versions[model.version] = VersionEntry(ModelState.READY, model=model)
        self._stale = ""
        if models:
            self.refusal = ""
            self._lacks_versions = False
            self._is_claimed = True
        self.named.reindex()
        return [model for model in before if model not in models]

    def left(self, model: LoadedModel) -> None:
        """Record that a version is closed which `switch` took out of service, or which never served."""
        entry = self._versions.get(model.version)
        if entry is not None and entry.leaving is model:  # else a newer load has its place
            if self._is_gone or self.refusal:
                del self._versions[model.version]
            else:
                self._versions[model.version] = VersionEntry(ModelState.UNAVAILABLE, UNLOADED)

    # Its entries in the index.

    def rows(self, *, ready: bool = False) -> Iterator[JsonObject]:
        """Its rows of the index: name, version, state and reason; only READY versions with `ready`."""
        if self.refusal and not ready:
            yield self._refusal_row()
        for version, entry in sorted(self._versions.items()):
            if not ready or entry.state is ModelState.READY:
                yield self._row(version, entry, entry.reason if entry.model is None else self._stale)

    def unready_rows(self) -> Iterator[JsonObject]:
        """Rows of versions that neither serve nor were unloaded on purpose."""
        if self.refusal:
            yield self._refusal_row()
        for version, entry in self._versions.items():
            model = entry.model
            is_out = entry.is_excused or entry.reason == UNLOADED
            if not (model.is_ready if model is not None else is_out):
                yield self._row(version, entry, entry.reason if model is None else model.down_reason)

    def _row(self, version: int, entry: VersionEntry, reason: str) -> JsonObject:
        row: JsonObject = {"name": self.key.name, "version": str(version), "state": str(entry.state)}
        return {**row, "reason": reason} if reason else row

    def _refusal_row(self) -> JsonObject:
        return {"name": self.key.name, "state": str(ModelState.UNAVAILABLE), "reason": self.refusal}

    def _know(self) -> None:
        self._is_known = True
        self._is_gone = False

    def _drop_closed(self) -> None:
        self._know()
        for version in [v for v, entry in self._versions.items() if not (entry.model or entry.leaving)]:
            del self._versions[version]

    def _note(self, version: int, entry: VersionEntry) -> None:
        self._know()
        self.refusal = ""  # it has come further now
        present = self._versions.get(version)
        if present is None or present.model is None:
            self._versions[version] = entry


class NamedModels:
    """The models of one name: one at most, or with namespaces one for each repository; owned by the loop.

    A name that more than one of them lays claim to says nothing: requests are refused, rather than answered
    by the one that has loaded.

    Attributes:
        name: of all of them.
        want: why they are to be served.
        lock: held while any of them is loaded or unloaded; first come, first served.
        records: by key.
        ready: the versions that requests find, by number as text; "" is the newest.
        awaited: names of models that loads of this one wait for.
        user_count: how many hold the lock or wait for it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.want = Want.NOT
        self.lock = asyncio.Lock()
        self.records: dict[ModelKey, ModelRecord] = {}
        self.ready: dict[str, LoadedModel] = {}
        self.awaited: list[str] = []
        self.user_count = 0

    @property
    def is_busy(self) -> bool:
        """True while a load or an unload is under way, or waits for one."""
        return self.user_count > 0

    @property
    def is_wanted(self) -> bool:
        """True if changes in the repositories concern it."""
        return self.want is not Want.NOT

    @property
    def known(self) -> list[ModelRecord]:
        """Those that were ever tried or refused."""
        return [record for record in self.records.values() if record.is_known]

    @property
    def claimed(self) -> list[ModelRecord]:
        """Those that lay claim to the name."""
        return [record for record in self.records.values() if record.is_claimed]

    def want_by_name(self, *, only_implied: bool = False) -> None:
        """Want it for itself, if it is not wanted, or with `only_implied` if it is wanted by ensembles."""
        if self.want is (Want.AS_STEP if only_implied else Want.NOT):
            self.want = Want.BY_NAME

    def reindex(self) -> None:
        """Bring `ready` up to date."""
        claimed = self.claimed
        models = claimed[0].models if len(claimed) == 1 else []
        self.ready = {model.version_text: model for model in models}
        if models:
            self.ready[""] = models[-1]
