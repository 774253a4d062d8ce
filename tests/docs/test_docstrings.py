"""A public method says what it does, itself or where it is declared."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path
    for pattern in ("core/src", "sdk/src", "plugins/*/src", "plugins/*/*/src")
    for root in ROOT.glob(pattern)
    for path in root.rglob("*.py")
    if "templates" not in path.parts
)


def classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield path, node


def methods(node: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))


def is_described_elsewhere(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = [ast.unparse(decorator).partition("(")[0] for decorator in method.decorator_list]
    return "hookimpl" in names or "overload" in names or any(name.endswith(".setter") for name in names)


def test_a_public_method_is_documented_or_its_class_names_the_one_that_declares_it() -> None:
    documented: dict[str, set[str]] = {}
    for _, node in classes():
        told = {method.name for method in methods(node) if ast.get_docstring(method)}
        documented.setdefault(node.name, set()).update(told)
    silent = []
    for path, node in classes():
        bases = {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}
        named = bases | set(re.findall(r"`(?:\w+\.)*(\w+)`", ast.get_docstring(node) or ""))
        declared = set().union(*(documented.get(name, set()) for name in named))
        for method in methods(node):
            is_public = not method.name.startswith(("_", "test_")) and not node.name.startswith("_")
            if is_public and not (
                ast.get_docstring(method) or method.name in declared or is_described_elsewhere(method)
            ):
                silent.append(f"{path.relative_to(ROOT)}:{method.lineno} {node.name}.{method.name}")

    assert silent == []
