"""A small HTTP client for a running server; the standard library is enough for one request at a time."""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import click

DEFAULT_URL = "http://localhost:8000"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer from `url`: status, headers by lower-case name, body."""

    status: int
    headers: dict[str, str]
    body: bytes
    url: str

    def json(self) -> Any:  # Any: JSON
        """The body as JSON.

        Raises:
            click.ClickException: it is none.
        """
        try:
            return json.loads(self.body)
        except ValueError as exc:
            raise click.ClickException(f"the server answered something else than JSON: {exc}") from exc

    @property
    def error(self) -> str:
        """The text of an error answer."""
        try:
            return str(json.loads(self.body)["error"])
        except (ValueError, KeyError, TypeError):
            text = self.body.decode(errors="replace").strip()
            return self.web_page_note or text or f"HTTP status {self.status}"

    @property
    def web_page_note(self) -> str:
        """A remark about a web page, which no inference server sends; "" for anything else."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "text/html":
            return ""
        return (
            f"what answers at {self.url} is no inference server: it sent a page of HTML. "
            f"Say with --url where the server is"
        )


class HttpClient:
    """Talks to one server.

    Args:
        url: `http://host:port`, where the scheme and the port may be left out.
        timeout_s: how long to wait for an answer.
        context: what encrypts connections to `https://`; None for what trusts whom the system trusts.
    """

    def __init__(self, url: str, timeout_s: float, context: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError as exc:
            raise click.BadParameter(f"'{url}': {exc}", param_hint="--url") from exc
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise click.BadParameter(
                f"got '{url}', expected something like {DEFAULT_URL}", param_hint="--url"
            )
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._prefix = parts.path.rstrip("/")
        self._timeout_s = timeout_s
        if parts.scheme == "https":
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, port, timeout=timeout_s, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(parts.hostname, port or 8000, timeout=timeout_s)

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """Send one request and read its answer, of any status.

        Raises:
            click.ClickException: nothing listens there, it does not speak HTTP, or answers with a page.
        """
        try:
            self._connection.request(method, self._prefix + path, body, headers or {})
            response = self._connection.getresponse()
            answer = Answer(
                response.status,
                {name.lower(): value for name, value in response.getheaders()},
                response.read(),
                self.url,
            )
        except TimeoutError as exc:
            raise click.ClickException(
                f"no answer from {self.url} within {self._timeout_s:g} s; wait longer with --timeout"
            ) from exc
        except OSError as exc:
            raise click.ClickException(
                f"no server answers at {self.url}: {exc.strerror or exc}. Start one with "
                f"`corectl serve --model-repository PATH`, or say with --url where it is"
            ) from exc
        except http.client.HTTPException as exc:
            raise click.ClickException(
                f"what answers at {self.url} does not speak HTTP ({type(exc).__name__}); "
                f"the HTTP port is 8000 unless the server was told otherwise"
            ) from exc
        if answer.status == 200 and answer.web_page_note:
            raise click.ClickException(answer.web_page_note)
        return answer

    def get_json(self, path: str) -> Any:  # Any: JSON
        """The JSON found at `path`.

        Raises:
            click.ClickException: the server cannot be reached or answers with an error, whose text it has.
        """
        answer = self.send("GET", path)
        if answer.status != 200:
            raise click.ClickException(f"{answer.error} (HTTP status {answer.status} from {self.url}{path})")
        return answer.json()


def model_path(model: str, version: str = "") -> str:
    """The path of a model's endpoints."""
    name = _in_path(model)
    return f"/v2/models/{name}/versions/{version}" if version else f"/v2/models/{name}"


def repository_path(model: str, action: str) -> str:
    """The path that loads or unloads a model."""
    return f"/v2/repository/models/{_in_path(model)}/{action}"


def _in_path(model: str) -> str:
    # The server takes the path as it comes, without decoding; only what HTTP itself forbids is encoded.
    return quote(model, safe="!$&'()*+,;=:@~[]|^`{}<>\"")
