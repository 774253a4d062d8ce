"""What the page on securing the ports shows of TLS over gRPC, with certificates made for it."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from tritonclient.utils import InferenceServerException

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/how-to/secure-the-ports.md").read_text()
SECTION = PAGE.split("## TLS over gRPC\n")[1].split("\n## ")[0]
COMMANDS = re.findall(r"^\$ (corectl serve (?:.*\\\n)*.*)$", SECTION, re.MULTILINE)
PROGRAMS = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the page names."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "authority.pem")
    for name, identity in (("server", "localhost"), ("client", "client.example")):
        pair = authority.issue_cert(identity)
        pair.private_key_pem.write_to_path(folder / f"{name}-key.pem")
        pair.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    return folder


def test_the_programs_of_the_page_reach_the_servers_of_the_page(
    served: Callable[..., Any],
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain, mutual = COMMANDS
    trusting, showing = PROGRAMS
    monkeypatch.chdir(folder)

    def start(command: str) -> Any:
        flags = shlex.split(command.replace("\\\n", " "))[4:]
        return served(f"--model-repository={tmp_path}", *flags)

    def run(program: str, server: Any) -> str:
        exec(program.replace(":8001", f":{server.ports['GRPCInferenceService']}"), {})
        return capsys.readouterr().out

    server = start(plain)
    assert [run(trusting, server), run(showing, server)] == ["True\n", "True\n"]

    server = start(mutual)
    assert run(showing, server) == "True\n"
    with pytest.raises(InferenceServerException, match="UNAVAILABLE"):
        run(trusting, server)


def test_a_file_of_no_use_ends_the_start_with_the_name_of_its_flag(folder: Path) -> None:
    for flags, text in (
        (("--grpc-use-ssl=true", "--grpc-server-cert=/no/such.pem"), "--grpc-server-cert"),
        (
            (
                "--grpc-use-ssl=true",
                f"--grpc-server-cert={folder}/server.pem",
                f"--grpc-server-key={folder}/client-key.pem",
            ),
            "is not the key of the certificate",
        ),
    ):
        command = [str(Path(sys.executable).with_name("corectl")), "serve", f"--model-repository={folder}"]
        ended = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=60, check=False)

        assert ended.returncode != 0
        assert text in ended.stderr.strip().splitlines()[-1]
        assert "Traceback" not in ended.stderr
