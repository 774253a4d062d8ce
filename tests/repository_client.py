"""Who loads, unloads and asks models over HTTP, without a library for it: answers are shown as they come."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from tritonpy_sdk.testing import DEADLINE_S


class RepositoryClient:
    """A client of one server.

    Args:
        port: of HTTP.
    """

    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, path: str, body: object = None) -> tuple[int, Any]:
        """The status, and the document that came, or the text of an error."""
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self._port}{path}", data, timeout=DEADLINE_S
            ) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, json.loads(refusal.read())["error"]

    def load(self, name: str, **parameters: str) -> tuple[int, Any]:
        return self.ask(f"/v2/repository/models/{name}/load", {"parameters": parameters})

    def unload(self, name: str) -> tuple[int, Any]:
        return self.ask(f"/v2/repository/models/{name}/unload", {})
