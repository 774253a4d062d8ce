"""Changes of a configuration that a loaded model takes up without being loaded anew."""

from __future__ import annotations

from dataclasses import dataclass

from tritonpy.config.schema import ModelConfig
from tritonpy.devices.gpus import Gpus
from tritonpy.handles import BackendAttributes, JsonObject, Model
from tritonpy.model.instance_set import InstanceChange
from tritonpy.model.model import LoadedModel
from tritonpy.repository.settle import first_config, settled_config

_FIELDS = ("instance_group", "version_policy")
"""What may change: who executes a model, and which of its versions are served."""


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
    first = first_config(config, attributes, gpus)
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
