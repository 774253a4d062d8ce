"""Encrypted connections of both protocols: whom the client trusts, and who it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from tritonpy.cli.main import main
from tritonpy_bench import BenchError, Load, Stability, TlsFiles, measure
from tritonpy_bench.load import Endpoint, Protocol
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import ServerProcess

COUNTED = Stability(request_count=4)


@dataclass(frozen=True)
class Secure:
    """A server that speaks TLS, over gRPC with known clients only, and files of its authority."""

    urls: dict[str, str]
    files: TlsFiles
    other_ca: Path


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    trustme.CA().cert_pem.write_to_path(folder / "other.pem")
    for name in ("server", "client"):
        pair = authority.issue_cert("localhost")
        pair.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
        pair.private_key_pem.write_to_path(folder / f"{name}-key.pem")
    repository = ModelRepository(folder / "models")
    tensor = {"data_type": "TYPE_FP32", "dims": [4]}
    repository.model(
        "echo",
        {
            "backend": "identity",
            "input": [{"name": "INPUT0", **tensor}],
            "output": [{"name": "OUTPUT0", **tensor}],
        },
    )
    certificate, key = folder / "server.pem", folder / "server-key.pem"
    with ServerProcess(
        *("--model-repository", repository.path),
        *(f"--https-certificate={certificate}", f"--https-key={key}"),
        *("--grpc-use-ssl-mutual=true", f"--grpc-root-cert={folder / 'ca.pem'}"),
        *(f"--grpc-server-cert={certificate}", f"--grpc-server-key={key}"),
    ) as server:
        urls = {
            "http": f"localhost:{server.ports['HTTPService']}",
            "grpc": f"localhost:{server.ports['GRPCInferenceService']}",
        }
        files = TlsFiles(folder / "ca.pem", folder / "client.pem", folder / "client-key.pem")
        yield Secure(urls, files, folder / "other.pem")


@pytest.mark.parametrize(
    ("protocol", "scheme", "endpoint"),
    [
        ("http", "https://", "infer"),
        ("http", "", "generate_stream"),
        ("grpc", "grpcs://", "infer"),
        ("grpc", "", "stream"),
    ],
)
def test_a_load_over_tls(secure: Secure, protocol: Protocol, scheme: str, endpoint: Endpoint) -> None:
    load = Load(
        model="echo",
        url=f"{scheme}{secure.urls[protocol]}",
        protocol=protocol,
        endpoint=endpoint,
        http_url=f"https://{secure.urls['http']}" if protocol == "grpc" else None,
        tls=secure.files,
    )

    measured = measure(load, COUNTED, processes=2 if scheme else 1)

    assert (measured.total.errors, measured.server[0].success_count) == ({}, 4)
    assert sum(measured.server[0].closed.values()) == 4


def test_options_have_the_names_of_perf_analyzer_too(
    secure: Secure, capsys: pytest.CaptureFixture[str]
) -> None:
    ca, certificate, key = map(str, (secure.files.ca, secure.files.certificate, secure.files.key))
    words = ["bench", "echo", "-i", "grpc", "-u", secure.urls["grpc"], "--request-count=2"]

    own = main([*words, "--tls-ca", ca, "--tls-cert", certificate, "--tls-key", key])
    theirs = main(
        [
            *words,
            *("--ssl-grpc-root-certifications-file", ca),
            *("--ssl-grpc-certificate-chain-file", certificate, "--ssl-grpc-private-key-file", key),
        ]
    )

    assert (own, theirs) == (0, 0), capsys.readouterr().err


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_server_of_another_authority_is_not_trusted(secure: Secure, protocol: Protocol) -> None:
    load = Load(model="echo", url=secure.urls[protocol], protocol=protocol, tls=TlsFiles(ca=secure.other_ca))

    with pytest.raises(BenchError, match=r"no server answers at .*localhost.*(?i:certificate)"):
        measure(load, COUNTED)


def test_a_client_without_a_certificate_is_told(secure: Secure) -> None:
    load = Load(
        model="echo", url=secure.urls["grpc"], protocol="grpc", tls=TlsFiles(ca=secure.files.ca), timeout_s=20
    )

    with pytest.raises(BenchError, match="no server answers at localhost"):
        measure(load, COUNTED)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize(
    ("files", "words"),
    [
        (TlsFiles(ca=Path("absent.pem")), "--tls-ca 'absent.pem': No such file or directory"),
        (TlsFiles(ca=Path(__file__)), "--tls-ca '.*': it cannot be used"),
        (TlsFiles(certificate=Path("absent.pem")), "--tls-cert 'absent.pem': No such file or directory"),
        (TlsFiles(key=Path("key.pem")), "--tls-key 'key.pem' is of no certificate: give one with --tls-cert"),
    ],
    ids=str,
)
def test_files_that_are_none(protocol: Protocol, files: TlsFiles, words: str) -> None:
    with pytest.raises(BenchError, match=words):
        measure(Load(model="echo", url="localhost:1", protocol=protocol, tls=files), COUNTED)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("is_apart", [True, False])
def test_a_key_that_is_encrypted_is_refused_and_nobody_asked_for_its_passphrase(
    secure: Secure, tmp_path: Path, protocol: Protocol, is_apart: bool
) -> None:
    assert secure.files.certificate is not None
    assert secure.files.key is not None
    plain = serialization.load_pem_private_key(secure.files.key.read_bytes(), None)
    encrypted = plain.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    certificate, key = tmp_path / "client.pem", tmp_path / "key.pem"
    certificate.write_bytes(secure.files.certificate.read_bytes() + (b"" if is_apart else encrypted))
    key.write_bytes(encrypted)
    files = TlsFiles(secure.files.ca, certificate, key if is_apart else None)
    name = f"--tls-key '{key}'" if is_apart else f"the key in --tls-cert '{certificate}'"

    with pytest.raises(BenchError, match=f"{re.escape(name)} is encrypted; give a key without a passphrase"):
        measure(Load(model="echo", url="localhost:1", protocol=protocol, tls=files), COUNTED)


@pytest.mark.parametrize(("url", "is_tls"), [("{}", True), ("https://{}", True), ("http://{}", False)])
def test_http_beside_grpc_is_encrypted_as_its_url_and_the_files_say(
    secure: Secure, url: str, is_tls: bool
) -> None:
    load = Load(
        model="echo",
        url=secure.urls["grpc"],
        protocol="grpc",
        http_url=url.format(secure.urls["http"]),
        tls=secure.files,
    )

    if is_tls:
        assert sum(measure(load, COUNTED).server[0].closed.values()) == 4
    else:
        with pytest.raises(BenchError):
            measure(load, COUNTED)


@pytest.mark.parametrize(
    ("protocol", "url"), [("http", "http://localhost:1"), ("grpc", "grpc://localhost:1")]
)
def test_files_for_a_connection_without_tls_are_refused(protocol: Protocol, url: str) -> None:
    load = Load(model="echo", url=url, protocol=protocol, tls=TlsFiles(ca=Path("ca.pem")))

    with pytest.raises(BenchError, match=f"url '{url}': files for TLS go with https:// or grpcs://"):
        measure(load, COUNTED)
