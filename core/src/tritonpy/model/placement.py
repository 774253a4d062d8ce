"""From `instance_group` to the concrete slots of a model."""

from __future__ import annotations

from dataclasses import dataclass

from tritonpy.handles import JsonObject


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one instance will live.

    Attributes:
        name: the group's name, then the index inside the group.
        index: position among all instances of the model.
        kind: `KIND_CPU`, `KIND_GPU` or `KIND_MODEL`.
        device_id: the GPU's number; 0 otherwise.
    """

    name: str
    index: int
    kind: str
    device_id: int


def place_instances(config: JsonObject) -> list[Slot]:
    """List the slots of a normalised configuration, in Triton's order and with its names.

    `count` instances per group, on each of its GPUs where it names some. Passive groups get no slot here:
    their instances take no requests.
    """
    slots: list[Slot] = []
    for group in config.get("instance_group", ()):
        if group.get("passive", False):
            continue
        index = 0
        for _ in range(int(group.get("count", 1))):
            for device_id in group.get("gpus", ()) or (0,):
                slots.append(Slot(f"{group['name']}_{index}", len(slots), group["kind"], int(device_id)))
                index += 1
    return slots
