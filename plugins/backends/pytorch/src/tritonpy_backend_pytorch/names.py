"""From the names in a configuration to the places in a model's call and in its result.

Triton's rules come first: names of arguments, then `<name>__<index>`, then the order of the configuration.
All
inputs follow one rule. Beyond Triton a place inside an argument or a result has a name too: `boxes[0]`,
`features[mask]`, and `ARGS[0]`, `KWARGS[mask]`, `RESULT[scores][0]` as for AOTInductor packages.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence

from tritonpy.plugin import GivenTensor, Internal, InvalidArg, JsonObject, given_inputs, kept_outputs

from tritonpy_backend_pytorch.argument import CONTAINERS, Argument, Form

_log = logging.getLogger("tritonpy.backend.pytorch")

Key = str | int
Path = tuple[Key, ...]
"""A place: the name of an argument (nothing for a result) and the keys that lead from there to a value."""

_BRACKETED = re.compile(r"([^\[\]]+)((?:\[[^\[\]]+\])*)\Z")
_KEY = re.compile(r"\[([^\[\]]+)\]")
_ORDINAL = re.compile(r".*__([0-9]+)\Z", re.ASCII | re.DOTALL)
_ODD_ORDINAL = re.compile(r".*__[^0-9]", re.DOTALL)


def split_name(name: str) -> tuple[str, Path]:
    """Take `head[a][0]` apart; a name of another form is a head without keys."""
    match = _BRACKETED.match(name)
    if match is None or not match[2]:
        return name, ()
    return match[1], tuple(_key(text) for text in _KEY.findall(match[2]))


def ordinal_of(name: str) -> int | None:
    """The index in `<name>__<index>`; None for other names."""
    match = _ORDINAL.match(name)
    return int(match[1]) if match else None


def path_text(path: Sequence[Key]) -> str:
    """Write keys as `[a][0]`."""
    return "".join(f"[{key}]" for key in path)


def input_names(config: JsonObject) -> list[str]:
    """The inputs of a model's call: those that clients bring, and those that the server gives."""
    names = [tensor["name"] for tensor in config.get("input", ())]
    if not names:
        raise InvalidArg("model configuration must contain at least one input, none were specified.")
    return [*names, *(given.name for given in given_inputs(config) if given.name not in names)]


def output_names(config: JsonObject) -> list[str]:
    """The outputs that are taken from a model's result: those that clients see, and states."""
    names = [tensor["name"] for tensor in config.get("output", ())]
    if not names:
        raise InvalidArg("model configuration must contain at least one output, none were specified.")
    return [*names, *(kept.name for kept in kept_outputs(config) if kept.name not in names)]


def place_inputs(config: JsonObject, arguments: Sequence[Argument]) -> dict[str, Path]:
    """Find the place of every input in a call whose arguments have names and no more is known of them.

    Returns:
        By name of the input: the name of the argument, and keys where that is a list or a dictionary.

    Raises:
        TritonError: an input has no place, two have the same, or an argument that has to be given has no
        input.
    """
    names = input_names(config)
    placed = (
        _by_key(names, arguments)
        or _by_argument(names, arguments)
        or _by_ordinal(config, names, arguments)
        or _by_order(config, names, arguments)
    )
    _check_complete(config, names, placed, arguments)
    return placed


def place_known_inputs(config: JsonObject, places: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Find the place of every input among values whose names are all known.

    Args:
        config: of the model.
        places: ways to call the values of the call; each gives their index by name. The first one wins that
        has
            all names of the configuration.

    Returns:
        By name of the input: the index of the value.

    Raises:
        TritonError: as `place_inputs`.
    """
    names = input_names(config)
    count = len(places[0])
    if len(names) != count:
        raise _wrong_count(config, len(names), count)
    for known in places:
        if all(name in known for name in names):
            return {name: known[name] for name in names}
    ordinals = [ordinal_of(name) for name in names]
    if None not in ordinals and len(set(ordinals)) == len(names):
        found = {name: index for name, index in zip(names, ordinals, strict=True) if index is not None}
        for name, index in found.items():
            if index >= count:
                raise _no_place(config, name, list(places[0]))
        return found
    if set(names) & set(
        places[0]
    ):  # most are right: one that is not is a mistake, and its order says nothing
        raise _no_place(config, next(name for name in names if name not in places[0]), list(places[0]))
    _refuse_given_in_order(config)
    return {name: index for index, name in enumerate(names)}


def _by_key(names: Sequence[str], arguments: Sequence[Argument]) -> dict[str, Path]:
    """The keys of the one dictionary that a model takes."""
    if len(arguments) != 1 or arguments[0].form is not Form.DICT:
        return {}
    argument = arguments[0].name
    if all(split_name(name)[0] in (argument, "ARGS") and split_name(name)[1] for name in names):
        return {}
    return {name: (argument, name) for name in names}


def _by_argument(names: Sequence[str], arguments: Sequence[Argument]) -> dict[str, Path]:
    known = {argument.name: argument for argument in arguments}
    placed: dict[str, Path] = {}
    for name in names:
        head, keys = split_name(name)
        if head == "KWARGS" and head not in known and keys and keys[0] in known:
            head, keys = str(keys[0]), keys[1:]
        elif head == "ARGS" and head not in known and keys:
            if not isinstance(keys[0], int) or keys[0] >= len(arguments):
                return {}
            head, keys = arguments[keys[0]].name, keys[1:]
        if head not in known:
            return {}
        placed[name] = (head, *(keys or _only_key(known[head])))
    return placed


def _by_ordinal(config: JsonObject, names: Sequence[str], arguments: Sequence[Argument]) -> dict[str, Path]:
    placed: dict[str, Path] = {}
    for name in names:
        index = ordinal_of(name)
        if index is None:
            return {}
        if index >= len(arguments):
            raise _wrong_count(config, index + 1, len(arguments))
        placed[name] = (arguments[index].name, *_only_key(arguments[index]))
    return placed


def _by_order(config: JsonObject, names: Sequence[str], arguments: Sequence[Argument]) -> dict[str, Path]:
    _refuse_given_in_order(config)
    if len(names) > len(arguments):
        raise _wrong_count(config, len(names), len(arguments))
    if any(_ODD_ORDINAL.match(name) for name in names):
        _log.warning(
            "model '%s': inputs %s are neither arguments of the model (%s) nor all <name>__<index>; they are "
            "given to it in the order of the configuration",
            config["name"],
            ", ".join(names),
            ", ".join(argument.name for argument in arguments),
        )
    return {
        name: (argument.name, *_only_key(argument)) for name, argument in zip(names, arguments, strict=False)
    }


def _only_key(argument: Argument) -> Path:
    """The place in a list or a tuple to which an input without an index belongs."""
    return (0,) if argument.form in (Form.LIST, Form.TUPLE) else ()


def _refuse_given_in_order(config: JsonObject) -> None:
    """Refuse controls and states whose names say no place: a configuration gives them no order."""
    given: Sequence[GivenTensor] = given_inputs(config)
    if given:
        raise Internal(f"input '{given[0].name}' does not follow <name>__<index> naming convention.")


def _check_complete(
    config: JsonObject, names: Sequence[str], placed: Mapping[str, Path], arguments: Sequence[Argument]
) -> None:
    required = [argument for argument in arguments if not argument.has_default]
    fed = {path[0] for path in placed.values()}
    missing = [argument.name for argument in required if argument.name not in fed]
    if missing or len(set(placed.values())) < len(names):
        raise _wrong_count(config, len(names), len(required), missing)
    known = {argument.name: argument for argument in arguments}
    _check_dense(config, placed.values(), known)
    for name, path in placed.items():
        argument = known[str(path[0])]
        if argument.form is Form.OTHER or (argument.form is Form.DICT and len(path) == 1):
            raise Internal(
                f"An input of type '{argument.type_name}' was detected in the model. Only a single "
                "input of type "
                f"Dict(str, Tensor) or input(s) of type Tensor are supported. Input '{name}' of model "
                f"'{config['name']}' cannot feed argument '{argument.name}'; values inside of lists and "
                f"dictionaries are called {argument.name}[0] or {argument.name}[key]"
            )
        if len(path) > 1 and argument.form not in CONTAINERS:
            raise InvalidArg(
                f"input '{name}' of model '{config['name']}' is a place inside of argument "
                f"'{argument.name}', "
                f"which is of type '{argument.type_name}'"
            )
    for tensor in config.get("input", ()):
        argument = known[str(placed[tensor["name"]][0])]
        if tensor.get("optional", False) and not (argument.has_default or argument.takes_none):
            raise InvalidArg(
                f"unable to load model '{config['name']}', optional input '{tensor['name']}' is "
                "required by the "
                f"model: expected an argument with a default, or an optional one"
            )


def _check_dense(config: JsonObject, paths: Collection[Path], known: Mapping[str, Argument]) -> None:
    """Refuse lists and tuples that nothing feeds a value of, before one that is fed."""
    indices: dict[Path, set[Key]] = {}
    for path in paths:
        for depth in range(1, len(path)):
            indices.setdefault(path[:depth], set()).add(path[depth])
    for parent, keys in indices.items():
        is_list = len(parent) > 1 or known[str(parent[0])].form in (Form.LIST, Form.TUPLE)
        missing = set(range(len(keys))) - keys
        if is_list and missing and all(isinstance(key, int) for key in keys):
            place = f"{parent[0]}{path_text((*parent[1:], min(missing)))}"
            raise InvalidArg(f"unable to load model '{config['name']}': nothing feeds {place}")


def _wrong_count(
    config: JsonObject, configured: int, provided: int, missing: Sequence[str] = ()
) -> InvalidArg:
    more = f"; nothing feeds {', '.join(missing)}" if missing else ""
    return InvalidArg(
        f"unable to load model '{config['name']}', configuration expects {configured} inputs, "
        f"model provides {provided}{more}"
    )


def _no_place(config: JsonObject, name: str, known: Sequence[str]) -> InvalidArg:
    return InvalidArg(
        f"unable to load model '{config['name']}': unexpected inference input '{name}', "
        f"allowed inputs are: {', '.join(known)}"
    )


def _key(text: str) -> Key:
    return int(text) if text.isascii() and text.isdigit() else text
