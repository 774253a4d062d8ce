"""Write the reference pages that are made from code: the command line and the hooks.

`make docs` runs it; a test runs it with `--check`, which writes nothing and names the pages that are stale.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from tritonpy.cli.main import BUILT_IN, ELSEWHERE, build_group
from tritonpy.plugin_manager import KINDS

REFERENCE = Path(__file__).resolve().parent / "reference"
NOTE = "<!-- Written by `make docs` from the code; edit the code instead. -->\n"


def command_line() -> str:
    """Every command of `corectl` with its arguments and options."""
    parts = [
        "# Command line",
        NOTE,
        "Every command ends with status 0 when it did what was asked, and with 1 when it did not or was not",
        "understood. `corectl COMMAND --help` prints what stands here.",
    ]
    group = build_group()
    for name in sorted({*BUILT_IN, *ELSEWHERE}):
        command = group.get_command(click.Context(group), name)
        assert command is not None  # built in, or an error says what is not installed
        parts += _command(command, f"corectl {name}")
        if name in ELSEWHERE:
            parts += ["", f"This one comes with the distribution `{ELSEWHERE[name]}`."]
    return "\n".join(parts) + "\n"


def hooks() -> str:
    """Every hook with its signature and contract, by kind of plugin."""
    module = importlib.import_module("tritonpy.hookspecs")
    introduction = inspect.cleandoc(module.__doc__ or "").split("\n", 1)
    parts = ["# Hooks", NOTE, *introduction]
    for kind, specs in KINDS.items():
        parts += ["", f"## {kind}", "", _prose(inspect.cleandoc(specs.__doc__ or ""))]
        for name, function in vars(specs).items():
            if not inspect.isfunction(function):
                continue
            parts += ["", f"### {name}", "", "```python", _signature(name, function), "```", ""]
            parts.append(_prose(inspect.getdoc(function) or ""))
    return "\n".join(parts) + "\n"


PAGES = {"cli.md": command_line, "hooks.md": hooks}


def main(arguments: list[str]) -> int:
    """Write the pages, or check them."""
    stale: list[str] = []
    for name, make in PAGES.items():
        path, text = REFERENCE / name, make()
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.write_text(text)
            print(f"wrote {path}")
    if stale and "--check" in arguments:
        print(f"stale, run `make docs`: {', '.join(stale)}")
        return 1
    return 0


def _command(command: click.Command, name: str) -> list[str]:
    context = click.Context(command, info_name=name)
    parts = ["", f"## {name}", "", inspect.cleandoc(command.help or "")]
    parts += ["", "```", command.get_usage(context), "```"]
    groups: dict[str, Sequence[click.Parameter]] = getattr(command, "groups", {"": command.params})
    for heading, params in groups.items():
        parts += ["", f"### {heading}"] if heading else []
        parts += ["", "| Option | Default | Meaning |", "| --- | --- | --- |", *_options(params, context)]
    if isinstance(command, click.Group):
        for below in sorted(command.commands):
            parts += _command(command.commands[below], f"{name} {below}")
    return parts


def _options(params: Sequence[click.Parameter], context: click.Context) -> list[str]:
    # Not `get_help_record`, whose wording changes between versions of click.
    rows = []
    for param in params:
        if not isinstance(param, click.Option):
            continue
        flags = " ".join(filter(None, [", ".join(param.opts), _value_name(param)])).replace("|", "\\|")
        help_text, _, told_default = (param.help or "").replace("|", "\\|").partition("  [default: ")
        default = told_default.rstrip("]") or _default(param, context)
        rows.append(f"| `{flags}` | {default} | {help_text} |")
    return rows


def _value_name(option: click.Option) -> str:
    if option.is_flag:
        return ""
    if option.metavar is not None:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return "|".join(option.type.choices)
    return "NUMBER" if option.type.name.split()[0] in ("integer", "float") else "TEXT"


def _default(option: click.Option, context: click.Context) -> str:
    if option.required:
        return "required"
    if option.is_flag or option.multiple:
        return ""
    value = option.get_default(context)
    return "" if value is None or value in ("", ()) else f"`{value}`"


def _signature(name: str, function: object) -> str:
    signature = inspect.signature(function, eval_str=False)  # type: ignore[arg-type]  # a function
    shown = [str(param) for key, param in signature.parameters.items() if key != "self"]
    returns = str(signature.return_annotation)
    return f"def {name}({', '.join(shown)}) -> {returns}".replace("'", "")


def _prose(text: str) -> str:
    """Google sections as Markdown lists."""
    lines: list[str] = []
    section = ""
    for line in text.splitlines():
        heading = re.fullmatch(r"(Args|Returns|Raises):", line)
        entry = re.fullmatch(r" {4}(\w+): (.*)", line)
        if heading:
            section = heading[1]
        elif section and entry:
            lines.append(f"* `{entry[1]}`: {entry[2]}")
        elif section and line.startswith("    "):
            lines.append(f"  {line.strip()}")
        else:
            section = section if not line else ""
            lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
