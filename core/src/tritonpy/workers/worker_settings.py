"""The settings of a backend's workers that `--backend-config` has for every backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tritonpy.errors import InvalidArg
from tritonpy.ipc.arena import MOST_SETTING, Arena

START_TIMEOUT = "stub-timeout-seconds"
INITIALIZE_TIMEOUT = "initialize-timeout-seconds"
UNANSWERED_WARNING = "unanswered-warning-seconds"
FIRST_BYTE_SIZE = "shm-default-byte-size"
GROWTH_BYTE_SIZE = "shm-growth-byte-size"
MOST_BYTE_SIZE = MOST_SETTING

_MIB = 1024 * 1024
_SMALLEST_FIRST_BYTE_SIZE = 4 * _MIB


@dataclass(frozen=True, slots=True)
class SharedMemorySettings:
    """The shared memory for one direction between the server and a worker; see `ipc.arena.Arena`.

    Attributes:
        first_byte_size: size of the first segment.
        growth_byte_size: size of the others.
        most_byte_size: what all of them together must not exceed; 0 for no limit.
        backend: the backend with that setting, for errors.
    """

    first_byte_size: int = _SMALLEST_FIRST_BYTE_SIZE
    growth_byte_size: int = 4 * _MIB
    most_byte_size: int = 0
    backend: str = "python"

    def apply(self, arena: Arena) -> None:
        """Give an arena these limits."""
        arena.first_byte_size = self.first_byte_size
        arena.growth_byte_size = self.growth_byte_size
        arena.most_byte_size = self.most_byte_size
        arena.backend = self.backend


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of a backend's workers.

    Attributes:
        start_timeout_s: how long a worker's program may take to start.
        memory: the shared memory of each of its two directions.
        initialize_timeout_s: how long the model may take for each step of its own start; None for no limit,
            as in Triton: reading weights takes as long as it takes.
        unanswered_after_s: when a request that `execute` left unanswered is reported; 0 for never.
    """

    start_timeout_s: float
    memory: SharedMemorySettings = SharedMemorySettings()
    initialize_timeout_s: float | None = None
    unanswered_after_s: float = 60.0


def read_worker_settings(
    backend: str, settings: Mapping[str, str], *, start_timeout_s: float
) -> WorkerSettings:
    """Read the settings that concern workers; the others are the backend's own.

    Args:
        backend: its name, for errors.
        settings: what `--backend-config` says for it.
        start_timeout_s: where nothing is said.

    Raises:
        InvalidArg: a value cannot be; in Triton's words where it has some.
    """

    def number(key: str, default: float, unit: str) -> float:
        text = settings.get(key)
        if text is None:
            return default
        try:
            value = float(text) if unit == "seconds" else int(text)
        except ValueError:
            value = float("nan")
        if value - value != 0:  # neither nan nor infinity is a duration
            raise InvalidArg(f"--backend-config={backend},{key}={text}: expected a number of {unit}")
        return value

    timeout_s = number(START_TIMEOUT, start_timeout_s, "seconds")
    if timeout_s <= 0:
        raise InvalidArg(f"{START_TIMEOUT} can't be smaller than or equal to zero.")
    initialize_timeout_s = number(INITIALIZE_TIMEOUT, 0, "seconds")
    unanswered_after_s = number(UNANSWERED_WARNING, 60, "seconds")
    for key, value in ((INITIALIZE_TIMEOUT, initialize_timeout_s), (UNANSWERED_WARNING, unanswered_after_s)):
        if value < 0:
            raise InvalidArg(f"{key} can't be smaller than zero.")
    usual = SharedMemorySettings()
    first = int(number(FIRST_BYTE_SIZE, usual.first_byte_size, "bytes"))
    if first < _SMALLEST_FIRST_BYTE_SIZE:
        raise InvalidArg(f"{FIRST_BYTE_SIZE} can't be smaller than 4 MiBs")
    growth = int(number(GROWTH_BYTE_SIZE, usual.growth_byte_size, "bytes"))
    if growth <= 0:
        raise InvalidArg(f"{GROWTH_BYTE_SIZE} can't be smaller than or equal to zero.")
    most = int(number(MOST_BYTE_SIZE, usual.most_byte_size, "bytes"))
    if most < 0:
        raise InvalidArg(f"{MOST_BYTE_SIZE} can't be smaller than zero.")
    return WorkerSettings(
        timeout_s,
        SharedMemorySettings(first, growth, most, backend),
        initialize_timeout_s or None,
        unanswered_after_s,
    )
