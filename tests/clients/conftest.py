"""One server for all clients, and every client of tritonclient behind one face."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
import trustme
from tritonpy_sdk.testing import ServerProcess

from .models import write_models

KINDS = ("http", "http.aio", "grpc", "grpc.aio")


class ClientServer:
    """A `corectl serve` with the models of `models.py`.

    Attributes:
        http, grpc: where it listens.
    """

    def __init__(self, process: ServerProcess) -> None:
        self.http = f"127.0.0.1:{process.http_port}"
        self.grpc = f"127.0.0.1:{process.grpc_port}"
        self._process = process

    @property
    def log(self) -> str:
        """What it has written so far."""
        return self._process.log


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientServer]:
    """A server whose models are loaded on request; all of them are, to begin with."""
    folder = tmp_path_factory.mktemp("models")
    write_models(folder)
    with ServerProcess(
        f"--model-repository={folder}",
        "--model-control-mode=explicit",
        "--load-model=*",
        "--allow-client-shm=true",
        "--http-header-forward-pattern=^(x-|authorization)",
        "--grpc-header-forward-pattern=^(x-|authorization)",
        "--exit-timeout-secs=5",
    ) as process:
        yield ClientServer(process)


@dataclass(frozen=True)
class TlsServer:
    """A server without models that speaks TLS on its gRPC port.

    Attributes:
        port: of `localhost`, the name in its certificate.
        authority: who has signed that.
        authority_file: the authority's certificate (PEM).
    """

    port: int
    authority: trustme.CA
    authority_file: Path


@pytest.fixture
def tls_server(served: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> TlsServer:
    """Such a server, until the test is over."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    pair = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(folder / "authority.pem")
    pair.private_key_pem.write_to_path(folder / "key.pem")
    pair.cert_chain_pems[0].write_to_path(folder / "server.pem")
    (folder / "models").mkdir()
    server = served(
        f"--model-repository={folder}/models",
        "--grpc-use-ssl=true",
        f"--grpc-server-cert={folder}/server.pem",
        f"--grpc-server-key={folder}/key.pem",
    )
    return TlsServer(server.grpc_port, authority, folder / "authority.pem")


class AnyClient:
    """A client of tritonclient, of whichever kind; its methods return when they are done.

    Attributes:
        kind: one of `KINDS`.
        is_http: over HTTP.
        package: the module with its `InferInput` and the rest.
        client: the client itself.
        as_json: arguments of those methods that return messages over gRPC.
    """

    def __init__(self, kind: str, server: ClientServer, **options: Any) -> None:
        self.kind = kind
        self.is_http = kind.startswith("http")
        self.package: Any = tritonclient.http if self.is_http else tritonclient.grpc
        self.as_json = {} if self.is_http else {"as_json": True}
        self._runner = asyncio.Runner()
        where = server.http if self.is_http else server.grpc
        self.client = self._runner.run(self._open(where, options))

    async def _open(self, where: str, options: dict[str, Any]) -> Any:
        module = self.package.aio if self.kind.endswith(".aio") else self.package
        return module.InferenceServerClient(where, **options)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.client, name)

        def call(*arguments: Any, **named: Any) -> Any:
            outcome = method(*arguments, **named)
            if inspect.isawaitable(outcome):
                return self._runner.run(_wait(outcome))
            return outcome

        return call

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine on the loop of an asyncio client."""
        return self._runner.run(coroutine)

    def input(self, name: str, array: np.ndarray, datatype: str = "", **how: Any) -> Any:
        """An input with data; `binary_data=False` sends it as JSON over HTTP."""
        datatype = datatype or tritonclient.utils.np_to_triton_dtype(array.dtype)
        made = self.package.InferInput(name, list(array.shape), datatype)
        made.set_data_from_numpy(array, **(how if self.is_http else {}))
        return made

    def output(self, name: str, **how: Any) -> Any:
        """A requested output."""
        if not self.is_http:
            how.pop("binary_data", None)
        return self.package.InferRequestedOutput(name, **how)

    def close(self) -> None:
        """Close the connection."""
        outcome = self.client.close()
        if inspect.isawaitable(outcome):
            self._runner.run(_wait(outcome))
        self._runner.close()


async def _wait(outcome: Any) -> Any:
    return await outcome


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest, server: ClientServer) -> Iterator[AnyClient]:
    """Each kind of client in turn."""
    made = AnyClient(request.param, server)
    yield made
    made.close()


@pytest.fixture
def open_client(server: ClientServer) -> Iterator[Callable[..., AnyClient]]:
    """Open clients with options of their own; they are closed at the end."""
    opened: list[AnyClient] = []

    def make(kind: str, **options: Any) -> AnyClient:
        opened.append(AnyClient(kind, server, **options))
        return opened[-1]

    yield make
    for each in opened:
        each.close()
