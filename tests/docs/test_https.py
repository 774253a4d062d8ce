"""What the page on securing the ports shows of HTTPS, limits and the access log is what happens."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from tritonpy.frontends.http.connection.limits import MOST_CHUNKS, MOST_HEADER_BYTES
from tritonpy.frontends.http.connection.stalled_clients import STALLED_SWEEPS, SWEEP_S
from tritonpy.options import ServerOptions
from tritonpy_sdk.testing import until

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/how-to/secure-the-ports.md").read_text()
MODELS = ROOT / "examples/digits/models"


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def flags_of(text: str) -> list[str]:
    (command, *_) = re.findall(r"^\$ (corectl serve (?:.*\\\n)*.*)$", text, re.MULTILINE)
    return shlex.split(command.replace("\\\n", " "))[4:]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_clients_of_the_page_reach_the_server_of_the_page(
    served: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    authority = trustme.CA()
    pair = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    pair.private_key_pem.write_to_path(tmp_path / "server-key.pem")
    pair.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    monkeypatch.chdir(tmp_path)
    text = section("HTTPS")
    server = served(f"--model-repository={MODELS}", *flags_of(text))
    port = f":{server.ports['HTTPService']}"

    (curl,) = re.findall(r"^\$ (curl .*)$", text, re.MULTILINE)
    said = subprocess.run(
        [*shlex.split(curl.replace(":8000", port)), "--noproxy", "*"],
        capture_output=True,
        timeout=60,
        check=True,
    ).stdout
    assert json.loads(said)["name"] == "digits"

    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(program.replace(":8000", port), {})
    assert capsys.readouterr().out == "True\n"


def test_the_limits_of_the_page_are_those_of_the_server() -> None:
    text = section("What a client may send")
    options = ServerOptions(())

    assert f"{MOST_HEADER_BYTES // 1024} KiB" in text
    assert f"{MOST_CHUNKS:,}" in text
    assert f"`--http-max-input-size`, {options.http_max_input_byte_size >> 20} MiB" in text
    assert f"`--max-inflight-bytes`, {options.max_inflight_byte_size >> 30} GiB" in text
    assert SWEEP_S * STALLED_SWEEPS == 60


def test_the_access_log_has_the_lines_of_the_page(
    served: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = section("Who asked what")
    server = served(f"--model-repository={MODELS}", *flags_of(text))
    url = f"http://127.0.0.1:{server.ports['HTTPService']}/v2/models/digits"
    subprocess.run(["curl", "-s", "--noproxy", "*", url], capture_output=True, timeout=60, check=True)
    path = tmp_path / "access.log"
    until(path.read_text)

    (shown,) = re.findall(r"```json\n(.*?)\n```", text, re.DOTALL)
    expected, found = json.loads(shown), json.loads(path.read_text())
    assert found.keys() == expected.keys()
    same = ("method", "path", "status", "request_bytes")
    assert {name: found[name] for name in same} == {name: expected[name] for name in same}
