"""One argument of a model's call."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Form(Enum):
    """The kind of value that an argument takes."""

    TENSOR = "Tensor"
    STRINGS = "List[str]"  # given as `bytes`, of which TorchScript makes its strings
    TEXTS = "list[str]"  # given as `str`: Python code
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    LIST = "List[Tensor]"
    TUPLE = "Tuple"
    DICT = "Dict(str, Tensor)"
    OTHER = ""


NUMBERS = (Form.INT, Form.FLOAT, Form.BOOL)
CONTAINERS = (Form.LIST, Form.TUPLE, Form.DICT)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a call, without `self`.

    Attributes:
        name: in the code of the model.
        form: the kind of value it takes.
        type_name: its type as the model writes it, for errors.
        has_default: a call may leave it out.
        takes_none: a call may give nothing in its place.
        is_keyword: it is given by name only.
    """

    name: str
    form: Form = Form.TENSOR
    type_name: str = "Tensor"
    has_default: bool = False
    takes_none: bool = False
    is_keyword: bool = False
