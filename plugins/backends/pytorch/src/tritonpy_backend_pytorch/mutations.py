"""The placeholders of an exported graph that a call writes to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Node = Any  # Any: a node of `torch.fx`, and PyTorch is not checked here


def written_placeholders(graph: Any) -> frozenset[str]:  # Any: a graph of `torch.fx`
    """Names of the placeholders whose memory an operator writes to, itself or by a view of it."""
    return frozenset(
        origin.name
        for node in graph.nodes
        for argument in _written(node)
        if (origin := _origin(argument)).op == "placeholder"
    )


def _written(node: Node) -> Iterator[Node]:
    """The arguments that a node writes to."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or not schema.is_mutable:
        return
    for index, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
            for each in value if isinstance(value, list | tuple) else (value,):
                if hasattr(each, "op"):
                    yield each


def _origin(node: Node) -> Node:
    """The node that made the memory which a node's value lies in."""
    while node.op == "call_function":
        schema = getattr(node.target, "_schema", None)
        if schema is None:  # such as `getitem` of what a split gave
            source = node.args[0] if node.args and hasattr(node.args[0], "op") else None
        else:
            aliased = [
                node.args[index]
                for index, argument in enumerate(schema.arguments)
                if argument.alias_info is not None and index < len(node.args)
            ]
            source = next((each for each in aliased if hasattr(each, "op")), None)
        if source is None:
            return node
        node = source
    return node
