"""TLS and mutual TLS on the gRPC port, with certificates of the test's own."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as client_library
import tritonclient.grpc.aio as aio_client_library
import trustme
from cryptography.hazmat.primitives import serialization
from tritonclient.utils import InferenceServerException
from tritonpy.errors import InvalidArg
from tritonpy.frontends.grpc.grpcio.credentials import server_credentials
from tritonpy.options import ServerOptions
from tritonpy_sdk.testing import DEADLINE_S


@dataclass
class Files:
    """PEM files by path: an authority, and pairs of key and certificate."""

    root: str
    key: str
    certificate: str
    client_key: str
    client_certificate: str
    strange_key: str
    strange_certificate: str
    junk: str

    def settings(self, **more: Any) -> dict[str, Any]:
        return {
            "grpc_use_ssl": True,
            "grpc_server_cert": self.certificate,
            "grpc_server_key": self.key,
            **more,
        }

    def mutual(self, **more: Any) -> dict[str, Any]:
        return self.settings(grpc_use_ssl=False, grpc_use_ssl_mutual=True, grpc_root_cert=self.root, **more)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder: Path = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "root.pem")
    (folder / "junk.pem").write_text("nothing of use")
    pairs = {
        "server": authority.issue_cert("localhost", "127.0.0.1"),
        "client": authority.issue_cert("client.example"),
        "strange": trustme.CA().issue_cert("client.example"),
    }
    for name, pair in pairs.items():
        pair.private_key_pem.write_to_path(folder / f"{name}.key")
        pair.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    names = ("root.pem", "server.key", "server.pem", "client.key", "client.pem", "strange.key", "strange.pem")
    return Files(*(str(folder / name) for name in (*names, "junk.pem")))


def is_live(harness: Any, **options: Any) -> bool:
    with client_library.InferenceServerClient(f"localhost:{harness.port}", **options) as client:
        live: bool = client.is_server_live(client_timeout=30)
    return live


def refused(harness: Any, **options: Any) -> str:
    with pytest.raises(InferenceServerException) as error:
        is_live(harness, **options)
    return str(error.value.status())


def test_tritonclient_infers_over_tls(start_harness: Callable[..., Any], files: Files) -> None:
    harness = start_harness(**files.settings())
    array = np.array([1, 2], np.float32)
    tensor = client_library.InferInput("INPUT0", [2], "FP32")
    tensor.set_data_from_numpy(array)

    with client_library.InferenceServerClient(
        f"localhost:{harness.port}", ssl=True, root_certificates=files.root
    ) as client:
        answer = client.infer("echo", [tensor]).as_numpy("OUTPUT0")

    np.testing.assert_array_equal(answer, array)


def test_asyncio_client_speaks_mutual_tls(start_harness: Callable[..., Any], files: Files) -> None:
    harness = start_harness(**files.mutual())

    async def ask() -> bool:
        async with aio_client_library.InferenceServerClient(
            f"localhost:{harness.port}",
            ssl=True,
            root_certificates=files.root,
            private_key=files.client_key,
            certificate_chain=files.client_certificate,
        ) as client:
            return bool(await client.is_server_live())

    assert harness.run(ask())


def test_client_without_tls_is_refused(start_harness: Callable[..., Any], files: Files) -> None:
    harness = start_harness(**files.settings())

    assert refused(harness) == "StatusCode.UNAVAILABLE"


def test_client_that_does_not_trust_the_server_leaves(
    start_harness: Callable[..., Any], files: Files
) -> None:
    harness = start_harness(**files.settings())

    assert refused(harness, ssl=True, root_certificates=files.strange_certificate) == "StatusCode.UNAVAILABLE"


def test_tls_asks_no_client_for_a_certificate(start_harness: Callable[..., Any], files: Files) -> None:
    harness = start_harness(**files.settings(grpc_root_cert=files.root))

    assert is_live(harness, ssl=True, root_certificates=files.root)


def test_mutual_tls_wants_a_certificate_that_the_authority_has_signed(
    start_harness: Callable[..., Any], files: Files
) -> None:
    harness = start_harness(**files.mutual())
    trusting = {"ssl": True, "root_certificates": files.root}

    signed = is_live(
        harness, **trusting, private_key=files.client_key, certificate_chain=files.client_certificate
    )
    strange = refused(
        harness, **trusting, private_key=files.strange_key, certificate_chain=files.strange_certificate
    )
    without = refused(harness, **trusting)

    assert signed
    assert (strange, without) == ("StatusCode.UNAVAILABLE", "StatusCode.UNAVAILABLE")


def test_no_flag_means_no_tls() -> None:
    assert server_credentials(ServerOptions((), grpc_server_cert="/no/such/file")) is None


def _change(**paths: str) -> Callable[[Files], dict[str, Any]]:
    """Settings with other files; values are names of `Files`, or paths."""
    return lambda files: (
        files.mutual() | {key: getattr(files, value, value) if value else "" for key, value in paths.items()}
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_change(grpc_server_cert=""), "--grpc-server-cert is missing: the server's certificate is needed"),
        (_change(grpc_server_key=""), "--grpc-server-key is missing: the server's private key is needed"),
        (
            _change(grpc_root_cert=""),
            "--grpc-root-cert is missing: the certificate that has signed those of clients",
        ),
        (
            _change(grpc_server_cert="/no/such.pem"),
            "--grpc-server-cert: cannot read the server's certificate from '/no/such.pem': No such file",
        ),
        (
            _change(grpc_server_key="/no/such.pem"),
            "--grpc-server-key: cannot read the server's private key from",
        ),
        (_change(grpc_root_cert="/"), "--grpc-root-cert: cannot read .* from '/': Is a directory"),
        (_change(grpc_server_cert="junk"), "--grpc-server-cert: '.*junk.pem' holds no PEM certificate"),
        (_change(grpc_server_key="junk"), "--grpc-server-key: '.*junk.pem' holds no PEM private key"),
        (_change(grpc_root_cert="junk"), "--grpc-root-cert: '.*junk.pem' holds no PEM certificate"),
        (
            _change(grpc_server_key="client_key"),
            "--grpc-server-key: '.*client.key' is not the key of the certificate in '.*server.pem'",
        ),
    ],
)
def test_files_of_no_use_are_refused_by_the_name_of_their_flag(
    harness: Any, files: Files, change: Callable[[Files], dict[str, Any]], text: str
) -> None:
    with pytest.raises(InvalidArg, match=text):
        harness.run(harness.new_server(**change(files)).start())


def test_a_key_with_a_passphrase_is_refused(harness: Any, files: Files, tmp_path: Path) -> None:
    key = serialization.load_pem_private_key(Path(files.key).read_bytes(), None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"sesame"),
        )
    )

    with pytest.raises(InvalidArg, match=r"--grpc-server-key: the private key in '.*' needs a passphrase"):
        harness.new_server(**files.settings(grpc_server_key=str(locked)))


class Place:
    """Files of a server that are replaced while it runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.authority = trustme.CA()
        self.settings = {
            "grpc_use_ssl_mutual": True,
            "grpc_server_cert": str(folder / "server.pem"),
            "grpc_server_key": str(folder / "server.key"),
            "grpc_root_cert": str(folder / "root.pem"),
        }
        self.renew()

    def renew(self) -> None:
        """Another authority, which signs the server's certificate and those of clients."""
        self.authority = trustme.CA()
        pair = self.authority.issue_cert("localhost", "127.0.0.1")
        self.write("root.pem", self.authority.cert_pem.bytes())
        self.write("server.key", pair.private_key_pem.bytes())
        self.write("server.pem", pair.cert_chain_pems[0].bytes())

    def write(self, name: str, pem: bytes) -> None:
        """Replace a file, as those who renew certificates do."""
        (self._folder / "new").write_bytes(pem)
        (self._folder / "new").rename(self._folder / name)


def is_served(harness: Any, trusted: trustme.CA, shown: trustme.CA, name: str | None = "localhost") -> bool:
    """Whether a client of one authority, with a certificate of another one, comes to speak HTTP/2."""
    context = ssl.create_default_context()
    context.check_hostname = name is not None
    trusted.configure_trust(context)
    shown.issue_cert("client.example").configure_cert(context)
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection(("127.0.0.1", harness.port), timeout=DEADLINE_S) as connection,
            context.wrap_socket(connection, server_hostname=name) as secured,
        ):
            return secured.recv(1) != b""  # with TLS 1.3 a refusal comes as the first answer
    except (ssl.SSLError, ConnectionError):
        return False


@pytest.mark.parametrize("transport", ["native"])  # grpcio reads the files once
@pytest.mark.parametrize("name", ["localhost", None])
def test_files_that_are_replaced_are_those_of_the_next_client(
    start_harness: Callable[..., Any], tmp_path: Path, name: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(tmp_path)
    harness = start_harness(**place.settings)
    first = place.authority
    assert is_served(harness, first, first, name)

    place.renew()

    second = place.authority
    assert is_served(harness, second, second, name)
    assert not is_served(harness, first, first, name)
    assert not is_served(harness, second, first, name)
    place.write("server.key", b"nothing of use")
    assert is_served(harness, second, second, name)
    assert is_served(harness, second, second, name)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "--grpc-server-key" in warnings[0]
    place.renew()
    assert is_served(harness, place.authority, place.authority, name)
