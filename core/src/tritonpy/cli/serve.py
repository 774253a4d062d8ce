"""`corectl serve`: tritonserver's flags, read once into `ServerOptions`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Never

import click

from tritonpy import logs
from tritonpy.cli.not_yet import ServeCommand
from tritonpy.cli.values import read_backend_setting, read_bool, read_plugin_name, read_verbosity
from tritonpy.options import ServerOptions

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]  # Any: click passes one keyword per option

SWITCH_INTERVAL_S = 0.0005
"""How long a busy Python thread may keep the GIL from the event loop.

At Python's own 5 ms a single such thread makes an echo over the loop ten times slower; at 0.5 ms, 1.3 times.
"""

DEFAULTS = {field.name: field.default for field in fields(ServerOptions)}
PORT = click.IntRange(0, 65535)
BYTE_SIZE = click.IntRange(min=0)


def option(flag: str, field: str, help: str, type: object) -> Decorator:
    """An option that fills `field` of `ServerOptions` and takes its default from there."""
    return click.option(flag, field, type=type, default=DEFAULTS[field], show_default=True, help=help)


def switch(flag: str, field: str, help: str) -> Decorator:
    """An option that is true or false, and true when it stands without a value."""
    default = "true" if DEFAULTS[field] else "false"
    return click.option(
        flag,
        field,
        type=read_bool,
        metavar="BOOLEAN",
        is_flag=False,
        flag_value="true",
        default=default,
        show_default=True,
        help=help,
    )


@click.command(cls=ServeCommand)
@click.option(
    "--model-repository",
    "--model-store",
    "model_repositories",
    multiple=True,
    metavar="PATH",
    help="Directory with the models. Required; may be given several times.",
)
@option("--id", "server_id", "Name of the server in its metadata.", click.STRING)
@option(
    "--exit-timeout-secs",
    "exit_timeout_s",
    "How long a stopping server waits for requests in flight.",
    click.IntRange(min=0),
)
@switch("--exit-on-error", "exit_on_error", "End with status 1 when a model cannot be loaded at start.")
@switch("--strict-readiness", "strict_readiness", "Be ready only when every model is ready.")
@click.option(
    "--model-control-mode",
    "model_control_mode",
    default="none",
    show_default=True,
    metavar="MODE",
    help="Who decides what is loaded: `none`: everything, at start; `explicit`: what is asked for.",
)
@click.option(
    "--load-model",
    "load_models",
    multiple=True,
    metavar="NAME",
    help="Load this model at start, in mode `explicit`; `*` for all. May be given several times.",
)
@click.option(
    "--reload",
    "reload",
    is_flag=True,
    help="Load models anew when their files change, without a pause; for development.",
)
@click.option(
    "--disable-auto-complete-config",
    "disable_auto_complete_config",
    is_flag=True,
    help="Take configurations as they are written, without filling in what a model's files say.",
)
@click.option(
    "--strict-model-config",
    "strict_model_config",
    type=read_bool,
    metavar="BOOLEAN",
    is_flag=False,
    flag_value="true",
    default=None,
    help="Deprecated: true is --disable-auto-complete-config.",
)
@click.option(
    "--debug-model",
    "debugged_models",
    multiple=True,
    metavar="NAME",
    help="Run one instance of this model on a thread of the server, without time limits: breakpoint() and "
    "debuggers work. May be given several times.",
)
@option("--backend-directory", "backend_directory", "Where shared-object backends lie.", click.STRING)
@click.option(
    "--backend-config",
    "backend_config",
    multiple=True,
    type=read_backend_setting,
    metavar="[BACKEND,]KEY=VALUE",
    help="Setting of one backend or, without its name, of all. May be given several times.",
)
@click.option(
    "--disable-plugin",
    "disabled_plugins",
    multiple=True,
    type=read_plugin_name,
    metavar="KIND:NAME",
    help="Do not load this plugin. May be given several times.",
)
@option(
    "--strategy-path-policy",
    "strategy_path_policy",
    "Where files of batching strategies may lie: anywhere, or (strict) in the model's directory only.",
    click.Choice(["any", "strict"]),
)
@switch("--allow-http", "allow_http", "Serve HTTP.")
@option("--http-address", "http_address", "Address for HTTP.", click.STRING)
@option("--http-port", "http_port", "Port for HTTP; 0 lets the system choose.", PORT)
@option("--http-max-input-size", "http_max_input_byte_size", "Largest HTTP body in bytes.", BYTE_SIZE)
@switch("--allow-grpc", "allow_grpc", "Serve gRPC.")
@option("--grpc-address", "grpc_address", "Address for gRPC.", click.STRING)
@option("--grpc-port", "grpc_port", "Port for gRPC; 0 lets the system choose.", PORT)
@switch("--allow-metrics", "allow_metrics", "Serve metrics.")
@click.option(
    "--metrics-address", "metrics_address", help="Address for metrics.  [default: the HTTP address]"
)
@option("--metrics-port", "metrics_port", "Port for metrics; 0 lets the system choose.", PORT)
@option(
    "--max-inflight-bytes",
    "max_inflight_byte_size",
    "Bytes of requests held at once; above it clients have to wait. 0 means no limit.",
    BYTE_SIZE,
)
@click.option(
    "--log-verbose",
    "log_verbose",
    type=read_verbosity,
    metavar="LEVEL",
    is_flag=False,
    flag_value="1",
    default="0",
    show_default=True,
    help="Verbose lines up to this level; 0 for none.",
)
@switch("--log-info", "log_info", "Write informational lines.")
@switch("--log-warning", "log_warning", "Write warnings.")
@switch("--log-error", "log_error", "Write errors.")
@option("--log-format", "log_format", "Shape of a log line.", click.Choice(["default", "ISO8601", "json"]))
@click.option("--log-file", "log_file", default="", metavar="PATH", help="Write the log there.")
@click.option("--show-config", is_flag=True, help="Print each value and where it came from, and end.")
@click.pass_context
def serve(ctx: click.Context, /, show_config: bool, **given: Any) -> int:  # Any: one per option above
    """Serve the models of a repository over HTTP and gRPC."""
    options = read_options(ctx, given)
    if show_config:
        click.echo(describe(ctx, options))
        return 0
    try:
        log = logs.configure(options)
    except OSError as exc:
        raise click.UsageError(
            f"Invalid value for '--log-file': cannot write '{options.log_file}': {exc.strerror}", ctx
        ) from exc
    with log:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        from tritonpy.server import run  # everything heavy: after the command line has been found good

        return run(options)


def read_options(ctx: click.Context, given: dict[str, Any]) -> ServerOptions:  # Any: see `serve`
    """Check what concerns several options at once and build the server's options.

    Raises:
        click.UsageError: the options do not go together.
    """
    if not given["model_repositories"]:
        _refuse(ctx, "--model-repository must be specified")
    mode = given["model_control_mode"]
    if mode == "poll":
        _refuse(
            ctx,
            "--model-control-mode=poll is not available in this version; use --model-control-mode=none or "
            "--model-control-mode=explicit",
        )
    if mode not in ("none", "explicit"):
        _refuse(ctx, f"invalid argument for --model-control-mode, got: {mode}; expected none or explicit")
    if given["load_models"] and mode != "explicit":
        _refuse(ctx, "Use of '--load-model' requires setting '--model-control-mode=explicit' as well.")
    disabled = given.pop("disable_auto_complete_config")
    strict = given.pop("strict_model_config")
    if strict is not None:
        click.echo(
            "corectl serve: --strict-model-config is deprecated, use --disable-auto-complete-config", err=True
        )
    given["auto_complete_config"] = not (disabled or strict)
    if given["metrics_address"] is None:
        given["metrics_address"] = given["http_address"]
    options = ServerOptions(**given)
    _check_endpoints(ctx, options)
    return options


def describe(ctx: click.Context, options: ServerOptions) -> str:
    """One line per option: the flag, its value, and whether it is the default."""
    rows: list[tuple[str, str, str]] = []
    for param in ctx.command.params:
        field = param.name
        if not isinstance(param, click.Option) or field is None or field in ("show_config", "help"):
            continue
        was_given = ctx.get_parameter_source(field) is click.core.ParameterSource.COMMANDLINE
        source = "command line" if was_given else "default"
        if field in ("disable_auto_complete_config", "strict_model_config"):
            value = ctx.params[field]
        else:
            value = getattr(options, field)
        if field == "metrics_address" and not was_given:
            source = "--http-address"
        rows.append((param.opts[0], _shown(field, value), source))
    flag_width = max(len(flag) for flag, _, _ in rows)
    value_width = max(len(value) for _, value, _ in rows)
    return "\n".join(f"{flag:{flag_width}}  {value:{value_width}}  {source}" for flag, value, source in rows)


def _shown(field: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or value in ("", ()):
        return "-"
    if field == "backend_config":
        settings: Sequence[tuple[str, str, str]] = value  # type: ignore[assignment]  # as read
        return " ".join(f"{backend},{key}={text}".lstrip(",") for backend, key, text in settings)
    if isinstance(value, tuple):
        return " ".join(part if isinstance(part, str) else ":".join(part) for part in value)
    return str(value)


def _check_endpoints(ctx: click.Context, options: ServerOptions) -> None:
    taken: dict[tuple[str, int], str] = {}
    for service, allowed, address, port in (
        ("HTTP requests", options.allow_http, options.http_address, options.http_port),
        ("GRPC requests", options.allow_grpc, options.grpc_address, options.grpc_port),
        ("metrics requests", options.allow_metrics, options.metrics_address, options.metrics_port),
    ):
        if not allowed or port == 0:
            continue
        other = taken.setdefault((address, port), service)
        if other is not service:
            _refuse(
                ctx,
                f"The server cannot listen to {other} and {service} at the same address and port "
                f"'{address}:{port}'; give one of them another port",
            )


def _refuse(ctx: click.Context, text: str) -> Never:
    raise click.UsageError(text, ctx)
