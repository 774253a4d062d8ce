"""An instance as a backend in C sees it."""

from __future__ import annotations

import cffi
from tritonpy.plugin import MemoryType, MemoryUsage, ModelInstance

from tritonpy_abi.json_text import json_text
from tritonpy_abi.shim import CData, Shim

_KINDS = {"KIND_AUTO": 0, "KIND_CPU": 1, "KIND_GPU": 2, "KIND_MODEL": 3}
"""Numbers of `TRITONSERVER_InstanceGroupKind`."""

_MOST_USAGES = 64
"""Of kinds of memory and devices, of which a report may speak."""


class InstanceHandle:
    """A filled `TRITONPY_Instance`; its receivers copy it.

    Attributes:
        description: the `TRITONPY_Instance *`, good while this object is held.
    """

    def __init__(self, ffi: cffi.FFI, instance: ModelInstance) -> None:
        policy = json_text({instance.host_policy: dict(instance.host_policy_settings)})
        kinds = [ffi.new("char []", kind.encode()) for kind, _ in instance.secondary_devices]
        devices = [
            (kind, number) for kind, (_, number) in zip(kinds, instance.secondary_devices, strict=True)
        ]
        profiles = [ffi.new("char []", profile.encode()) for profile in instance.profiles]
        described = {
            "name": ffi.new("char []", instance.name.encode()),
            "kind": _KINDS[instance.kind],
            "device_id": instance.device_id,
            "policy": ffi.new("char []", policy.encode()),
            "secondary_devices": ffi.new("TRITONPY_SecondaryDevice []", devices),
            "secondary_device_count": len(devices),
            "profiles": ffi.new("char *[]", profiles),
            "profile_count": len(profiles),
        }
        self._kept = described, kinds, profiles
        self.description: CData = ffi.new("TRITONPY_Instance *", described)


def memory_of(shim: Shim, handle: CData, *, of_model: bool) -> list[MemoryUsage]:
    """The memory that a library has reported to use.

    Args:
        shim: the library of this distribution.
        handle: a `TRITONBACKEND_ModelInstance *`.
        of_model: that of its model, instead of that of the instance beyond it.
    """
    usages: CData = shim.ffi.new("TRITONPY_MemoryUsage []", _MOST_USAGES)
    count = shim.lib.TRITONPY_MemoryRead(handle, of_model, usages, _MOST_USAGES)
    return [
        MemoryUsage(MemoryType(each.memory_type), each.memory_type_id, each.byte_size)
        for each in usages[0:count]
    ]
