"""Which of the machine's GPUs a process may see, and under which numbers: `CUDA_VISIBLE_DEVICES`."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
