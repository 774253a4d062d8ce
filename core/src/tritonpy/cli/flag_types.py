"""How values of tritonserver's flags are written: functions for `click.Option(type=…)`.

Refusals begin with tritonserver's words; `ServeCommand` puts the name of the option before them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tritonpy.devices.host_policy import check_setting
from tritonpy.errors import TritonError
from tritonpy.frontends.header_forwarding import compile_pattern

if TYPE_CHECKING:
    from tritonpy.options import RestrictedCalls


def read_bool(value: str | bool) -> bool:
    """Read `true`, `1` or `on` against `false`, `0` or `off`, in any case."""
    text = str(value).lower()
    if text in ("true", "1", "on"):
        return True
    if text in ("false", "0", "off"):
        return False
    raise click.BadParameter(f"invalid value for bool option: {value}; expected true, false, 1 or 0")


def read_integer(least: int, most: int) -> Callable[[str | int], int]:
    """A reader of whole numbers from `least` to `most`."""

    def read(value: str | int) -> int:
        text = str(value)
        if not re.fullmatch(r"[+-]?[0-9]+", text):
            raise click.BadParameter(f"Invalid option value. Got {value}; expected a number")
        # No number of a thousand digits is made: that takes its time.
        if len(text) > 20 or not least <= int(text) <= most:
            raise click.BadParameter(
                f"Provided option value is out of bound. Got {value}; expected {least} to {most}"
            )
        return int(text)

    return read


def read_above_zero(flag: str) -> Callable[[str | int], int]:
    """A reader of whole numbers from 1 to 2^63 - 1."""
    read = read_integer(-(2**63), 2**63 - 1)

    def read_positive(value: str | int) -> int:
        number = read(value)
        if number <= 0:
            raise click.BadParameter(f"{flag} must be greater than 0. Got {value}")
        return number

    return read_positive


def read_choice(flag: str, *choices: str) -> Callable[[str], str]:
    """A reader of one of a few words."""

    def read(value: str) -> str:
        if value not in choices:
            expected = f"{', '.join(choices[:-1])} or {choices[-1]}"
            raise click.BadParameter(f"invalid argument for {flag}, got: {value}; expected {expected}")
        return value

    return read


def read_config_name(value: str) -> str:
    """Read the name of a configuration in the models' `configs`; "" is none."""
    from tritonpy.config.files import check_config_name
    from tritonpy.errors import InvalidArg

    if value:
        try:
            check_config_name(value)
        except InvalidArg as exc:
            raise click.BadParameter(str(exc)) from None
    return value


def read_pattern(value: str) -> str:
    """Read a regular expression; "" is none, and needs no engine."""
    try:
        if value:
            compile_pattern(value)
    except ValueError as exc:
        raise click.BadParameter(f"Error parsing '{value}': {exc}") from None
    return value


def read_restriction(flag: str) -> Callable[[str | RestrictedCalls], RestrictedCalls]:
    """A reader of `<category>,<category>:<header>=<value>`; what the categories are is checked together."""

    def read(value: str | RestrictedCalls) -> RestrictedCalls:
        if not isinstance(value, str):  # click reads its own results again
            return value
        names, colon, setting = value.partition(":")
        header, equals, expected = setting.partition("=")
        if not (names and colon and header and equals and expected):
            raise click.BadParameter(
                f"{flag} option format is '<config name>:<setting>=<value>'. Got {value}"
            )
        return tuple(names.split(",")), header, expected

    return read


def read_restrictions(
    flag: str,
) -> Callable[[str | tuple[RestrictedCalls, ...]], tuple[RestrictedCalls, ...]]:
    """A reader of a file with a restriction per line; lines that are empty or begin with # are passed over.

    No error shows what a line holds.
    """
    read_line = read_restriction(flag)

    def read(value: str | tuple[RestrictedCalls, ...]) -> tuple[RestrictedCalls, ...]:
        if not isinstance(value, str):  # click reads its own results again
            return value
        try:
            lines = Path(value).read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as exc:
            reason = getattr(exc, "strerror", None) or "it is not UTF-8"
            raise click.BadParameter(f"{flag}: '{value}' cannot be read: {reason}") from None
        found = []
        for number, line in enumerate(map(str.strip, lines), 1):
            if not line or line.startswith("#"):
                continue
            try:
                found.append(read_line(line))
            except click.BadParameter:
                raise click.BadParameter(
                    f"{flag}: line {number} of '{value}' has another format than "
                    f"'<config name>:<setting>=<value>'"
                ) from None
        return tuple(found)

    return read


def read_verbosity(value: str | int) -> int:
    """Read a verbose level: a number from 0, or `true` for 1 and `false` for 0."""
    text = {"true": "1", "false": "0"}.get(str(value).lower(), str(value))
    if not text.isdecimal():
        raise click.BadParameter(f"Invalid option value. Got {value}; expected a number from 0 (off) upwards")
    return int(text)


def read_backend_setting(value: str | tuple[str, str, str]) -> tuple[str, str, str]:
    """Read `<backend>,<key>=<value>`, or `<key>=<value>` for every backend, whose name is then ""."""
    if isinstance(value, tuple):  # click reads its own results again
        return value
    setting, equals, text = value.partition("=")
    backend, comma, key = setting.rpartition(",")
    if comma and not backend:
        raise click.BadParameter(
            "No backend specified. --backend-config option format is <backend name>,<setting>=<value> or "
            f"<setting>=<value>. Got {value}"
        )
    if not equals or not key:
        raise click.BadParameter(
            "--backend-config option format is '<backend name>,<setting>=<value>' or '<setting>=<value>'. "
            f"Got {value}"
        )
    return backend, key, text


def read_plugin_name(value: str | tuple[str, str]) -> tuple[str, str]:
    """Read `KIND:NAME`, such as `backends:onnxruntime`."""
    if isinstance(value, tuple):
        return value
    from tritonpy.plugin_manager import KINDS

    kind, _, name = value.partition(":")
    if kind not in KINDS or not name:
        raise click.BadParameter(f"got '{value}', expected KIND:NAME with KIND one of {', '.join(KINDS)}")
    return kind, name


def read_seconds(value: str | float) -> float:
    """Read a number of seconds from 0; tritonserver takes whole ones only."""
    text = str(value)
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        raise click.BadParameter(f"Invalid option value. Got {value}; expected a number of seconds from 0")
    return float(text)


def read_timeout(value: str | float) -> float:
    """Read a number of seconds that something can be done in: from 1 to an hour."""
    seconds = read_seconds(value)
    if not 1 <= seconds <= 3600:
        raise click.BadParameter(f"Provided option value is out of bound. Got {value}; expected 1 to 3600")
    return seconds


def read_repository(value: str) -> str:
    """Read a directory or a place in an object store; what holds a secret is refused and not shown."""
    if "://" not in value:
        return value
    from tritonpy.plugin_manager import PluginManager
    from tritonpy.repository.stores.opener import check_root

    try:
        check_root(value, PluginManager("stores"))
    except TritonError as error:
        raise click.BadParameter(error.message) from None
    return value


def read_fraction(flag: str, most: float) -> Callable[[str | float], float]:
    """A reader of numbers from 0 to `most`."""

    def read(value: str | float) -> float:
        text = str(value)
        if not re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}", text) or float(text) > most:
            raise click.BadParameter(
                f"Invalid option value. Got {value}; {flag} expects a number from 0 to {most:g}"
            )
        return float(text)

    return read


def read_host_policy(value: str | tuple[str, str, str]) -> tuple[str, str, str]:
    """Read `<policy>,<setting>=<value>`."""
    if not isinstance(value, str):  # click reads its own results again
        return value
    policy, _, setting = value.partition(",")
    key, _, text = setting.partition("=")
    if not (policy and key and text):
        raise click.BadParameter(
            f"--host-policy option format is '<policy name>,<setting>=<value>'. Got {value}"
        )
    try:
        check_setting(key, text)
    except TritonError as exc:
        raise click.BadParameter(f"{exc.message} (host policy '{policy}')") from None
    return policy, key, text


def read_gpu_limit(value: str | tuple[int, float]) -> tuple[int, float]:
    """Read `<device>:<fraction>`, the part of a GPU's memory from 0.0 to 1.0."""
    if not isinstance(value, str):
        return value
    device, fraction = _pair(value)
    if not re.fullmatch(r"[+-]?[0-9]{0,9}\.?[0-9]{1,9}", fraction):
        raise click.BadParameter(f"Invalid option value. Got {fraction}; expected a fraction from 0.0 to 1.0")
    if not 0.0 <= float(fraction) <= 1.0:
        raise click.BadParameter(f"expects limit fraction to be in range [0.0, 1.0], got {float(fraction):f}")
    return _device_id(device), float(fraction)


def read_gpu_bytes(value: str | tuple[int, int]) -> tuple[int, int]:
    """Read `<device>:<bytes>`."""
    if not isinstance(value, str):
        return value
    device, size = _pair(value)
    return _device_id(device), read_integer(0, 2**63 - 1)(size)


def _pair(value: str) -> tuple[str, str]:
    device, colon, amount = value.partition(":")
    if not colon or ":" in amount:
        raise click.BadParameter(
            "Cannot parse pair option due to incorrect number of inputs.--<pair option> argument requires "
            f"format <first>:<second>. Found: {value}"
        )
    return device, amount


def _device_id(text: str) -> int:
    if not re.fullmatch("[+-]?[0-9]{1,4}", text):
        raise click.BadParameter(f"Invalid option value. Got {text}; expected the number of a GPU")
    if int(text) < 0:
        raise click.BadParameter(f"expects device ID >= 0, got {int(text)}")
    return int(text)
