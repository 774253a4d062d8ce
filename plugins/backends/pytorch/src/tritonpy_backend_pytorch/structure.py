"""Names for all values in the call and the result of a model whose file tells how they are nested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch.utils import _pytree as pytree

from tritonpy_backend_pytorch.names import Path, path_text

Spec = Any  # Any: PyTorch's `TreeSpec`, which is not public
"""How values are nested."""


class CallStructure:
    """Values of a call in the order in which PyTorch flattens it: positional ones, then those by name.

    Args:
        spec: of a pair: positional arguments, and arguments by name.
        argument_names: of all arguments, where the file tells.

    Attributes:
        count: of values.
        is_flat: all are positional, and none is inside of another.
        names: ways to call the values, each the index by name; the first is what a completed configuration
        has.
    """

    def __init__(self, spec: Spec, argument_names: Sequence[str] | None = None) -> None:
        self._spec = spec
        self.count: int = spec.num_leaves
        args, kwargs = pytree.tree_unflatten(range(self.count), spec)
        positional = list(walk(args))
        named = list(walk(kwargs))
        self.is_flat = not named and all(len(path) == 1 for path, _ in positional)
        official = {f"ARGS{path_text(path)}": index for path, index in positional}
        official |= {f"KWARGS{path_text(path)}": index for path, index in named}
        own: dict[str, int] = {}
        if argument_names is not None and len(argument_names) >= len(args):
            own = {
                f"{argument_names[int(path[0])]}{path_text(path[1:])}": index for path, index in positional
            }
        elif positional:
            own = {f"INPUT__{index}": index for _, index in positional}
        own |= {f"{path[0]}{path_text(path[1:])}": index for path, index in named}
        keys = {
            str(path[-1]): index
            for path, index in (*positional, *named)
            if len(path) == 2 and isinstance(path[-1], str)
        }
        self.names: list[Mapping[str, int]] = [own, official]
        if len(keys) == self.count and len({path[0] for path, _ in (*positional, *named)}) == 1:
            self.names.append(keys)  # one dictionary, as TorchScript takes

    def build(self, values: list[object]) -> tuple[Sequence[object], Mapping[str, Any]]:
        """Make the arguments of a call."""
        args, kwargs = pytree.tree_unflatten(values, self._spec)
        return args, kwargs


def result_names(spec: Spec) -> tuple[list[str], dict[str, int]]:
    """Names of the values of a result.

    Returns:
        What a completed configuration calls each; and the indices of all by all their names.
    """
    paths = list(walk(pytree.tree_unflatten(range(spec.num_leaves), spec)))
    known: dict[str, int] = {}
    names: list[str] = []
    for path, index in paths:
        name = f"OUTPUT__{index}"
        known[name] = index
        known[f"RESULT{path_text(path)}"] = index
        if path and isinstance(path[0], str):
            name = f"{path[0]}{path_text(path[1:])}"
            known[name] = index
        names.append(name)
    return names, known


def walk(tree: object, path: Path = ()) -> Iterator[tuple[Path, int]]:
    """The values of nested tuples, lists and dictionaries, each with its keys."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from walk(value, (*path, key))
    elif isinstance(tree, tuple | list):
        fields = getattr(tree, "_fields", range(len(tree)))
        for key, value in zip(fields, tree, strict=True):
            yield from walk(value, (*path, key))
    elif isinstance(tree, int):
        yield path, tree
