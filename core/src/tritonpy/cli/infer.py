"""`corectl infer`: one request, built from what the model's metadata asks for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Protocol

import click

from tritonpy.cli.http_client import Answer, HttpClient, model_path
from tritonpy.cli.models_watch import unknown_model_hint
from tritonpy.cli.tensor_input import WantedInput, build_input
from tritonpy.cli.tensor_output import Reply, as_json, as_text
from tritonpy.errors import InvalidArg
from tritonpy.tensor import Tensor

HEADER_LENGTH = "inference-header-content-length"


@click.command()
@click.argument("model")
@click.option(
    "-i",
    "--input",
    "values",
    multiple=True,
    metavar="NAME=VALUE",
    help="JSON, numbers between blanks or commas, or text; NAME=@FILE reads .json, .npy, .txt or raw bytes.",
)
@click.option("--shape", "shapes", multiple=True, metavar="NAME=D,D", help="Shape of an input, if not clear.")
@click.option("--output", "outputs", multiple=True, metavar="NAME", help="Ask for this output only.")
@click.option("--version", default="", help="Version of the model; the newest when left out.")
@click.option("--url", help="Where the server is.  [default: localhost:8000, with --grpc localhost:8001]")
@click.option("--grpc", "use_grpc", is_flag=True, help="Use gRPC, which also runs decoupled models.")
@click.option("--timeout", "timeout_s", type=float, default=60.0, show_default=True, help="Seconds to wait.")
@click.option("--json", "show_json", is_flag=True, help="Print JSON, one line per response.")
def infer(
    model: str,
    values: Sequence[str],
    shapes: Sequence[str],
    outputs: Sequence[str],
    version: str,
    url: str | None,
    use_grpc: bool,
    timeout_s: float,
    show_json: bool,
) -> None:
    """Send one inference request for MODEL to a running server and print what comes back.

    Datatypes and shapes are taken from the model; a missing batch dimension is added. For example:
    `corectl infer digits --input image=@seven.npy`.
    """
    pairs = _pairs(values, "--input")
    with closing(_connect(url, timeout_s, use_grpc=use_grpc)) as client:
        inputs = _build_inputs(model, client.inputs(model, version), pairs, shapes)
        for reply in client.infer(model, version, inputs, outputs):
            click.echo(as_json(reply) if show_json else as_text(reply))


class InferClient(Protocol):
    """The operations that both protocols offer."""

    def inputs(self, model: str, version: str) -> list[WantedInput]:
        """The model's inputs."""

    def infer(
        self, model: str, version: str, inputs: Sequence[Tensor], outputs: Sequence[str]
    ) -> Iterable[Reply]:
        """Send the request and return what comes back, as it comes."""

    def close(self) -> None:
        """End the connection."""


def _connect(url: str | None, timeout_s: float, *, use_grpc: bool) -> InferClient:
    if use_grpc:
        from tritonpy.cli.grpc_client import GrpcInferClient  # imports gRPC, which takes its time

        return GrpcInferClient(url, timeout_s)
    return HttpInferClient(url, timeout_s)


class HttpInferClient:
    """Metadata and inference over HTTP; tensors travel in binary form, which every datatype has.

    Args:
        url: where the server is; None for the usual place.
        timeout_s: how long to wait for each answer.
    """

    def __init__(self, url: str | None, timeout_s: float) -> None:
        self._client = HttpClient(url or "localhost:8000", timeout_s)

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def inputs(self, model: str, version: str) -> list[WantedInput]:
        """The model's inputs.

        Raises:
            click.ClickException: no server, or no such model there.
        """
        try:
            metadata = self._client.get_json(model_path(model, version))
        except click.ClickException as exc:
            if "unknown model" not in exc.message:
                raise
            raise click.ClickException(exc.message + unknown_model_hint(self._client, model)) from exc
        return [
            WantedInput(entry["name"], entry["datatype"], tuple(map(int, entry["shape"])))
            for entry in metadata.get("inputs", [])
        ]

    def infer(
        self, model: str, version: str, inputs: Sequence[Tensor], outputs: Sequence[str]
    ) -> list[Reply]:
        """Send the request and return the one reply.

        Raises:
            click.ClickException: the server answered with an error, whose text it has.
        """
        document: dict[str, object] = {
            "inputs": [
                {
                    "name": tensor.name,
                    "datatype": tensor.datatype,
                    "shape": list(tensor.shape),
                    "parameters": {"binary_data_size": tensor.byte_size},
                }
                for tensor in inputs
            ],
            "parameters": {"binary_data_output": True},
        }
        if outputs:
            document["outputs"] = [{"name": name} for name in outputs]
            # The request's parameter speaks only for outputs that are not listed.
            for entry in document["outputs"]:  # type: ignore[attr-defined]  # the list made just above
                entry["parameters"] = {"binary_data": True}
        head = json.dumps(document).encode()
        body = b"".join([head, *(tensor.wire() for tensor in inputs)])
        answer = self._client.send(
            "POST",
            f"{model_path(model, version)}/infer",
            body,
            {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(head))},
        )
        if answer.status != 200:
            raise click.ClickException(f"{answer.error} (HTTP status {answer.status})")
        return [_read_reply(answer)]


def _read_reply(answer: Answer) -> Reply:
    head_size = int(answer.headers.get(HEADER_LENGTH, len(answer.body)))
    document = json.loads(answer.body[:head_size])
    rest = memoryview(answer.body)[head_size:]
    outputs: list[Tensor] = []
    for entry in document["outputs"]:
        size = int(entry["parameters"]["binary_data_size"])
        outputs.append(Tensor(entry["name"], entry["datatype"], entry["shape"], rest[:size]))
        rest = rest[size:]
    return Reply(document["model_name"], document["model_version"], outputs, document.get("parameters", {}))


def _build_inputs(
    model: str, wanted: Sequence[WantedInput], values: dict[str, str], shapes: Sequence[str]
) -> list[Tensor]:
    by_name = {entry.name: entry for entry in wanted}
    forced = {name: _read_shape(name, text) for name, text in _pairs(shapes, "--shape").items()}
    tensors: list[Tensor] = []
    for name in (*values, *forced):
        if name not in by_name:
            raise click.ClickException(
                f"model '{model}' has no input '{name}'; its inputs are {_describe(wanted)}"
            )
    for name, value in values.items():
        try:
            tensors.append(build_input(by_name[name], value, forced.get(name)))
        except InvalidArg as exc:
            raise click.ClickException(str(exc)) from exc
        except OSError as exc:
            raise click.ClickException(f"input '{name}': cannot read {value[1:]}: {exc.strerror}") from exc
    if not tensors and wanted:
        raise click.ClickException(f"model '{model}' wants inputs: {_describe(wanted)}; give them by --input")
    return tensors


def _describe(wanted: Sequence[WantedInput]) -> str:
    return ", ".join(
        f"{entry.name} ({entry.datatype} [{','.join(map(str, entry.shape))}])" for entry in wanted
    )


def _read_shape(name: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part]
    except ValueError:
        raise click.BadParameter(
            f"got '{name}={text}', expected numbers between commas", param_hint="--shape"
        ) from None


def _pairs(values: Sequence[str], flag: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"got '{value}', expected NAME=VALUE", param_hint=flag)
        if name in pairs:
            raise click.BadParameter(f"'{name}' is given twice", param_hint=flag)
        pairs[name] = text
    return pairs
