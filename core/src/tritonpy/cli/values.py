"""How values of tritonserver's flags are written: functions for `click.option(type=…)`."""

from __future__ import annotations

import click


def read_bool(value: str | bool) -> bool:
    """Read `true`, `1` or `on` against `false`, `0` or `off`, in any case."""
    text = str(value).lower()
    if text in ("true", "1", "on"):
        return True
    if text in ("false", "0", "off"):
        return False
    raise click.BadParameter(f"got '{value}', expected true, false, 1 or 0")


def read_verbosity(value: str | int) -> int:
    """Read a verbose level: a number from 0, or `true` for 1 and `false` for 0."""
    text = {"true": "1", "false": "0"}.get(str(value).lower(), str(value))
    if not text.isdecimal():
        raise click.BadParameter(f"got '{value}', expected a number from 0 (off) upwards")
    return int(text)


def read_backend_setting(value: str | tuple[str, str, str]) -> tuple[str, str, str]:
    """Read `<backend>,<key>=<value>`, or `<key>=<value>` for every backend, whose name is then ""."""
    if isinstance(value, tuple):  # click reads its own results again
        return value
    setting, equals, text = value.partition("=")
    backend, comma, key = setting.rpartition(",")
    if not equals or not key or (comma and not backend):
        raise click.BadParameter(f"got '{value}', expected <backend>,<key>=<value> or <key>=<value>")
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
