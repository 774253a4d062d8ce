"""Which input of a configuration goes where in the call: Triton's rules, and names beyond them."""

from __future__ import annotations

import logging

import pytest
from tritonpy.plugin import Internal, InvalidArg
from tritonpy_backend_pytorch.argument import Argument, Form
from tritonpy_backend_pytorch.names import place_inputs, place_known_inputs

X, Y = Argument("x"), Argument("y")
OPTIONAL = Argument("z", has_default=True)
LIST = Argument("xs", Form.LIST, "List[Tensor]")
DICT = Argument("d", Form.DICT, "Dict[str, Tensor]")
OTHER = Argument("o", Form.OTHER, "Device")


def config(*inputs, **more):
    return {
        "name": "net",
        "input": [{"name": name} if isinstance(name, str) else name for name in inputs],
        "output": [{"name": "OUTPUT__0"}],
        **more,
    }


def sequence(*names):
    return {
        "sequence_batching": {
            "control_input": [
                {"name": name, "control": [{"kind": "CONTROL_SEQUENCE_START", "fp32_false_true": [0, 1]}]}
                for name in names
            ]
        }
    }


@pytest.mark.parametrize(
    ("inputs", "arguments", "expected"),
    [
        # Names of arguments, in any order.
        (["y", "x"], [X, Y], {"y": ("y",), "x": ("x",)}),
        (["x"], [X, OPTIONAL], {"x": ("x",)}),
        (["x", "z"], [X, Y, OPTIONAL][::2], {"x": ("x",), "z": ("z",)}),
        # Places inside of an argument.
        (["xs[1]", "xs[0]"], [LIST], {"xs[1]": ("xs", 1), "xs[0]": ("xs", 0)}),
        (["xs"], [LIST], {"xs": ("xs", 0)}),
        (["x", "d[a][0]"], [X, DICT], {"x": ("x",), "d[a][0]": ("d", "a", 0)}),
        # As AOTInductor calls them.
        (["ARGS[1]", "ARGS[0]"], [X, Y], {"ARGS[1]": ("y",), "ARGS[0]": ("x",)}),
        (["ARGS[0]", "KWARGS[y]"], [X, Y], {"ARGS[0]": ("x",), "KWARGS[y]": ("y",)}),
        # By index.
        (["IN__1", "b__0"], [X, Y], {"IN__1": ("y",), "b__0": ("x",)}),
        (["IN__01", "IN__0"], [X, Y], {"IN__01": ("y",), "IN__0": ("x",)}),
        # The one dictionary.
        (["a", "b__0"], [DICT], {"a": ("d", "a"), "b__0": ("d", "b__0")}),
        (["d[a]"], [DICT], {"d[a]": ("d", "a")}),
        # In order: one odd name sends all there.
        (["a", "b"], [X, Y], {"a": ("x",), "b": ("y",)}),
        (["IN__1", "b"], [X, Y], {"IN__1": ("x",), "b": ("y",)}),
        (["y", "b"], [X, Y], {"y": ("x",), "b": ("y",)}),
        (["IN__1", "IN__a"], [X, Y], {"IN__1": ("x",), "IN__a": ("y",)}),
    ],
)
def test_inputs_have_their_places(inputs, arguments, expected):
    assert place_inputs(config(*inputs), arguments) == expected


def test_an_index_that_is_none_is_warned_about(caplog):
    with caplog.at_level(logging.WARNING):
        place_inputs(config("IN__1", "IN__a"), [X, Y])
    assert "given to it in the order of the configuration" in caplog.text

    caplog.clear()
    place_inputs(config("a", "b"), [X, Y])
    assert not caplog.records


@pytest.mark.parametrize(
    ("inputs", "arguments", "more", "error"),
    [
        (
            [],
            [X],
            {},
            InvalidArg("model configuration must contain at least one input, none were specified."),
        ),
        (
            ["x"],
            [X, Y],
            {},
            InvalidArg(
                "unable to load model 'net', configuration expects 1 inputs, model provides 2; "
                "nothing feeds y"
            ),
        ),
        (
            ["a", "b"],
            [X],
            {},
            InvalidArg("unable to load model 'net', configuration expects 2 inputs, model provides 1"),
        ),
        (
            ["IN__0", "IN__2"],
            [X, Y],
            {},
            InvalidArg("unable to load model 'net', configuration expects 3 inputs, model provides 2"),
        ),
        (
            ["IN__0", "B__0"],
            [X, OPTIONAL],
            {},
            InvalidArg("unable to load model 'net', configuration expects 2 inputs, model provides 1"),
        ),
        (
            ["in", "START"],
            [X, Y],
            sequence("START"),
            Internal("input 'START' does not follow <name>__<index> naming convention."),
        ),
        (
            [{"name": "x", "optional": True}],
            [X],
            {},
            InvalidArg(
                "unable to load model 'net', optional input 'x' is required by the model: expected "
                "an argument "
                "with a default, or an optional one"
            ),
        ),
        (
            ["xs[0]", "xs[2]"],
            [LIST],
            {},
            InvalidArg("unable to load model 'net': nothing feeds xs[1]"),
        ),
        (
            ["d[a][1]", "x"],
            [X, DICT],
            {},
            InvalidArg("unable to load model 'net': nothing feeds d[a][0]"),
        ),
        (
            ["x[0]"],
            [X],
            {},
            InvalidArg(
                "input 'x[0]' of model 'net' is a place inside of argument 'x', which is of type 'Tensor'"
            ),
        ),
    ],
)
def test_inputs_without_a_place_are_refused_in_triton_s_words(inputs, arguments, more, error):
    with pytest.raises(type(error)) as refused:
        place_inputs(config(*inputs, **more), arguments)

    assert refused.value.message == error.message


@pytest.mark.parametrize("argument", [OTHER, DICT])
def test_an_argument_of_another_type_is_refused_in_triton_s_words(argument):
    with pytest.raises(Internal) as refused:
        place_inputs(config("x", argument.name), [X, argument])

    assert refused.value.message.startswith(
        f"An input of type '{argument.type_name}' was detected in the model. Only a single input of type "
        f"Dict(str, Tensor) or input(s) of type Tensor are supported."
    )


@pytest.mark.parametrize("names", [("INPUT__0", "START__1"), ("x", "y")])
def test_controls_have_an_index_or_are_arguments(names):
    placed = place_inputs(config(names[0], **sequence(names[1])), [X, Y])

    assert placed == {names[0]: ("x",), names[1]: ("y",)}


KNOWN = [{"x": 0, "d[a]": 1}, {"ARGS[0]": 0, "ARGS[1][a]": 1}]


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        (["d[a]", "x"], {"d[a]": 1, "x": 0}),
        (["ARGS[0]", "ARGS[1][a]"], {"ARGS[0]": 0, "ARGS[1][a]": 1}),
        (["I__1", "I__0"], {"I__1": 1, "I__0": 0}),
        (["one", "two"], {"one": 0, "two": 1}),
    ],
)
def test_places_that_the_file_tells_have_all_their_names(inputs, expected):
    assert place_known_inputs(config(*inputs), KNOWN) == expected


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (["x"], "configuration expects 1 inputs, model provides 2"),
        (["x", "b"], r"unexpected inference input 'b', allowed inputs are: x, d\[a\]"),
        (["I__0", "I__7"], "unexpected inference input 'I__7'"),
    ],
)
def test_a_name_beside_those_of_the_file_is_refused(inputs, message):
    with pytest.raises(InvalidArg, match=message):
        place_known_inputs(config(*inputs), KNOWN)
