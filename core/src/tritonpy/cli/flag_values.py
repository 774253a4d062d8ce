"""Readers of the values of tritonserver's flags, one for each kind that `options.py` names.

A reader is given the word and the flag. Refusals begin with tritonserver's words; `ServeCommand` puts the
name of the option before them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tritonpy.devices.host_policy import check_setting
from tritonpy.errors import InvalidArg, TritonError
from tritonpy.frontends.header_forwarding import compile_pattern
from tritonpy.options import Flag

if TYPE_CHECKING:
    from tritonpy.options import RestrictedCalls

Setting = tuple[str, str, str]
"""The name of what has the setting, its key, and what it is set to."""


def value_type(flag: Flag) -> Callable[[object], object]:
    """The click type that reads a flag's values and its default; a tuple that was read already is kept."""
    read = READERS[flag.kind]
    return lambda value: value if isinstance(value, tuple) else read(str(value), flag)


def read_bool(value: str, flag: Flag) -> bool:
    """Read `true`, `1` or `on` against `false`, `0` or `off`, in any case."""
    text = value.lower()
    if text in ("true", "1", "on"):
        return True
    if text in ("false", "0", "off"):
        return False
    raise click.BadParameter(f"invalid value for bool option: {value}; expected true, false, 1 or 0")


def read_number(value: str, flag: Flag) -> int:
    """Read a whole number within the bounds of the flag."""
    return _whole(value, flag.least, flag.most)


def _whole(text: str, least: int, most: int) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise click.BadParameter(f"Invalid option value. Got {text}; expected a number")
    # No number of a thousand digits is made: that takes its time.
    if len(text) > 20 or not least <= int(text) <= most:
        raise click.BadParameter(
            f"Provided option value is out of bound. Got {text}; expected {least} to {most}"
        )
    return int(text)


def _number_above_zero(value: str, flag: Flag) -> int:
    number = _whole(value, -(2**63), 2**63 - 1)
    if number <= 0:
        raise click.BadParameter(f"{flag.name} must be greater than 0. Got {value}")
    return number


def _verbosity(value: str, flag: Flag) -> int:
    """Read a verbose level: a number from 0, or `true` for 1 and `false` for 0."""
    text = {"true": "1", "false": "0"}.get(value.lower(), value)
    if not text.isdecimal():
        raise click.BadParameter(f"Invalid option value. Got {value}; expected a number from 0 (off) upwards")
    return int(text)


def _decimal(value: str, unit: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value):
        raise click.BadParameter(f"Invalid option value. Got {value}; expected a number of {unit} from 0")
    return float(value)


def _timeout(value: str, flag: Flag) -> float:
    """Read a number of seconds that something can be done in: from 1 to an hour."""
    seconds = _decimal(value, "seconds")
    if not 1 <= seconds <= 3600:
        raise click.BadParameter(f"Provided option value is out of bound. Got {value}; expected 1 to 3600")
    return seconds


def _fraction(value: str, flag: Flag) -> float:
    if not re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}", value) or float(value) > flag.most:
        raise click.BadParameter(
            f"Invalid option value. Got {value}; {flag.name} expects a number from 0 to {flag.most:g}"
        )
    return float(value)


def _choice(value: str, flag: Flag) -> str:
    if value not in flag.choices:
        expected = f"{', '.join(flag.choices[:-1])} or {flag.choices[-1]}"
        raise click.BadParameter(f"invalid argument for {flag.name}, got: {value}; expected {expected}")
    return value


def _choice_in_any_case(value: str, flag: Flag) -> str:
    lower = value.lower()
    return lower if lower in flag.choices else _choice(value, flag)


def _config_name(value: str, flag: Flag) -> str:
    """Read the name of a configuration in the models' `configs`; "" is none."""
    from tritonpy.config.load import check_config_name

    if value:
        _checked(check_config_name, value)
    return value


def _pattern(value: str, flag: Flag) -> str:
    """Read a regular expression; "" is none, and needs no engine."""
    try:
        if value:
            compile_pattern(value)
    except ValueError as exc:
        raise click.BadParameter(f"Error parsing '{value}': {exc}") from None
    return value


def _restriction(value: str, flag: Flag) -> RestrictedCalls:
    """Read `<category>,<category>:<header>=<value>`; what the categories are is checked together."""
    names, colon, setting = value.partition(":")
    header, equals, expected = setting.partition("=")
    if not (names and colon and header and equals and expected):
        raise click.BadParameter(
            f"{flag.name} option format is '<config name>:<setting>=<value>'. Got {value}"
        )
    return tuple(names.split(",")), header, expected


def _restriction_file(value: str, flag: Flag) -> tuple[RestrictedCalls, ...]:
    """Read a file with a restriction per line; lines that are empty or begin with # are passed over.

    No error shows what a line holds.
    """
    try:
        lines = Path(value).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or "it is not UTF-8"
        raise click.BadParameter(f"{flag.name}: '{value}' cannot be read: {reason}") from None
    found = []
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        try:
            found.append(_restriction(line, flag))
        except click.BadParameter:
            raise click.BadParameter(
                f"{flag.name}: line {number} of '{value}' has another format than "
                f"'<config name>:<setting>=<value>'"
            ) from None
    return tuple(found)


def _backend_setting(value: str, flag: Flag) -> Setting:
    """Read `<backend>,<key>=<value>`, or `<key>=<value>` for every backend, whose name is then ""."""
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


def _cache_setting(value: str, flag: Flag) -> Setting:
    name, comma, setting = value.partition(",")
    key, equals, text = setting.partition("=")
    form = "--cache-config option format is"
    if not comma or not name:
        raise click.BadParameter(f"No cache specified. {form} <cache name>,<setting>=<value>. Got {value}")
    if not equals or not key or not text:
        raise click.BadParameter(f"{form} '<cache name>,<setting>=<value>'. Got {value}")
    return name, key, text


def _frontend_setting(value: str, flag: Flag) -> Setting:
    """Read `<frontend>,<key>=<value>`, or the name of a frontend alone."""
    name, comma, setting = value.partition(",")
    key, equals, text = setting.partition("=")
    if not name or "=" in name:
        wrong = "a frontend's name comes first"
    elif comma and not key:
        wrong = f"no setting of frontend '{name}' is named after the comma"
    elif comma and not equals:
        wrong = f"setting '{key}' of frontend '{name}' has no value, expected {name},{key}=VALUE"
    else:
        return name, key, text
    raise click.BadParameter(
        "--frontend-config option format is '<frontend name>,<setting>=<value>'. "
        f"Got {value or 'nothing'}; {wrong}"
    )


def _trace_setting(value: str, flag: Flag) -> Setting:
    """Read `<mode>,<setting>=<value>`, or `<setting>=<value>` for every mode, which is then ""."""
    setting, equals, text = value.partition("=")
    mode, comma, key = setting.partition(",")
    if not comma:
        mode, key = "", setting
    if not equals or not key:
        raise click.BadParameter(
            f"--trace-config option format is '<trace mode>,<setting>=<value>'. Got {value}"
        )
    return checked_trace_setting(mode, key, text)


def checked_trace_setting(mode: str, key: str, text: str) -> Setting:
    """The setting, if it makes sense."""
    from tritonpy.tracing.configuration import read_word

    _checked(read_word, mode, key, text)
    return mode, key, text


def _metrics_setting(value: str, flag: Flag) -> str:
    from tritonpy.metrics.settings import read_settings

    _checked(read_settings, (value,))
    return value


def _plugin(value: str, flag: Flag) -> tuple[str, str]:
    """Read `KIND:NAME`, such as `backends:onnxruntime`."""
    from tritonpy.plugin_manager import KINDS

    kind, _, name = value.partition(":")
    if kind not in KINDS or not name:
        raise click.BadParameter(f"got '{value}', expected KIND:NAME with KIND one of {', '.join(KINDS)}")
    return kind, name


def _repository(value: str, flag: Flag) -> str:
    """Read a directory or the URL of a store; one that holds a secret is refused and not shown."""
    if "://" in value:
        from tritonpy.plugin_manager import PluginManager
        from tritonpy.repository.stores.opener import check_root

        try:
            check_root(value, PluginManager("stores"))
        except TritonError as error:
            raise click.BadParameter(error.message) from None
    return value


def _host_policy(value: str, flag: Flag) -> Setting:
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


def _gpu_limit(value: str, flag: Flag) -> tuple[int, float]:
    """Read `<device>:<fraction>`, the part of a GPU's memory from 0.0 to 1.0."""
    device, fraction = _pair(value)
    if not re.fullmatch(r"[+-]?[0-9]{0,9}\.?[0-9]{1,9}", fraction):
        raise click.BadParameter(f"Invalid option value. Got {fraction}; expected a fraction from 0.0 to 1.0")
    if not 0.0 <= float(fraction) <= 1.0:
        raise click.BadParameter(f"expects limit fraction to be in range [0.0, 1.0], got {float(fraction):f}")
    return _device_id(device), float(fraction)


def _gpu_bytes(value: str, flag: Flag) -> tuple[int, int]:
    device, size = _pair(value)
    return _device_id(device), _whole(size, 0, 2**63 - 1)


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


def _resource(value: str, flag: Flag) -> tuple[str, int, int | None]:
    """Read `<resource_name>:<count>`, or `<resource_name>:<count>:<device>`."""
    name, *numbers = value.split(":")
    if not name or len(numbers) not in (1, 2):
        raise click.BadParameter(
            "--rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
            f"'<resource_name>:<count>'. Got {value}"
        )
    count, *devices = (_whole(number, 0, 2**31 - 1) for number in numbers)
    return name, count, devices[0] if devices else None


def _checked(check: Callable[..., object], *words: object) -> None:
    try:
        check(*words)
    except InvalidArg as exc:
        raise click.BadParameter(exc.message) from None


READERS: dict[str, Callable[[str, Flag], object]] = {
    "backend setting": _backend_setting,
    "cache setting": _cache_setting,
    "choice": _choice,
    "choice in any case": _choice_in_any_case,
    "config name": _config_name,
    "fraction": _fraction,
    "frontend setting": _frontend_setting,
    "gpu bytes": _gpu_bytes,
    "gpu limit": _gpu_limit,
    "host policy": _host_policy,
    "metrics setting": _metrics_setting,
    "milliseconds": lambda value, flag: _decimal(value, "milliseconds"),
    "number": read_number,
    "number above 0": _number_above_zero,
    "pattern": _pattern,
    "plugin": _plugin,
    "repository": _repository,
    "resource": _resource,
    "restriction": _restriction,
    "restriction file": _restriction_file,
    "seconds": lambda value, flag: _decimal(value, "seconds"),
    "switch": read_bool,
    "text": lambda value, flag: value,
    "timeout": _timeout,
    "trace setting": _trace_setting,
    "verbosity": _verbosity,
}
"""By the kind of value."""
