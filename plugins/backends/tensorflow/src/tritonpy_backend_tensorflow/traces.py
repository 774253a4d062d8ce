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
    """

    leaves_traces: bool
    shows_memory: bool


def judge(graph_def: Any, outputs: Iterable[str]) -> Verdict:  # Any: a message of TensorFlow
    """Look at all operators that take part in computing outputs.

    Args:
        graph_def: the graph with its functions.
        outputs: names of tensors.
    """
    fetched = list(outputs)
    writes = _leaves_traces(graph_def, fetched)
    shows = writes and any(node.op in _REFERENCES for node in _reachable(graph_def.node, fetched))
    return Verdict(writes, shows)


def _leaves_traces(graph_def: Any, outputs: Iterable[str]) -> bool:
    from tensorflow.python.framework import op_def_registry

    functions = {function.signature.name: function for function in graph_def.library.function}
    seen: set[str] = set()
    verdicts: dict[str, bool] = {}

    def writes(op: str) -> bool:
        if op not in verdicts:
            definition = op_def_registry.get(op)
            verdicts[op] = not (op in _HARMLESS or op.startswith(_SHORT_LIVED)) and (
                definition is None
                or definition.is_stateful
                or any(argument.is_ref for argument in definition.input_arg)
            )
        return verdicts[op]

    pending = [_reachable(graph_def.node, outputs)]
    while pending:
        for node in pending.pop():
            called = [name for name in _functions_of(node) if name in functions]
            if node.op not in functions and writes(node.op):
                return True
            for name in called:
                if name not in seen:
                    seen.add(name)
                    pending.append(iter(functions[name].node_def))
    return False


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
