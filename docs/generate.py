"""Write what pages say of code: commands, hooks, what plugins import, Triton's C API, the list of modules.

`make docs` runs it; a test runs it with `--check`, which writes nothing and names the pages that are stale.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Sequence
from enum import Enum
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import click
from tritonpy.cli.main import BUILT_IN, ELSEWHERE, build_group
from tritonpy.plugin_manager import KINDS
from tritonpy_abi.build import exported, read_sources, unsupported
from typing_extensions import is_protocol

REFERENCE = Path(__file__).resolve().parent / "reference"
STRUCTURE = Path(__file__).resolve().parent / "structure.md"
CORE = Path(__file__).resolve().parents[1] / "core/src/tritonpy"
MODULES_BEGIN = (
    "<!-- The list of modules is written by `make docs`; edit the first lines of modules instead. -->"
)
MODULES_END = "<!-- The end of the list. -->"
MODULE_WIDTH = 32  # of names with their indents
PAGE_WIDTH = 118
NOTE = "<!-- Written by `make docs` from the code; edit the code instead. -->\n"


def command_line() -> str:
    """Every command of `corectl` with its arguments and options."""
    parts = [
        "# Command line",
        NOTE,
        "Every command ends with status 0 when it did what was asked, and with 1 when it did not or was not",
        "understood. `corectl COMMAND --help` prints what stands here.",
        "",
        "The tab key completes commands and options after this line in `~/.bashrc`; zsh and fish have",
        "`zsh_source` and `fish_source`:",
        "",
        "```console",
        '$ eval "$(_CORECTL_COMPLETE=bash_source corectl)"',
        "```",
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


def plugin_api() -> str:
    """Every name that plugins import from `tritonpy.plugin`, by what it is about."""
    door = importlib.import_module("tritonpy.plugin")
    names = {name: home for name, home in _homes(door).items() if name in door.__all__}
    parts = ["# Python API of plugins", NOTE, *inspect.cleandoc(door.__doc__ or "").split("\n", 1), ""]
    parts += [
        "What hooks are and when they are called is in [hooks](hooks.md). Everything here is imported so:"
    ]
    parts += ["", "```python", "from tritonpy.plugin import InferResponse, hookimpl", "```"]
    for heading, homes in CHAPTERS.items():
        parts += ["", f"## {heading}"]
        for name in (name for name, home in names.items() if home in homes):
            parts += ["", f"### {name}", "", *_public_name(name, getattr(door, name), names[name])]
    return "\n".join(parts) + "\n"


CHAPTERS = {
    "What hooks are given": ("tritonpy.handles", "tritonpy.hookspecs", "tritonpy.json_object"),
    "Calls of other models": ("tritonpy.server_link",),
    "Requests and responses": ("tritonpy.request", "tritonpy.request_trace", "tritonpy.response"),
    "Tensors and where their bytes are": ("tritonpy.tensor", "tritonpy.buffers", "tritonpy.datatypes"),
    "Raw inputs": ("tritonpy.raw_input",),
    "From requests to batches": (
        "tritonpy.batches.plan",
        "tritonpy.batches.bindings",
    ),
    "Completing a configuration": ("tritonpy.completion",),
    "Parameters, and the cores of the machine": ("tritonpy.parameters", "tritonpy.cores"),
    "Custom operators": ("tritonpy.op_libraries",),
    "What frontends ask": ("tritonpy.dataplane", "tritonpy.admission", "tritonpy.flow"),
    "Model repositories": ("tritonpy.store", "tritonpy.fingerprint", "tritonpy.temporary"),
    "Errors": ("tritonpy.errors",),
}
"""The chapters of the page on the Python API, and whose names they hold."""

GIVEN = (
    "Admission",
    "AgentLoad",
    "Answer",
    "Backend",
    "Batch",
    "Batcher",
    "Cache",
    "DrivenModel",
    "Frontend",
    "FunctionContext",
    "LocalModel",
    "Model",
    "ModelFacts",
    "ModelInstance",
    "OpenCache",
    "OpenCall",
    "OpenStrategy",
    "Outputs",
    "PythonModel",
    "RepoAgent",
    "RepoAgentModel",
    "Request",
    "ResponseFlow",
    "ResponseStream",
    "ServerLink",
    "Unready",
)
"""Classes whose objects plugins, functions and tests are given and do not make."""

NOT_CALLED = {
    "Frontend": {"begin_stop", "set_drained"},
    "InferRequest": {"about", "count_response", "deliver", "fail", "give_up", "label"},
    "InferResponse": {"keep"},
    "RequestTrace": {"started", "queued", "computed", "hold", "responded"},
    "ResponseFlow": {"end", "when_open"},
    "ResponseStream": {"on_response", "end"},
    "Request": {"read", "replaced"},
    "Tensor": {"config", "fault"},
    "ModelConfig": {"config", "files"},
    "DynamicBatcher": {"config"},
    "SequenceBatcher": {"config", "files"},
    "DirectStrategy": {"config"},
    "OldestStrategy": {"config"},
    "Control": {"config"},
    "State": {"config", "initial_bytes", "output"},
    "RateLimiter": {"config"},
    "Resource": {"config"},
    "QueuePolicy": {"config"},
    "ModelWarmup": {"config"},
}
"""Members of the names above that only the server calls, or the SDK."""


FOR_PROGRAMS = (
    r"TRITONSERVER_Server(Options\w+|New|Delete|Stop|SetExitTimeout)$",
    r"TRITONSERVER_Server(Poll|Register|Unregister)ModelRepository$",
)
"""Functions that only a program which has a server in it needs."""


SDK = {
    "Functions as models": (
        "tritonpy_sdk",
        ("Tensor", "ModelConfig", "DynamicBatcher", "QueuePolicy", "TimeoutAction"),
        ("SequenceBatcher", "DirectStrategy", "OldestStrategy", "Control", "ControlKind", "State"),
        ("InitialState", "RateLimiter", "Resource"),
        ("ModelWarmup", "WarmupInput", "Request", "FunctionContext", "UnrecoverableError"),
    ),
    "Decorators of functions": (
        "tritonpy_sdk",
        ("batch", "sample", "group_by_keys", "group_by_values", "ConstantPadder", "fill_optionals"),
        ("first_value", "pad_batch", "triton_context"),
    ),
    "A server in the program, and its models": (
        "tritonpy_sdk",
        ("Server", "LOCAL", "LocalModel", "Outputs", "ResponseStream", "RemoteServer"),
    ),
    "Model repositories in code": ("tritonpy_sdk", ("ModelRepository",)),
    "More": ("tritonpy_sdk",),
    "Clients of one model": ("tritonpy_sdk.clients",),
    "Tests without a server, and conformance": ("tritonpy_sdk.testing",),
}
"""The chapters of the page on the SDK: the package, and which of its names; without any, all others."""


def sdk() -> str:
    """Every public name of the SDK, by what it is about."""
    parts = ["# Python API of the SDK", NOTE]
    parts += [
        "What programs, tests and notebooks import from `tritonpy_sdk`. For PyTriton's names see",
        "[Move from PyTriton](../how-to/move-from-pytriton.md), for what plugins import",
        "[Python API of plugins](plugin-api.md).",
    ]
    chosen = {name for _, *groups in SDK.values() for group in groups for name in group}
    for heading, (package, *groups) in SDK.items():
        door = importlib.import_module(package)
        names = [name for group in groups for name in group]
        names = names or [name for name in door.__all__ if package != "tritonpy_sdk" or name not in chosen]
        if not names:
            continue
        parts += ["", f"## {heading}", "", "```python", f"from {package} import {names[0]}", "```"]
        for name in names:
            value = getattr(door, name)
            home = value.__module__ if hasattr(value, "__name__") else _home_of_value(name, package)
            parts += ["", f"### {name}", "", *_public_name(name, value, home)]
    return "\n".join(parts) + "\n"


def _home_of_value(name: str, package: str) -> str:
    """The module of a package that assigns a name."""
    for path in sorted(Path(importlib.import_module(package).__path__[0]).glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                return f"{package}.{path.stem}"
    raise LookupError(f"no module of {package} assigns {name}")


def c_api() -> str:
    """Which functions of Triton's C API work in shared objects, and in which header they are."""
    sources = read_sources()
    missing = unsupported(sources)
    headers = {
        name.removeprefix("include/"): text.decode()
        for name, text in sources.items()
        if name.startswith("include/")
    }
    parts = [
        "# The C API",
        NOTE,
        f"The library in which shared objects compiled for Triton find its functions exports all "
        f"{len(exported())} of them.",
        f"{len(exported()) - len(missing)} work; the other {len(missing)} return `UNSUPPORTED` and say their "
        f"name.",
        "",
        "Those that work are declared in headers of `tritonpy-sdk`, by which authors compile.",
        "What is different for backends stands in [their page](../how-to/use-compiled-backends.md).",
    ]
    found = set(missing)
    for header in sorted(headers, key=lambda name: (name != "tritonpy/core.h", name)):
        names = [
            name for name in exported() if name not in found and re.search(rf"\b{name}\(", headers[header])
        ]
        found.update(names)
        if names:
            parts += ["", f"## {header}", "", *(f"* `{name}`" for name in names)]
    others = [name for name in exported() if name not in found]
    parts += ["", "## In no header", "", "Names of trace levels and activities:", ""]
    parts += [f"* `{name}`" for name in others]
    for_programs = [name for name in missing if any(re.match(each, name) for each in FOR_PROGRAMS)]
    rest = [name for name in missing if name not in for_programs]
    parts += ["", "## For programs that have a server in them", ""]
    parts += ["A plugin has a server already, and cannot start, stop or configure one: `UNSUPPORTED`.", ""]
    parts += [f"* `{name}`" for name in for_programs]
    parts += ["", "## Not supported", "", *(f"* `{name}`" for name in rest)]
    return "\n".join(parts) + "\n"


def structure() -> str:
    """The page about the layout of the code, its list of modules made anew: each with its first line."""
    before, _, rest = STRUCTURE.read_text().partition(MODULES_BEGIN)
    _, _, after = rest.partition(MODULES_END)
    return f"{before}{MODULES_BEGIN}\n\n```\n{_modules(CORE, 0)}```\n\n{MODULES_END}{after}"


def _modules(folder: Path, depth: int) -> str:
    lines = _module_line(f"{folder.name}/", folder / "__init__.py", depth)
    for path in sorted(folder.glob("*.py")):
        if path.name != "__init__.py":
            lines += _module_line(path.name, path, depth + 1)
    for package in sorted(path.parent for path in folder.glob("*/__init__.py")):
        lines += _modules(package, depth + 1)
    return lines


def _module_line(name: str, path: Path, depth: int) -> str:
    first = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
    indent = "  " * depth
    return (
        textwrap.fill(
            f"{indent}{name:<{MODULE_WIDTH - len(indent) - 1}} {first}",
            width=PAGE_WIDTH,
            subsequent_indent=" " * MODULE_WIDTH,
            drop_whitespace=True,
            break_long_words=False,
            break_on_hyphens=False,
        )
        + "\n"
    )


PAGES = {
    REFERENCE / "cli.md": command_line,
    REFERENCE / "hooks.md": hooks,
    REFERENCE / "plugin-api.md": plugin_api,
    REFERENCE / "sdk.md": sdk,
    REFERENCE / "c-api.md": c_api,
    STRUCTURE: structure,
}


def main(arguments: list[str]) -> int:
    """Write the pages, or check them."""
    stale: list[str] = []
    for path, make in PAGES.items():
        text = make()
        if path.exists() and path.read_text() == text:
            continue
        stale.append(path.name)
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
    value = option.to_info_dict()["default"]  # None also where click has a mark for that
    return "" if value is None or value in ("", ()) else f"`{value}`"


def _homes(door: ModuleType) -> dict[str, str]:
    """The module that each name of a module is imported from, in the order of the imports."""
    imports = [node for node in ast.parse(inspect.getsource(door)).body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


def _public_name(name: str, value: object, home: str) -> list[str]:
    if name == "hookimpl":
        return ["Marks a function of a plugin as the hook of its name, or of `specname=` if that is given."]
    if inspect.isfunction(value):
        return ["```python", _signature(name, value), "```", "", _prose(inspect.getdoc(value) or "")]
    if inspect.isclass(value) and value.__module__ == home:
        return _class(name, value)
    return [_prose(_value_docstring(name, home))]


def _class(name: str, described: type) -> list[str]:
    text = _prose((inspect.getdoc(described) or "").split("\n\nFor the server only:")[0])
    for base in _shown_bases(described):  # whose arguments it takes, and says so
        text += "\n\n" + _prose("Args:" + (inspect.getdoc(base) or "").partition("Args:")[2])
    parts = [text]
    if issubclass(described, Enum):
        return [*parts, "", *(f"* `{member.name}`: {member.value}" for member in described)]
    members: dict[str, object] = {}
    for shown in (described, *_shown_bases(described)):
        members = {**vars(shown), **members}
    rules = [key for key in members if key.startswith("test_")]
    is_made_by_plugins = not (
        issubclass(described, Exception) or is_protocol(described) or name in GIVEN or rules
    )
    if is_made_by_plugins:
        parts = ["```python", _constructor(name, described), "```", "", text]
    parts += ["", *(f"* {key.replace('_', ' ').removeprefix('test ')}" for key in rules)] if rules else []
    for key, member in members.items():
        if key.startswith(("_", "test_", "pytest_")) or key in NOT_CALLED.get(name, ()):
            continue
        function = getattr(member, "__func__", member)
        if isinstance(member, property):
            parts += ["", f"#### {name}.{key}", "", _prose(inspect.getdoc(member) or "")]
        elif inspect.isfunction(function):
            parts += ["", f"#### {name}.{key}", "", "```python", _signature(key, function), "```", ""]
            parts.append(_prose(inspect.getdoc(function) or ""))
    return parts


def _shown_bases(described: type) -> list[type]:
    """Bases of a class of the SDK that have no place of their own on its page."""
    return [
        base
        for base in described.__mro__[1:]
        if base.__module__.startswith("tritonpy_sdk.") and base.__name__.startswith("Base")
    ]


def _constructor(name: str, described: type) -> str:
    return f"{name}({_parameters(inspect.signature(described))})"


def _value_docstring(name: str, home: str) -> str:
    """The string behind the assignment of a module's name."""
    body = ast.parse(inspect.getsource(importlib.import_module(home))).body
    for node, behind in pairwise(body):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == name and isinstance(behind, ast.Expr):
            assert isinstance(behind.value, ast.Constant)
            return inspect.cleandoc(str(behind.value.value))
    raise LookupError(f"{home}.{name} has no docstring")


def _signature(name: str, function: object) -> str:
    signature = inspect.signature(function, eval_str=False)  # type: ignore[arg-type]  # a function
    prefix = "async " if inspect.iscoroutinefunction(function) else ""
    return f"{prefix}def {name}({_parameters(signature)}) -> {signature.return_annotation}"


def _parameters(signature: inspect.Signature) -> str:
    shown: list[str] = []
    for name, parameter in signature.parameters.items():
        if name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not any(text.startswith("*") for text in shown):
            shown.append("*")
        name = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "") + name
        text = name if parameter.annotation is parameter.empty else f"{name}: {parameter.annotation}"
        if parameter.default is not parameter.empty:
            is_made = repr(parameter.default).startswith("<")  # by a factory, for each object
            text += " = ..." if is_made else f" = {parameter.default!r}"
        shown.append(text)
    return ", ".join(shown)


def _prose(text: str) -> str:
    """Google sections as Markdown lists."""
    lines: list[str] = []
    section = ""
    for line in text.splitlines():
        heading = re.fullmatch(r"(Args|Class arguments|Attributes|Returns|Raises):", line)
        entry = re.fullmatch(r" {4}(\*{0,2}\w+(?:, \w+)*): (.*)", line)
        if heading:
            section = heading[1]
        elif section and entry:
            raises = "raises " if section == "Raises" else ""
            lines.append(f"* {raises}`{entry[1]}`: {entry[2]}")
        elif section and line.startswith("    "):
            lines.append(f"  {line.strip()}")
        else:
            section = section if not line else ""
            lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
