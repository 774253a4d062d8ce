"""`corectl serve`: tritonserver's flags, read once into `ServerOptions`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, Never

import click

from tritonpy import logs
from tritonpy.cli.malloc import MallocUnavailable, keep_freed_memory, use_allocator
from tritonpy.cli.old_flags import merge_old_flags
from tritonpy.cli.other_flags import MISSING, REASONS, REFUSED, WITHOUT_EFFECT, asks_for_nothing
from tritonpy.cli.serve_flags import FLAGS, GROUPS
from tritonpy.options import RestrictedCalls, ServerOptions

SWITCH_INTERVAL_S = 0.0005
"""How long a busy Python thread may keep the GIL from the event loop.

At Python's own 5 ms a single such thread makes an echo over the loop ten times slower; at 0.5 ms, 1.3 times.
"""

_SECRET = "***"

_log = logging.getLogger("tritonpy.cli.serve")


class ServeCommand(click.Command):
    """A command whose options stand in groups, and which knows the flags of tritonserver."""

    groups = GROUPS

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options under the headings of `groups`."""
        for heading, options in self.groups.items():
            shown = (*options, self.get_help_option(ctx)) if heading == "Server" else options
            rows = [record for option in shown if option and (record := option.get_help_record(ctx))]
            with formatter.section(heading):
                formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line."""
        try:
            return super().parse_args(ctx, list(_with_flags(args)))
        except click.NoSuchOption as exc:
            raise click.UsageError(
                f"unrecognized option '{exc.option_name}'{_alternatives(exc)}", ctx
            ) from exc
        except click.BadParameter as exc:
            if not isinstance(exc.param, click.Option):
                raise
            raise click.UsageError(f'Bad option: "{exc.param.opts[0]}". {exc.message}', ctx) from exc
        except click.BadOptionUsage as exc:
            exc.ctx = ctx  # click forgets it here, and then shows no usage
            raise


def _with_flags(args: Iterable[str]) -> Iterator[str]:
    """Put the flags of HTTP, gRPC and metrics for what `--frontend-config` says to them."""
    words = iter(args)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag == "--frontend-config":
            value = value if equals else next(words, "")
            name, _, setting = value.partition(",")
            has_flags = name in ("http", "grpc", "metrics") and "=" in setting
            yield f"--{name}-{setting}" if has_flags else f"{flag}={value}"
        else:
            yield word


def _alternatives(error: click.NoSuchOption) -> str:
    known = set(error.possibilities or ()).difference(REFUSED)
    possible = get_close_matches(error.option_name, known)  # the closest first; click sorts them by name
    return f"; did you mean {' or '.join(possible)}?" if possible else ""


@click.command(
    cls=ServeCommand, params=[*(option for options in GROUPS.values() for option in options), *MISSING]
)
@click.pass_context
def serve(  # Any: one per option of GROUPS
    ctx: click.Context, /, show_config: bool, malloc: str | None, **given: Any
) -> int:
    """Serve the models of a repository over HTTP and gRPC."""
    ignored = _take_ignored(ctx, given)
    options = read_options(ctx, given)
    if show_config:
        click.echo(_described_options(ctx, options))
        return 0
    if malloc is None:
        keep_freed_memory()
    else:
        try:
            use_allocator(malloc)
        except MallocUnavailable as exc:
            _refuse(ctx, str(exc))
    try:
        log = logs.configure(options)
    except OSError as exc:
        _refuse(ctx, f"Invalid value for '--log-file': cannot write '{options.log_file}': {exc.strerror}")
    with log:
        for flag in ignored:
            _log.warning("%s has no effect: %s", flag, REASONS[flag])
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        from tritonpy.frontends.sockets import raise_descriptor_limit
        from tritonpy.server import run  # everything heavy: after the command line has been found good

        raise_descriptor_limit()
        return run(options, gc_threshold=ctx.obj)


def options_of(flags: Sequence[str]) -> ServerOptions:
    """The options that flags of a command line mean, for servers inside other programs.

    Args:
        flags: as `corectl serve` takes them; those that say how its process runs have no effect.

    Raises:
        click.UsageError: a flag is unknown or has a value that it cannot have, or they do not go together.
    """
    with serve.make_context("serve", list(flags)) as ctx:
        given = {name: value for name, value in ctx.params.items() if name not in ("show_config", "malloc")}
        for flag in _take_ignored(ctx, given):
            _log.warning("%s has no effect: %s", flag, REASONS[flag])
        return read_options(ctx, given)


def _take_ignored(ctx: click.Context, given: dict[str, Any]) -> list[str]:  # Any: see `serve`
    """Take out what has no effect; returns the flags that ask for something."""
    ignored = []
    for option in WITHOUT_EFFECT:
        flag, value = option.opts[0], given.pop(option.human_readable_name)
        if _is_given(ctx, option) and not asks_for_nothing(flag, value):
            ignored.append(flag)
    return ignored


def read_options(ctx: click.Context, given: dict[str, Any]) -> ServerOptions:  # Any: see `serve`
    """Check what concerns several options at once and build the server's options.

    Raises:
        click.UsageError: the options do not go together.
    """
    if not given["model_repositories"]:
        _refuse(ctx, "--model-repository must be specified")
    mode = given["model_control_mode"]
    if given["load_models"] and mode != "explicit":
        _refuse(ctx, "Use of '--load-model' requires setting '--model-control-mode=explicit' as well.")
    given["auto_complete_config"] = not given.pop("disable_auto_complete_config")
    merge_old_flags(ctx, given)
    for name, flag in FLAGS.items():
        if flag.follows and given[name] is None:
            given[name] = given[flag.follows]
    for field, files in (
        ("http_restricted_apis", "http_restricted_api_files"),
        ("grpc_restricted_protocols", "grpc_restricted_protocol_files"),
    ):
        given[field] = (*given[field], *(each for file in given.pop(files) for each in file))
    options = ServerOptions(**given)
    _check_restrictions(ctx, "--http-restricted-api", "api", options.http_restricted_apis)
    _check_restrictions(ctx, "--grpc-restricted-protocol", "protocol", options.grpc_restricted_protocols)
    _check_certificates(ctx, options)
    _check_endpoints(ctx, options)
    return options


def _is_given(ctx: click.Context, option: click.Option) -> bool:
    return ctx.get_parameter_source(option.human_readable_name) is click.core.ParameterSource.COMMANDLINE


def _check_restrictions(
    ctx: click.Context, flag: str, noun: str, restricted: tuple[RestrictedCalls, ...]
) -> None:
    from tritonpy.frontends.restriction import CATEGORIES

    seen: set[str] = set()
    for names, _, _ in restricted:
        for name in names:
            if name not in CATEGORIES:
                expected = ", ".join(CATEGORIES)
                _refuse(
                    ctx, f"Bad option: \"{flag}\". unknown restricted {noun} '{name}'; expected {expected}"
                )
            if name in seen:
                text = f"restricted {noun} '{name}' can not be specified in multiple config groups"
                _refuse(ctx, f'Bad option: "{flag}". {text}')
            seen.add(name)


def _check_certificates(ctx: click.Context, options: ServerOptions) -> None:
    """Refuse TLS settings that lack a file; the content of files is checked when ports are opened."""
    if bool(options.https_certificate) != bool(options.https_key):
        _refuse(ctx, "--https-certificate and --https-key must be given together")
    if options.https_client_ca and not options.https_certificate:
        _refuse(ctx, "--https-client-ca needs --https-certificate and --https-key")
    uses_ssl = options.grpc_use_ssl or options.grpc_use_ssl_mutual
    needed = {
        "--https-certificate": (options.https_certificate, bool(options.https_certificate)),
        "--https-key": (options.https_key, bool(options.https_key)),
        "--https-client-ca": (options.https_client_ca, bool(options.https_client_ca)),
        "--grpc-server-cert": (options.grpc_server_cert, uses_ssl),
        "--grpc-server-key": (options.grpc_server_key, uses_ssl),
        "--grpc-root-cert": (options.grpc_root_cert, options.grpc_use_ssl_mutual),
    }
    wish = "--grpc-use-ssl-mutual" if options.grpc_use_ssl_mutual else "--grpc-use-ssl"
    for flag, (path, is_needed) in needed.items():
        if not is_needed:
            continue
        if not path:
            _refuse(ctx, f"{wish} needs {flag}")
        try:
            with open(path, "rb"):
                pass
        except OSError as exc:
            _refuse(ctx, f"Bad option: \"{flag}\". cannot read '{path}': {os.strerror(exc.errno or 0)}")


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
                f"{address}:{port}; give one of them another port",
            )


def _refuse(ctx: click.Context, text: str) -> Never:
    raise click.UsageError(text, ctx)


def _described_options(ctx: click.Context, options: ServerOptions) -> str:
    """The lines of `--show-config`, one per option: the flag, its value, and where that came from.

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
    if field in ("backend_config", "cache_config", "frontend_config", "trace_config"):
        settings: Sequence[tuple[str, str, str]] = value  # type: ignore[assignment]  # as read
        return " ".join(
            f"{name},{key}={_SECRET if key == 'password' else text}".lstrip(",") if key else name
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
