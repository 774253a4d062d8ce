"""The GPUs that this server uses: found once at the start, asked when models are placed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from tritonpy.devices.device import Device, DeviceFinder, DeviceSample, NoDevices
from tritonpy.devices.nvml import NvmlFinder
from tritonpy.errors import Unavailable

_log = logging.getLogger("tritonpy.devices")

MIN_COMPUTE_CAPABILITY = 6.0
"""The oldest compute capability that Triton uses by default."""

_TOLERANCE = 0.01


class Gpus:
    """The usable GPUs of this machine; none before `discover`.

    After `discover` nothing of it changes, so any thread may ask.

    Args:
        finder: where they come from.
        min_compute_capability: GPUs below it are not used.
        load_limits: `(device, fraction)` each: above this part of its memory nothing is loaded on the device.
    """

    def __init__(
        self,
        finder: DeviceFinder | None = None,
        *,
        min_compute_capability: float = MIN_COMPUTE_CAPABILITY,
        load_limits: Iterable[tuple[int, float]] = (),
    ) -> None:
        self._finder = finder or NvmlFinder()
        self.min_compute_capability = min_compute_capability
        self._load_limits: Mapping[int, float] = dict(load_limits)
        self._devices: dict[int, Device] = {}

    def discover(self) -> None:
        """Look for GPUs and log those found, or the reason why there are none; blocking."""
        try:
            found = self._finder.find()
        except NoDevices as exc:
            _log.info("no GPUs: %s", exc)
            return
        for device in found:
            major, minor = device.compute_capability
            capability = major + minor / 10
            if capability < self.min_compute_capability - _TOLERANCE:
                _log.warning(
                    "gpu %d has compute capability '%s' which is less than the minimum supported of '%f'",
                    device.id,
                    device.capability_text,
                    self.min_compute_capability,
                )
                continue
            _log.info(
                "gpu %d: %s, compute capability %s, %d MiB, %d MiB free, %s%s",
                device.id,
                device.name,
                device.capability_text,
                device.memory_byte_size >> 20,
                device.free_memory_byte_size >> 20,
                device.pci_bus,
                "" if device.numa_node is None else f", NUMA node {device.numa_node}",
            )
            self._devices[device.id] = device
        for id in sorted(self._load_limits.keys() - self._devices.keys()):
            _log.warning("--model-load-gpu-limit=%d:%g: there is no such GPU", id, self._load_limits[id])

    @property
    def ids(self) -> list[int]:
        """The usable GPUs' numbers, ascending."""
        return sorted(self._devices)

    @property
    def devices(self) -> list[Device]:
        """The usable GPUs, by their numbers."""
        return [self._devices[id] for id in self.ids]

    def sample(self, device: Device) -> DeviceSample:
        """Load, memory and power of one of `devices` now; may block.

        Raises:
            NoDevices: it cannot be asked any more.
        """
        return self._finder.sample(device)

    def uuid(self, id: int) -> str:
        """The identity of a GPU; "" for one that is unknown."""
        device = self._devices.get(id)
        return device.uuid if device is not None else ""

    def capabilities(self) -> dict[int, str]:
        """The compute capability of each usable GPU, such as `8.6`."""
        return {id: device.capability_text for id, device in self._devices.items()}

    def check_load(self, instance: str, id: int) -> None:
        """Refuse to start an instance on a GPU whose memory is used beyond its limit; may block.

        Raises:
            Unavailable: the limit is exceeded, in Triton's words, or the memory cannot be looked at.
        """
        limit = self._load_limits.get(id)
        device = self._devices.get(id)
        if limit is None or device is None:
            return
        try:
            used = self._finder.used_memory_byte_size(device)
        except NoDevices as exc:
            raise Unavailable(
                f"can not create model '{instance}': the memory of GPU {id} cannot be looked at, which "
                f"--model-load-gpu-limit={id}:{limit:g} asks for: {exc}"
            ) from exc
        if used > device.memory_byte_size * limit:
            raise Unavailable(
                f"can not create model '{instance}': memory limit set for GPU {id} has exceeded, model "
                f"loading is rejected. {used >> 20} MiB of {device.memory_byte_size >> 20} MiB are used, "
                f"--model-load-gpu-limit={id}:{limit:g} allows {int(device.memory_byte_size * limit) >> 20}"
            )


NO_GPUS = Gpus()
"""The empty set of GPUs; `discover` is never called on it."""
