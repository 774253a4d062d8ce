"""A stand-in for the module `pynvml`, with as many devices as a test wants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

GIB = 1 << 30


@dataclass
class Card:
    """One device as NVML would tell of it."""

    uuid: str
    name: str = "Test GPU"
    capability: tuple[int, int] = (8, 6)
    total: int = 16 * GIB
    used: int = 1 * GIB
    bus: str = "00000000:3B:00.0"
    is_partitioned: bool = False
    parent: Card | None = None
    failure: str = ""
    load: int = 0
    milliwatts: int = 0
    milliwatt_limit: int = 0
    millijoules: int = 0
    unsupported: tuple[str, ...] = ()


class NVMLError(Exception):
    pass


class NVMLError_LibraryNotFound(NVMLError):  # the module's own name
    pass


class NVMLError_NotSupported(NVMLError):  # the module's own name
    pass


def make_nvml(cards: Sequence[Card], parts: Sequence[Card] = ()) -> Any:
    """A module `pynvml` for these devices; handles are the cards themselves."""

    def by_uuid(uuid: str) -> Card:
        for card in (*cards, *parts):
            if card.uuid == uuid:
                return card
        raise NVMLError("Not Found")

    def capability(card: Card) -> tuple[int, int]:
        if card.failure:
            raise NVMLError(card.failure)
        return card.capability

    def mig_mode(card: Card) -> list[int]:
        if card.name == "Old GPU":
            raise NVMLError_NotSupported("Not Supported")
        return [int(card.is_partitioned), 0]

    def number(field: str) -> Callable[[Card], int]:
        def read(card: Card) -> int:
            if field in card.unsupported:
                raise NVMLError_NotSupported("Not Supported")
            return int(getattr(card, field))

        return read

    return SimpleNamespace(
        NVMLError=NVMLError,
        NVMLError_LibraryNotFound=NVMLError_LibraryNotFound,
        NVMLError_NotSupported=NVMLError_NotSupported,
        NVML_DEVICE_MIG_ENABLE=1,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: len(cards),
        nvmlDeviceGetHandleByIndex=lambda index: cards[index],
        nvmlDeviceGetHandleByUUID=by_uuid,
        nvmlDeviceGetUUID=lambda card: card.uuid,
        nvmlDeviceGetName=lambda card: card.name.encode(),  # as older versions answer
        nvmlDeviceGetCudaComputeCapability=capability,
        nvmlDeviceGetMemoryInfo=lambda card: SimpleNamespace(
            total=card.total, used=card.used, free=card.total - card.used
        ),
        nvmlDeviceGetUtilizationRates=lambda card: SimpleNamespace(gpu=number("load")(card), memory=0),
        nvmlDeviceGetPowerUsage=number("milliwatts"),
        nvmlDeviceGetPowerManagementLimit=number("milliwatt_limit"),
        nvmlDeviceGetTotalEnergyConsumption=number("millijoules"),
        nvmlDeviceGetPciInfo=lambda card: SimpleNamespace(busId=card.bus),
        nvmlDeviceGetMigMode=mig_mode,
        nvmlDeviceGetDeviceHandleFromMigDeviceHandle=lambda card: card.parent,
    )


@pytest.fixture
def nvml() -> Callable[..., Any]:
    """Make the stand-in."""
    return make_nvml


@pytest.fixture
def card() -> type[Card]:
    """Make a device."""
    return Card
