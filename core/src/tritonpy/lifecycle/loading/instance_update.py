"""Changes of a configuration that a loaded model takes up without being loaded anew."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tritonpy.config.load import CONFIG_NAMES_DIRECTORY, FORMS
from tritonpy.devices.gpus import Gpus
from tritonpy.fingerprint import Fingerprint
from tritonpy.handles import BackendAttributes, JsonObject, Model
from tritonpy.lifecycle.prepared_model import PreparedModel
from tritonpy.lifecycle.resolved_config import proposed_config, settled_config
from tritonpy.model.instance_set import InstanceChange
from tritonpy.model.model import LoadedModel
from tritonpy.protos import ModelConfig

_FIELDS = ("instance_group", "version_policy")
"""The fields that may change: the instances of a model, and which of its versions are served."""


def unchanged_versions(served: PreparedModel, wanted: PreparedModel) -> frozenset[int]:
    """The versions that can go on where they serve, as far as files say so: a load would read the same again.

    Files that came with a load request are always others, and so may be those of a repository agent. Files
    that were copied for a load belong to all its versions: there, one that has changed takes all along.
    """
    if not (served.source.root == wanted.source.root != "" and served.agents is wanted.agents is None):
        return frozenset()
    before, now = _by_directory(served.source.fingerprint), _by_directory(wanted.source.fingerprint)
    versions = frozenset(wanted.directory.versions)
    if before == now:
        return versions
    names = {str(version) for version in (*versions, *served.directory.versions)}
    shared = (before.keys() | now.keys()) - names
    if (
        served.source.is_temporary
        or wanted.source.is_temporary
        or any(before.get(name) != now.get(name) for name in shared)
    ):
        return frozenset()
    return frozenset(
        version
        for version in versions
        if before.get(str(version)) == now[str(version)] and _is_seen_whole(now[str(version)])
    )


def is_configured_alike(served: PreparedModel, wanted: PreparedModel) -> bool:
    """True if two configurations are the same as read, except for the fields that may change in place."""
    return _without_fields(served.config) == _without_fields(wanted.config)


def is_settled_alike(config: ModelConfig, handle: Model, attributes: BackendAttributes, gpus: Gpus) -> bool:
    """True if a configuration settles on that of a loaded model, but for what may change in place.

    A configuration made from `/config` does, too, even if the model's own file leaves fields out.

    Args:
        config: as it was read; it is filled in.
        handle: the loaded model.
        attributes: of its backend.
        gpus: where it can be placed beside the CPU.
    """
    first = proposed_config(config, attributes, gpus)
    fields = (first.keys() | handle.config.keys()) - set(_FIELDS)
    return all(first.get(field) == handle.config.get(field) for field in fields)


def taken_up(served: PreparedModel, wanted: PreparedModel) -> PreparedModel:
    """The model that serves after a change in place: the wanted one, made from the files that are loaded."""
    files = served.source
    if not (files.is_temporary or wanted.source.is_temporary):
        return wanted  # the same directory
    source = replace(wanted.source, directory=files.directory, is_temporary=files.is_temporary)
    return replace(wanted, source=source, directory=served.directory)


def copied_config(config: ModelConfig) -> ModelConfig:
    """A copy that may be filled in, so that the configuration stays as it was read."""
    copy = ModelConfig()
    copy.CopyFrom(config)
    return copy


def updated_config(
    config: ModelConfig, handle: Model, attributes: BackendAttributes, gpus: Gpus
) -> JsonObject:
    """The settled configuration of a loaded model after a change: what its backend once completed stays.

    Args:
        config: as it was read; it is filled in.
        handle: the loaded model.
        attributes: of its backend.
        gpus: where it can be placed beside the CPU.

    Raises:
        TritonError: the new settings break a rule.
    """
    first = proposed_config(config, attributes, gpus)
    document = {**handle.config, **{field: first[field] for field in _FIELDS}}
    return settled_config(document, attributes, handle.directory, gpus, name=handle.name)


@dataclass(frozen=True, slots=True)
class InstanceUpdate:
    """A change of a loaded version that only has to be put in force.

    Attributes:
        model: what it is about.
        config: the settled configuration that asks for it.
        change: the instances.
        config_before: what stands again if it comes to nothing.
    """

    model: LoadedModel
    config: JsonObject
    change: InstanceChange
    config_before: JsonObject

    def apply(self) -> None:
        """Go over to it, in one step."""
        self.model.exchange(self.change, self.config)

    async def discard(self) -> None:
        """Forget it; the model goes on as it was."""
        self.model.handle.config = self.config_before
        await self.model.instance_set.discard(self.change)


def _by_directory(fingerprint: Fingerprint) -> dict[str, Fingerprint]:
    """The entries of a model's directory, each with everything in it.

    Without the configurations: those are compared by what they say.
    """
    parts: dict[str, set[tuple[str, int | str, int]]] = {}
    for entry in fingerprint:
        parts.setdefault(entry[0].partition("/")[0], set()).add(entry)
    for name in (CONFIG_NAMES_DIRECTORY, *(f"config{suffix}" for suffix in FORMS)):
        parts.pop(name, None)
    return {name: frozenset(entries) for name, entries in parts.items()}


def _is_seen_whole(files: Fingerprint) -> bool:
    """True if everything that a version is made of was seen in its own directory.

    A directory that several links lead to is seen under one of its names; under the others it is empty.
    """
    parents = {path.rpartition("/")[0] for path, _, _ in files}
    return all(byte_size >= 0 or path in parents for path, _, byte_size in files)


def _without_fields(config: ModelConfig) -> ModelConfig:
    rest = copied_config(config)
    rest.ClearField("instance_group")
    rest.ClearField("version_policy")
    return rest
