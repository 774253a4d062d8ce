"""From `instance_group` to the concrete slots of a model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tritonpy.devices.host_policy import HostPolicy, default_policy
from tritonpy.handles import JsonObject, Model, ModelInstance


@dataclass(frozen=True, slots=True)
class ResourceNeed:
    """A need of an instance for a resource while it executes, where the rate limiter is on.

    Attributes:
        name: of the resource.
        count: how much of it.
        is_global: all devices share it, instead of each having its own.
    """

    name: str
    count: int
    is_global: bool


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one instance: its name, device and resources.

    Attributes:
        name: the group's name, then the index inside the group; the same on each of the group's GPUs.
        index: position among all instances of the model.
        kind: `KIND_CPU`, `KIND_GPU` or `KIND_MODEL`.
        device_id: the GPU's number; 0 otherwise.
        compute_capability: of the GPU, such as `8.6`; "" otherwise.
        secondary_devices: kind and number of each.
        host_policy: the name of the policy that says which processors it keeps to.
        settings: what else the group says of its instances, as JSON; one that differs is another instance.
        resources: what it needs to execute.
        priority: instances with a higher number execute less often while they wait for the same resources.
    """

    name: str
    index: int
    kind: str
    device_id: int
    compute_capability: str = ""
    secondary_devices: tuple[tuple[str, int], ...] = ()
    host_policy: str = ""
    settings: str = ""
    resources: tuple[ResourceNeed, ...] = ()
    priority: int = 1

    def handle(self, model: Model, policy: HostPolicy | None = None) -> ModelInstance:
        """The handle that the hooks of the instance receive.

        Args:
            model: the model.
            policy: what the host policy of this name says; None where it says nothing.
        """
        return ModelInstance(
            self.name,
            self.index,
            self.kind,
            self.device_id,
            model,
            compute_capability=self.compute_capability,
            secondary_devices=self.secondary_devices,
            host_policy=self.host_policy,
            host_policy_settings=dict(policy.settings) if policy is not None else {},
            profiles=self.profiles,
        )

    @property
    def profiles(self) -> tuple[str, ...]:
        """The names of the optimization profiles that the group asks for."""
        return tuple(json.loads(self.settings or "null") or ())

    @property
    def device(self) -> str:
        """The device it runs on, as the log says it: `GPU device 1`."""
        return f"{self.kind.removeprefix('KIND_')} device {self.device_id}"


def place_instances(config: JsonObject, capabilities: Mapping[int, str] | None = None) -> list[Slot]:
    """List the slots of a configuration that has passed its checks, in Triton's order and with its names.

    `count` times one instance on each GPU of a group, or `count` instances where it names none. Passive
    groups get no slot here: their instances take no requests.

    Args:
        config: the model's.
        capabilities: the compute capability of each GPU.
    """
    return list(_slots(config, capabilities or {}))


def first_slot(config: JsonObject) -> Slot | None:
    """The first of the slots, also of an unchecked configuration; None if there is none."""
    return next(_slots(config, {}), None)


def _slots(config: JsonObject, capabilities: Mapping[int, str]) -> Iterator[Slot]:
    index = 0
    for group in config.get("instance_group", ()):
        if group.get("passive", False):
            continue
        kind = group["kind"]
        secondary = tuple(
            (device["kind"], int(device["device_id"])) for device in group.get("secondary_devices", ())
        )
        settings = json.dumps(group.get("profile"), sort_keys=True)
        limits: JsonObject = group.get("rate_limiter") or {}
        resources = tuple(
            ResourceNeed(need.get("name", ""), int(need.get("count", 0)), bool(need.get("global", False)))
            for need in limits.get("resources", ())
        )
        for number in range(int(group.get("count", 1))):
            for device_id in map(int, group.get("gpus", ()) or (0,)):
                yield Slot(
                    f"{group['name']}_{number}",
                    index,
                    kind,
                    device_id,
                    capabilities.get(device_id, "") if kind == "KIND_GPU" else "",
                    secondary,
                    group.get("host_policy") or default_policy(kind, device_id),
                    settings,
                    resources,
                    max(1, int(limits.get("priority", 0))),
                )
                index += 1
