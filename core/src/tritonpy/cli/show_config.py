"""`corectl serve --show-config`: each option with its value and where that came from."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tritonpy.cli.serve_flags import FLAGS
from tritonpy.options import RestrictedCalls, ServerOptions

_SECRET = "***"


def describe(ctx: click.Context, options: ServerOptions) -> str:
    """One line per option: the flag, its value, and where that came from.

    What a header must say to pass a restriction is not shown: such lists end up in tickets.
    """
    rows: list[tuple[str, str, str]] = []
    for param in ctx.command.params:
        field = param.name
        if not isinstance(param, click.Option) or field is None or field == "show_config" or param.hidden:
            continue
        was_given = ctx.get_parameter_source(field) is click.core.ParameterSource.COMMANDLINE
        source = "command line" if was_given else "default"
        flag = FLAGS.get(field)
        if flag and flag.follows and not was_given:
            source = FLAGS[flag.follows].name
        value = getattr(options, field) if hasattr(options, field) else ctx.params[field]
        rows.append((param.opts[0], _shown(field, value), source))
    flag_width = max(len(flag) for flag, _, _ in rows)
    value_width = max(len(value) for _, value, _ in rows)
    return "\n".join(f"{flag:{flag_width}}  {value:{value_width}}  {source}" for flag, value, source in rows)


def _shown(field: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or value in ("", ()):
        return "-"
    if field in ("backend_config", "cache_config", "trace_config"):
        settings: Sequence[tuple[str, str, str]] = value  # type: ignore[assignment]  # as read
        return " ".join(
            f"{name},{key}={_SECRET if key == 'password' else text}".lstrip(",")
            for name, key, text in settings
        )
    if field in ("http_restricted_apis", "grpc_restricted_protocols"):
        calls: Sequence[RestrictedCalls] = value  # type: ignore[assignment]  # as read
        return " ".join(f"{','.join(names)}:{header}={_SECRET}" for names, header, _ in calls)
    if field.endswith("_files"):
        files: Sequence[Sequence[RestrictedCalls]] = value  # type: ignore[assignment]  # as read
        return f"{sum(map(len, files))} lines"
    if isinstance(value, tuple):
        return " ".join(part if isinstance(part, str) else ":".join(map(str, part)) for part in value)
    return str(value)
