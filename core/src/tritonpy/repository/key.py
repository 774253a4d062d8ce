"""What tells models of a server apart."""

from __future__ import annotations

from typing import NamedTuple


class ModelKey(NamedTuple):
    """The name of a model and, where names are not unique, whose name it is.

    Attributes:
        name: as clients say it.
        namespace: the repository it comes from with `--model-namespacing`; "" without.
    """

    name: str
    namespace: str = ""

    def __str__(self) -> str:
        """As errors and the log write it."""
        return f"{self.namespace}::{self.name}" if self.namespace else self.name
