"""The public names of PyTriton: read from its source without importing it, and those of 0.7.0."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("names-0.7.0.json")
MODULES = (
    "client",
    "client.client",
    "client.exceptions",
    "client.utils",
    "client.warnings",
    "constants",
    "decorators",
    "exceptions",
    "model_config",
    "model_config.common",
    "model_config.model_config",
    "model_config.tensor",
    "proxy.types",
    "triton",
)
"""What its documentation imports from; the others are how it works inside."""


def read_names(package: Path) -> dict[str, dict[str, Any]]:
    """Public names by module: of a class its methods, fields and arguments, of a function its arguments."""
    return {module: _names(*_source(package, module)) for module in MODULES}


def recorded_names() -> dict[str, dict[str, Any]]:
    """Those of 0.7.0."""
    found: dict[str, dict[str, Any]] = json.loads(RECORDED.read_text())
    return found


def _source(package: Path, module: str) -> tuple[ast.Module, bool]:
    """The source of a module, and whether it is a package, which shows what it imports."""
    path = package / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text()), path.is_dir()


def _names(tree: ast.Module, is_package: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for node in tree.body:
        match node:
            case ast.ClassDef():
                found[node.name] = _class(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                found[node.name] = {"arguments": _arguments(node)}
            case ast.Assign():
                found |= {each.id: {} for each in node.targets if isinstance(each, ast.Name)}
            case ast.ImportFrom() if is_package:
                found |= {each.asname or each.name: {} for each in node.names}
    return {name: found[name] for name in sorted(found) if not name.startswith("_")}


def _class(node: ast.ClassDef) -> dict[str, Any]:
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    fields = [
        each.target.id
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    ]
    fields += [
        target.id
        for each in node.body
        if isinstance(each, ast.Assign)
        for target in each.targets
        if isinstance(target, ast.Name)
    ]
    told: dict[str, Any] = {
        "methods": {each.name: _arguments(each) for each in methods if not each.name.startswith("_")}
    }
    if fields := [name for name in fields if not name.startswith("_")]:
        told["fields"] = fields
    for each in methods:
        if each.name == "__init__":
            told["arguments"] = _arguments(each)
    return told


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return [each.arg for each in given if each.arg not in ("self", "cls")]
