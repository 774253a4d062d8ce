"""Questions of a backend about the server and its models, in the words of `ServerLink.ask`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tritonpy_abi.json_text import json_text

_OF_THE_SERVER = ("is_live", "is_ready", "metadata", "metrics", "index")
"""Questions that name no model."""

_PROPERTIES: dict[str, Callable[[Any], int]] = {  # Any: a configuration
    "batch_properties": lambda config: 2 if config.get("max_batch_size", 0) > 0 else 1,
    "transaction_properties": lambda config: (
        2 if config.get("model_transaction_policy", {}).get("decoupled", False) else 1
    ),
}
"""Numbers of `TRITONSERVER_ModelBatchFlag` and `TRITONSERVER_ModelTxnPropertyFlag`."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question, as the C library has it.

    Attributes:
        what: its name there.
        model: the model that it is about; "" for none.
        version: of the model; "" for the one that its policy chooses.
        given: what belongs to it, by name.
    """

    what: str
    model: str
    version: str
    given: Mapping[str, bytes]

    def for_server(self, *, is_initializing: bool) -> tuple[str, tuple[Any, ...]]:  # Any: plain values
        """The question and its arguments.

        Args:
            is_initializing: who asks cannot serve before it has the answer.
        """
        match self.what:
            case "ready_index":
                return "server.index", (True,)
            case "label":
                [(output, index)] = self.given.items()
                wanted = int.from_bytes(index, sys.byteorder)
                return "server.label", (self.model, self.version, output, wanted)
            case "unload" | "unload_dependents":
                return "server.unload_model", (self.model, self.what == "unload_dependents")
            case "load":
                files = {name: data for name, data in self.given.items() if name != "config"}
                config = self.given.get("config")
                override = config.decode(errors="replace") if config is not None else None
                return "server.load_model", (self.model, override, files or None, is_initializing)
        if self.what in _OF_THE_SERVER:
            return f"server.{self.what}", ()
        what = "model_config" if self.what in _PROPERTIES else self.what
        return f"server.{what}", (self.model, self.version)

    def for_backend(self, answer: Any) -> tuple[bytes, int]:  # Any: plain values
        """The text and the number that an answer consists of."""
        if self.what in _PROPERTIES:
            return b"", _PROPERTIES[self.what](answer)
        if isinstance(answer, int):
            return b"", int(answer)
        if answer is None:
            return b"", 0
        if isinstance(answer, bytes):
            return answer, 0
        return (answer if isinstance(answer, str) else json_text(answer)).encode(), 0
