"""What `corectl serve` does beyond a click command: grouped help, and refusals in tritonserver's words."""

from __future__ import annotations

from difflib import get_close_matches

import click

from tritonpy.cli.other_flags import REFUSED
from tritonpy.cli.serve_flags import GROUPS


class ServeCommand(click.Command):
    """A command whose options stand in groups, and which knows what tritonserver has."""

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
            return super().parse_args(ctx, args)
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


def _alternatives(error: click.NoSuchOption) -> str:
    known = set(error.possibilities or ()).difference(REFUSED)
    possible = get_close_matches(error.option_name, known)  # the closest first; click sorts them by name
    return f"; did you mean {' or '.join(possible)}?" if possible else ""
