"""NVIDIA's GPUs, found through the management library of the driver (NVML).

NVML is asked instead of CUDA because it makes no context: a server whose models all run on CPUs takes no
memory of a GPU. It is part of the driver; `nvidia-ml-py` (module `pynvml`) only calls it. Every call happens
on a thread of its own with a deadline: a driver that is broken can block a caller without end, and must not
keep the server from starting.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from tritonpy.devices.device import Device, DeviceSample, NoDevices

_log = logging.getLogger("tritonpy.devices")

CPU_ONLY_VARIABLE = "TRITON_SERVER_CPU_ONLY"
VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
ORDER_VARIABLE = "CUDA_DEVICE_ORDER"
DEADLINE_S = 10.0
_PCI_DEVICES = Path("/sys/bus/pci/devices")

Answer = TypeVar("Answer")


class NvmlFinder:
    """Finds GPUs through NVML; satisfies `DeviceFinder`.

    Args:
        environment: the variables that decide what is visible.
        load: imports `pynvml`.
        deadline_s: how long the driver may take for one answer.
    """

    def __init__(
        self,
        environment: Mapping[str, str] = os.environ,
        load: Callable[[], Any] = lambda: importlib.import_module("pynvml"),  # Any: it has no types
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._environment = environment
        self._load = load
        self._deadline_s = deadline_s
        self._nvml: Any = None  # Any: see `load`

    def find(self) -> Sequence[Device]:
        if CPU_ONLY_VARIABLE in self._environment:
            raise NoDevices(f"{CPU_ONLY_VARIABLE} is set")
        return self._ask(self._find)

    def used_memory_byte_size(self, device: Device) -> int:
        return self._ask(lambda: int(self._memory(self._handle(device.uuid)).used))

    def sample(self, device: Device) -> DeviceSample:
        """Sample a device; what NVML does not support, such as the load of a part of a GPU, is None."""
        return self._ask(lambda: self._sample(device))

    def _sample(self, device: Device) -> DeviceSample:
        nvml = self._nvml
        handle = self._handle(device.uuid)
        memory = self._told(self._memory, handle)
        rates = self._told(nvml.nvmlDeviceGetUtilizationRates, handle)
        return DeviceSample(
            utilization=rates.gpu / 100 if rates is not None else None,
            memory_byte_size=int(memory.total) if memory is not None else None,
            used_memory_byte_size=int(memory.used) if memory is not None else None,
            power_w=_thousandth(self._told(nvml.nvmlDeviceGetPowerUsage, handle)),
            power_limit_w=_thousandth(self._told(nvml.nvmlDeviceGetPowerManagementLimit, handle)),
            energy_j=_thousandth(self._told(nvml.nvmlDeviceGetTotalEnergyConsumption, handle)),
        )

    def _told(self, question: Callable[[Any], Any], handle: Any) -> Any:  # Any: see `load`
        try:
            return question(handle)
        except self._nvml.NVMLError_NotSupported:
            return None

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        """Have a thread ask, and wait for it no longer than the deadline."""
        answers: list[Answer | Exception] = []

        def ask() -> None:
            try:
                answers.append(question())
            except Exception as exc:  # raised again where it was asked
                answers.append(exc)

        thread = threading.Thread(target=ask, name="nvml", daemon=True)
        thread.start()
        thread.join(self._deadline_s)
        if not answers:
            raise NoDevices(f"the NVIDIA driver has not answered for {self._deadline_s:g} seconds")
        answer = answers[0]
        if isinstance(answer, NoDevices):
            raise answer
        if isinstance(answer, Exception):
            raise NoDevices(f"the NVIDIA driver said: {answer}") from answer
        return answer

    def _find(self) -> list[Device]:
        try:
            nvml = self._load()
        except ImportError as exc:
            raise NoDevices(f"Python package nvidia-ml-py cannot be imported: {exc}") from exc
        try:
            nvml.nvmlInit()
        except nvml.NVMLError_LibraryNotFound as exc:
            raise NoDevices("no NVIDIA driver is installed") from exc
        self._nvml = nvml
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        uuids = [_text(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        setting = self._environment.get(VISIBLE_VARIABLE)
        visible = visible_devices(setting, uuids)
        if setting is not None and len(visible) < len(setting.split(",")):
            _log.info("%s=%s shows %d of %d GPUs", VISIBLE_VARIABLE, setting, len(visible), len(uuids))
        devices = [self._device(number, uuid) for number, uuid in enumerate(visible)]
        found = [device for device in devices if device is not None]
        if not found:
            reason = f" that {VISIBLE_VARIABLE}={setting} leaves visible" if handles and setting else ""
            raise NoDevices(f"the NVIDIA driver knows no GPU{reason}")
        self._warn_of_order(found, setting)
        return found

    def _device(self, number: int, uuid: str) -> Device | None:
        """Describe a device; None, with a warning, for one that cannot be used."""
        nvml = self._nvml
        try:
            handle = self._handle(uuid)
            whole = handle
            if uuid.startswith("MIG-"):
                whole = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
            elif self._is_partitioned(handle):
                _log.warning(
                    "gpu %d (%s) is in MIG mode and not used: name one of its instances in %s=MIG-<uuid>",
                    number,
                    uuid,
                    VISIBLE_VARIABLE,
                )
                return None
            memory = self._memory(handle)
            bus = pci_address(_text(nvml.nvmlDeviceGetPciInfo(whole).busId))
            major, minor = nvml.nvmlDeviceGetCudaComputeCapability(whole)
            return Device(
                number,
                _text(nvml.nvmlDeviceGetName(handle)),
                uuid,
                (int(major), int(minor)),
                int(memory.total),
                int(memory.free),
                bus,
                numa_node_of(bus),
            )
        except nvml.NVMLError as exc:
            _log.warning("gpu %d (%s) is not used: the NVIDIA driver said: %s", number, uuid, exc)
            return None

    def _handle(self, uuid: str) -> Any:  # Any: see `load`
        return self._nvml.nvmlDeviceGetHandleByUUID(uuid)

    def _memory(self, handle: Any) -> Any:  # Any: see `load`
        return self._nvml.nvmlDeviceGetMemoryInfo(handle)

    def _is_partitioned(self, handle: Any) -> bool:  # Any: see `load`
        nvml = self._nvml
        try:
            current, _ = nvml.nvmlDeviceGetMigMode(handle)
        except nvml.NVMLError_NotSupported:
            return False
        return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)

    def _warn_of_order(self, devices: Sequence[Device], setting: str | None) -> None:
        """Say where CUDA may count devices in another order than NVML, which goes by the PCI bus."""
        if self._environment.get(ORDER_VARIABLE) == "PCI_BUS_ID" or len(devices) == 1:
            return
        if setting is not None and "GPU-" in setting:
            return
        if len({device.name for device in devices}) > 1:
            _log.warning(
                "GPUs of different kinds: ids are those of nvidia-smi, but CUDA puts the fastest first, "
                "unless %s=PCI_BUS_ID is set; set it, so that both mean the same",
                ORDER_VARIABLE,
            )


def _thousandth(value: float | None) -> float | None:
    return value / 1000 if value is not None else None


def pci_address(bus: str) -> str:
    """The address under which Linux lists a device, `0000:3b:00.0` where NVML says `00000000:3B:00.0`."""
    domain, colon, rest = bus.lower().partition(":")
    return f"{domain[-4:]}{colon}{rest}"


def numa_node_of(bus: str, devices: Path = _PCI_DEVICES) -> int | None:
    """The memory node next to a PCI device; None where Linux knows none."""
    with suppress(OSError, ValueError):
        node = int((devices / bus / "numa_node").read_text())
        return node if node >= 0 else None
    return None


def _text(value: str | bytes) -> str:
    """Older versions of `pynvml` answer bytes."""
    return value.decode() if isinstance(value, bytes) else value


_INDEX = re.compile(r"\s*([+-]?\d+)\s*")


def visible_devices(setting: str | None, uuids: Sequence[str]) -> list[str]:
    """List the identities of the devices that CUDA shows a process; their positions are the devices' ids.

    CUDA reads the list up to the first entry that names nothing, and shows no device at all when one is named
    twice. An entry is the number of a device or the beginning of its UUID (`GPU-…`) that no other one shares;
    `MIG-…` names a part of a device and is handed on as it stands, because only the driver knows it. Of those
    parts CUDA uses a single one.

    Args:
        setting: the variable; None when it is not set, and then all devices are visible.
        uuids: of the machine's devices, by number.
    """
    if setting is None:
        return list(uuids)
    visible: list[str] = []
    for entry in setting.split(","):
        named = _device_named(entry, uuids)
        if named is None:
            break
        if named in visible:
            return []
        visible.append(named)
        if named.startswith("MIG-"):
            break
    return visible


def _device_named(entry: str, uuids: Sequence[str]) -> str | None:
    if match := _INDEX.fullmatch(entry):
        text = match[1]
        if len(text) > 9 or not 0 <= int(text) < len(uuids):
            return None
        return uuids[int(text)]
    entry = entry.strip()
    if entry.startswith("MIG-"):
        return entry
    if not entry.startswith("GPU-"):
        return None
    matches = [uuid for uuid in uuids if uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None
