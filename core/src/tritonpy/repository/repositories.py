"""All repositories of a server as one: which models lie where, and which names are taken twice."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from tritonpy.errors import ErrorCode, InvalidArg, NotFound, TritonError
from tritonpy.fingerprint import Fingerprint
from tritonpy.repository.layout import ModelKey, check_model_name
from tritonpy.repository.stores.local import LocalStore
from tritonpy.store import Store

_log = logging.getLogger("tritonpy.repository")


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model as it was seen in a repository; none of its files has been read yet.

    Attributes:
        key: its name, and with namespacing its repository.
        store: where it lies.
        fingerprint: its files at that moment.
    """

    key: ModelKey
    store: Store
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True)
class Look:
    """All repositories as they were seen at one moment.

    Attributes:
        found: the models.
        refused: by name, why a model that lies there is none that can be served.
        unread: by root, why a repository could not be looked at; nothing is known of its models.
    """

    found: Mapping[ModelKey, FoundModel]
    refused: Mapping[str, str]
    unread: Mapping[str, TritonError]


class Repositories:
    """The repositories of a server. All calls block: they are made on threads.

    Args:
        roots: the repositories, as named on the command line; there are none before `open`.
        namespacing: models of equal names in several repositories are different models.
        open_store: makes the store of a root; may block.
    """

    def __init__(
        self,
        roots: Sequence[str],
        *,
        namespacing: bool = False,
        open_store: Callable[[str], Store] = LocalStore,
    ) -> None:
        self._roots = roots
        self._open_store = open_store
        self._stores: list[Store] = []
        self._namespacing = namespacing

    def open(self) -> Self:
        """Open the stores, once; those before one that fails are left to `close`.

        Raises:
            TritonError: a root cannot be opened.
        """
        for root in self._roots:
            self._stores.append(self._open_store(root))
        return self

    def listed(self) -> dict[ModelKey, str]:
        """All models with the reason why one cannot be served, as far as names tell, or "".

        A repository that cannot be read is named in the log.
        """
        lying, unread = self._list()
        for root, error in unread.items():
            _log.error("failed to list model repository '%s': %s", root, error)
        return {
            self._key(name, store): self._objection(places)
            for name, places in lying.items()
            for store in places.values()
        }

    def find(self, name: str) -> list[FoundModel]:
        """The model of this name; with namespacing, one for each repository that has it.

        Raises:
            InvalidArg: this cannot be a model's name, or several repositories have it without namespacing.
            NotFound: no repository has it.
            Internal, Unavailable: a repository cannot be read.
        """
        check_model_name(name)
        places: dict[str, FoundModel] = {}
        for store in self._stores:
            fingerprint = store.look(name)
            if fingerprint is not None:
                places.setdefault(store.place_of(name), self._found(name, store, fingerprint))
        if not places:
            raise NotFound(f"model '{name}' not found in any model repository")
        if len(places) > 1 and not self._namespacing:
            raise InvalidArg(
                f"model '{name}' is not unique across all model repositories: {' and '.join(places)} "
                f"(--model-namespacing=true serves both)"
            )
        return list(places.values())

    def look(self) -> Look:
        """See all models of all repositories."""
        lying, unread = self._list()
        found: dict[ModelKey, FoundModel] = {}
        refused: dict[str, str] = {}
        unreachable: set[str] = set()
        for name, places in lying.items():
            if objection := self._objection(places):
                refused[name] = objection
                continue
            for store in places.values():
                if store.root in unreachable:  # each question would take as long as the first
                    continue
                try:
                    fingerprint = store.look(name)
                except TritonError as error:
                    unread[store.root] = error
                    if error.code is ErrorCode.UNAVAILABLE:
                        unreachable.add(store.root)
                    continue
                if fingerprint is not None:  # else it has gone meanwhile
                    model = self._found(name, store, fingerprint)
                    found[model.key] = model
        return Look(found, refused, unread)

    def stop(self) -> None:
        """Give up what is being looked at and fetched, and begin nothing more; does not wait."""
        for store in self._stores:
            store.stop()

    def close(self) -> None:
        """Leave no copies of models on the disk; none of them is loaded any more."""
        for store in self._stores:
            store.close()

    def check(self) -> None:
        """Check that all repositories are there.

        Raises:
            Internal, InvalidArg, Unavailable: the first that does not exist, is no directory, or cannot be
                reached.
        """
        for store in self._stores:
            store.model_names()

    def _list(self) -> tuple[dict[str, dict[str, Store]], dict[str, TritonError]]:
        """Stores by place by name, and why others cannot be read by root."""
        lying: dict[str, dict[str, Store]] = {}
        unread: dict[str, TritonError] = {}
        for store in self._stores:
            try:
                names = store.model_names()
            except TritonError as error:
                unread[store.root] = error
                continue
            for name in names:
                lying.setdefault(name, {}).setdefault(store.place_of(name), store)
        return lying, unread

    def _objection(self, places: Mapping[str, Store]) -> str:
        if len(places) < 2 or self._namespacing:
            return ""
        return f"model appears in two or more repositories: {' and '.join(places)}"

    def _found(self, name: str, store: Store, fingerprint: Fingerprint) -> FoundModel:
        return FoundModel(self._key(name, store), store, fingerprint)

    def _key(self, name: str, store: Store) -> ModelKey:
        return ModelKey(name, store.root if self._namespacing else "")
