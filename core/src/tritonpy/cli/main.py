"""`corectl`: one group whose commands are imported only when they are called.

Listing the commands must stay quick, so the built-in ones are a table, and installed distributions are asked
only for commands (group `tritonpy.cli`) that the table does not have.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence

import click

# name: module that holds a click command of that name, one line for the listing
BUILT_IN = {
    "config": ("tritonpy.cli.config", "Check, show and convert configurations of models, without a server."),
    "explain": ("tritonpy.cli.explain", "Say why the batches of a model have the sizes they have."),
    "infer": ("tritonpy.cli.infer", "Send one inference request to a running server."),
    "models": ("tritonpy.cli.models", "List the models of a running server, load and unload them."),
    "plugins": ("tritonpy.cli.plugins", "List the plugins installed here."),
    "serve": ("tritonpy.cli.serve", "Serve the models of a repository over HTTP and gRPC."),
    "trace": ("tritonpy.cli.trace", "Show where the time of traced requests went."),
}

REPLACEABLE = frozenset({"explain"})
"""Of these a distribution that is installed may bring a command of the same name that does more."""

# name: distribution that adds a command of that name
ELSEWHERE = {
    "analyze": "tritonpy-analyze",
    "bench": "tritonpy-bench",
    "cluster": "tritonpy-router",
    "compose": "tritonpy-compose",
    "new": "tritonpy-sdk",
    "route": "tritonpy-router",
}


_OBJECTS_OF_IMPORTS = 100_000
"""About as many as importing a server makes; nearly all of them stay."""


class LazyGroup(click.Group):
    """A group that knows its built-in commands by name and looks for others when it must."""

    _asked_plugins = False

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of built-in commands, then of those that plugins add."""
        self._ask_plugins()
        return sorted(BUILT_IN) + sorted(set(self.commands) - set(BUILT_IN))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command called `cmd_name`."""
        if cmd_name in REPLACEABLE:
            self._ask_plugins()
        if cmd_name in BUILT_IN and not (cmd_name in REPLACEABLE and cmd_name in self.commands):
            command = getattr(importlib.import_module(BUILT_IN[cmd_name][0]), cmd_name)
            assert isinstance(command, click.Command)
            return command
        self._ask_plugins()
        if cmd_name in ELSEWHERE and cmd_name not in self.commands:
            needed = ELSEWHERE[cmd_name]
            raise click.ClickException(f"'corectl {cmd_name}' comes with {needed}: pip install {needed}")
        return self.commands.get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that a command line begins with."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as exc:
            from difflib import get_close_matches

            # Click knows the commands that plugins add, not those of the table.
            if close := get_close_matches(args[0], self.list_commands(ctx)):
                text = f"No such command '{args[0]}'; did you mean {' or '.join(close)}?"
                raise click.UsageError(text, ctx) from exc
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The listing of `--help`, without importing a built-in command."""
        rows = []
        for name in self.list_commands(ctx):
            if name in BUILT_IN:
                rows.append((name, BUILT_IN[name][1]))
            elif not self.commands[name].hidden:
                rows.append((name, self.commands[name].get_short_help_str(80)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def _ask_plugins(self) -> None:
        if self._asked_plugins:
            return
        self._asked_plugins = True
        from importlib.metadata import entry_points

        if not entry_points(group="tritonpy.cli"):
            return  # the machinery of plugins takes a moment to import: only when it is needed
        from tritonpy.plugin_manager import PluginManager

        manager = PluginManager("cli")
        for name in manager.names():
            try:
                add_commands = manager.bind(manager.load(name), "cli_commands")
                if add_commands is not None:
                    add_commands(self)
            except Exception as exc:  # a broken plugin must not take the other commands with it
                click.echo(f"corectl: {exc}", err=True)


def _show_version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if wanted:
        from tritonpy.version import __version__

        click.echo(f"corectl {__version__}")
        ctx.exit()


def build_group() -> LazyGroup:
    """The group without any command imported; a fresh one looks for plugins again."""
    version = click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_version,
        help="Show the version and exit.",
    )
    return LazyGroup(
        "corectl",
        help="Serve models, and talk to a server that does.",
        params=[version],
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def _open_standard_streams() -> None:
    """Open those of the descriptors 0 to 2 that are closed on `/dev/null`.

    Sockets and files would get their numbers otherwise, and libraries and child processes that mean the
    streams would write there.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `corectl` and return its exit status; wrong usage is 1, as with tritonserver."""
    _open_standard_streams()
    # The collector would look through what is imported, again and again, and find nothing. A server that has
    # started sets it back, see `serve`.
    threshold = gc.get_threshold()
    gc.set_threshold(_OBJECTS_OF_IMPORTS, *threshold[1:])
    try:
        status = build_group().main(args=arguments, prog_name="corectl", standalone_mode=False, obj=threshold)
    except click.exceptions.Exit as exc:
        return exc.exit_code
    except click.Abort:
        click.echo("Aborted.", err=True)
        return 130
    except click.ClickException as exc:
        exc.show()
        return 1
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        sys.stderr.close()
        return 1
    finally:
        gc.set_threshold(*threshold)
    return status if isinstance(status, int) else 0


if __name__ == "__main__":
    sys.exit(main())
