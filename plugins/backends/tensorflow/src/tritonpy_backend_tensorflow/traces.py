"""Verdict on a graph: whether a call leaves traces in it that later calls see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

_HARMLESS = frozenset(
    (
        # variables and tables that are only read
        "VarHandleOp", "_VarHandlesOp", "ReadVariableOp", "_ReadVariablesOp", "VarIsInitializedOp",
        "VariableShape", "ResourceGather", "ResourceGatherNd", "Variable", "VariableV2",
        "IsVariableInitialized", "HashTable", "HashTableV2", "MutableHashTable", "MutableHashTableV2",
        "MutableDenseHashTable", "MutableDenseHashTableV2", "MutableHashTableOfTensors",
        "MutableHashTableOfTensorsV2", "LookupTableFind", "LookupTableFindV2", "LookupTableSize",
        "LookupTableSizeV2", "LookupTableExport", "LookupTableExportV2",
        "RefIdentity", "RefSwitch", "RefMerge", "RefSelect",
        # functions, whose bodies are looked into
        "StatefulPartitionedCall", "If", "While", "Case",
        # random numbers, of which no call expects particular ones
        "RandomUniform", "RandomUniformInt", "RandomStandardNormal", "RandomShuffle", "RandomGamma",
        "RandomPoisson", "RandomPoissonV2", "TruncatedNormal", "ParameterizedTruncatedNormal", "Multinomial",
        # messages
        "Assert", "Print", "PrintV2", "Timestamp",
    )
)  # fmt: skip
"""Stateful operators, and such that take a reference, that change nothing for later calls."""

_SHORT_LIVED = "TensorArray"
"""How operators begin whose state lives no longer than a call."""


_REFERENCES = frozenset(("Variable", "VariableV2"))
"""Variables of TensorFlow 1, in whose memory outputs may lie while later calls write to it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What calls of a graph do.

    Attributes:
        leaves_traces: they may change variables, tables, queues or whatever else outlives a call. Operators
            that are not known are taken to do so.
        shows_memory: what they give may lie in memory that later calls write to.
        operator_count: how many operators take part, each function counted once.
    """

    leaves_traces: bool
    shows_memory: bool
    operator_count: int


def judge(graph_def: Any, outputs: Iterable[str]) -> Verdict:  # Any: a message of TensorFlow
    """Look at all operators that take part in computing outputs.

    Args:
        graph_def: the graph with its functions.
        outputs: names of tensors.
    """
    from tensorflow.python.framework import op_def_registry

    nodes = list(_all_nodes(graph_def, outputs))
    functions = {function.signature.name for function in graph_def.library.function}
    operators = {node.op for node in nodes} - functions
    writes = any(_writes(op, op_def_registry.get(op)) for op in operators)
    return Verdict(writes, writes and not _REFERENCES.isdisjoint(operators), len(nodes))


def _writes(op: str, definition: Any) -> bool:
    """True for an operator that may change what a later call sees, by what TensorFlow says of it."""
    if op in _HARMLESS or op.startswith(_SHORT_LIVED):
        return False
    return (
        definition is None
        or definition.is_stateful
        or any(argument.is_ref for argument in definition.input_arg)
    )


def _all_nodes(graph_def: Any, outputs: Iterable[str]) -> Iterator[Any]:
    """The nodes that take part in computing outputs, and those of the functions that these call."""
    functions = {function.signature.name: function for function in graph_def.library.function}
    seen: set[str] = set()
    pending = [_reachable(graph_def.node, outputs)]
    while pending:
        for node in pending.pop():
            yield node
            for name in _functions_of(node):
                if name in functions and name not in seen:
                    seen.add(name)
                    pending.append(iter(functions[name].node_def))


def _reachable(nodes: Iterable[Any], outputs: Iterable[str]) -> Iterator[Any]:
    """The nodes that take part in computing outputs."""
    by_name = {node.name: node for node in nodes}
    pending = [_node_name(output) for output in outputs]
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if name in seen or name not in by_name:
            continue
        seen.add(name)
        node = by_name[name]
        yield node
        pending += map(_node_name, node.input)


def _node_name(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]


def _functions_of(node: Any) -> Iterator[str]:
    """Names of the functions that a node may call."""
    yield node.op
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        elif value.HasField("list"):
            yield from (function.name for function in value.list.func)
