"""The records of all models, by name and version: what requests find, and what the index shows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from tritonpy.errors import InvalidArg, NotFound, TritonError, Unavailable
from tritonpy.handles import JsonObject
from tritonpy.lifecycle.record import ModelRecord, NamedModels
from tritonpy.model.model import LoadedModel
from tritonpy.repository.layout import ModelKey

NOT_READY = "Server not ready"
"""The answer to requests that come before the server has started, or while it stops."""

_HIGHEST_VERSION = 2**63 - 1
_MOST_DIGITS = 19


class ModelRegistry:
    """Finds models by name and version; owned by the loop.

    Attributes:
        failure: why the server serves no model at all; None if it does.
    """

    def __init__(self) -> None:
        self._names: dict[str, NamedModels] = {}
        self.failure: TritonError | None = None

    # For those that load and unload.

    def named(self, name: str) -> NamedModels:
        """The models of a name; made when it is first asked for."""
        named = self._names.get(name)
        if named is None:
            named = self._names[name] = NamedModels(name)
        return named

    def lookup(self, name: str) -> NamedModels | None:
        """The models of a name; None for one of which nothing is known."""
        return self._names.get(name)

    def record(self, key: ModelKey) -> ModelRecord:
        """The record of a model; made when it is first asked for, and kept for good."""
        named = self.named(key.name)
        record = named.records.get(key)
        if record is None:
            record = named.records[key] = ModelRecord(key, named)
        return record

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[NamedModels]:
        """Load or unload models of a name while inside; one after the other, first come, first served."""
        named = self.named(name)
        named.user_count += 1
        try:
            async with named.lock:
                yield named
        finally:
            named.user_count -= 1
            self._drop_unknown(named)

    def is_busy(self, name: str) -> bool:
        """True while models of a name are being loaded or unloaded, or are about to be."""
        named = self._names.get(name)
        return named is not None and named.is_busy

    @contextmanager
    def waiting(self, model: str, awaited: str) -> Iterator[None]:
        """Wait inside, with the load of `model`, for that of `awaited`.

        A model waits for another one when its `initialize` has asked for that one to be loaded, an ensemble
        for those it is made of.
        """
        named = self.named(model)
        named.user_count += 1
        named.awaited.append(awaited)
        try:
            yield
        finally:
            named.awaited.remove(awaited)
            named.user_count -= 1
            self._drop_unknown(named)

    def wait_chain(self, name: str, target: str) -> list[str]:
        """The names from `name` to `target`, each waiting for the next; empty if none leads there."""
        chains = [[name]]
        seen = {name}
        while chains:
            chain = chains.pop()
            if chain[-1] == target:
                return chain
            named = self._names.get(chain[-1])
            for awaited in named.awaited if named is not None else ():
                if awaited not in seen:
                    seen.add(awaited)
                    chains.append([*chain, awaited])
        return []

    def _drop_unknown(self, named: NamedModels) -> None:
        """Forget a name without models, such as one that a client made up."""
        if not (named.user_count or named.records or named.is_wanted):
            self._names.pop(named.name, None)

    # For requests.

    def find(self, name: str, version: str = "") -> LoadedModel:
        """The model version a client means; "" is the newest ready one.

        Raises:
            NotFound, Unavailable, InvalidArg: in Triton's words.
        """
        named = self._names.get(name)
        ready = named.ready if named is not None else {}
        model = ready.get(version)
        if model is not None:
            return model
        number = _parse_version(version) if version else None
        if number is not None:  # perhaps written differently, such as "01"
            model = ready.get(str(number))
        if model is None:
            raise self._why_not(name, number)
        return model

    def check_failure(self) -> None:
        """Refuse calls about models where none is served.

        Raises:
            Unavailable: in Triton's words.
        """
        if self.failure is not None:
            raise Unavailable(NOT_READY)

    def ambiguity_of(self, name: str) -> str:
        """The reason why a name does not say which model is meant, in Triton's words; "" when it does."""
        named = self._names.get(name)
        count = len(named.claimed) if named is not None else 0
        if count < 2:
            return ""
        return (
            f"There are {count} identifiers of model '{name}' in global map, model namespace must be "
            f"provided to resolve ambiguity."
        )

    def _why_not(self, name: str, number: int | None) -> TritonError:
        self.check_failure()
        ambiguity = self.ambiguity_of(name)
        if ambiguity:
            return InvalidArg(ambiguity)
        records = [record for record in self.records_of(name) if record.is_answered_for]
        if not records:
            return NotFound(f"Request for unknown model: '{name}' is not found")
        if number is None:
            return NotFound(f"Request for unknown model: '{name}' has no available versions")
        if not any(number in record.versions for record in records):
            return NotFound(f"Request for unknown model: '{name}' version {number} is not found")
        return Unavailable(f"Request for unknown model: '{name}' version {number} is not at ready state")

    # What there is.

    def records(self) -> list[ModelRecord]:
        """Every model that was ever tried or refused, in the order of their keys."""
        known = [record for named in self._names.values() for record in named.known]
        return sorted(known, key=lambda record: record.key)

    def records_of(self, name: str) -> list[ModelRecord]:
        """The models known under a name, in the order of their keys: at most one without namespacing."""
        named = self._names.get(name)
        return sorted(named.known, key=lambda record: record.key) if named is not None else []

    def loaded_as(self, name: str) -> list[LoadedModel]:
        """Every loaded version of a name, ascending within each model of that name."""
        return [model for record in self.records_of(name) for model in record.models]

    def ready_versions(self, name: str) -> list[int]:
        """The version numbers that take requests, ascending."""
        return [model.version for model in self.loaded_as(name)]

    def all_models(self) -> list[LoadedModel]:
        """Every loaded model version, by name and version."""
        return [model for record in self.records() for model in record.models]

    def all_keyed(self) -> list[tuple[ModelKey, LoadedModel]]:
        """Every loaded model version with the key that tells its model from others of its name."""
        return [(record.key, model) for record in self.records() for model in record.models]

    def shows(self, key: ModelKey) -> bool:
        """True if the index lists a model."""
        named = self._names.get(key.name)
        record = named.records.get(key) if named is not None else None
        return record is not None and record.is_shown

    def index(self, ready: bool = False) -> list[JsonObject]:
        """Name, version, state and reason of everything known."""
        return [row for record in self.records() for row in record.rows(ready=ready)]

    def unready(self) -> Iterator[JsonObject]:
        """Rows as in the index, of every known version that neither serves nor was unloaded on purpose."""
        for record in self.records():
            yield from record.unready_rows()


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
