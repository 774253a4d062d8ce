"""What the page on object stores says is what the server reads."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from tritonpy.cli.serve import serve
from tritonpy.options import ServerOptions
from tritonpy_store_cloud import cache, download
from tritonpy_store_cloud.credentials import find_credentials
from tritonpy_store_cloud.location import read_location

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/object-stores.md").read_text()
PLUGIN = ROOT / "plugins/stores/cloud"
STORES = PLUGIN / "src/tritonpy_store_cloud"
VARIABLE = re.compile(r"\b(?:AWS|GOOGLE|AZURE|TRITON|STORAGE)_[A-Z0-9_]+\b")

OF_THE_LIBRARY = {
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
}
"""Set by clouds for their machines; no user has to know them."""


def test_the_command_of_the_page_is_read() -> None:
    (command,) = re.findall(r"^\$ corectl serve (.*)$", PAGE, re.MULTILINE)
    result = CliRunner().invoke(serve, [*shlex.split(command), "--show-config"])

    assert result.exit_code == 0, result.output
    assert "s3://bucket/path/to/models" in result.output


def test_what_the_page_installs_offers_the_prefixes_of_the_page() -> None:
    (folder,) = re.findall(r"^\$ pip install \./core \./(.*)$", PAGE, re.MULTILINE)

    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    assert ROOT / folder == PLUGIN
    assert set(re.findall(r"^\| `(\w+)://", PAGE, re.MULTILINE)) == set(
        project["entry-points"]["tritonpy.stores"]
    )


@pytest.mark.parametrize("root", re.findall(r"^\| `((?:s3|gs|as)://[^`]*)`", PAGE, re.MULTILINE))
def test_the_roots_of_the_page_are_read(root: str) -> None:
    location = read_location(root.replace(":port", ":9000"))

    assert location.bucket in ("bucket", "container")
    assert location.path == "path"
    assert bool(location.endpoint) is ("host" in root)


def test_the_page_names_the_variables_that_are_read_and_no_others() -> None:
    paths = [path for path in STORES.glob("*.py") if path.name != "secret_variables.py"]
    in_code = {name for path in paths for name in VARIABLE.findall(path.read_text())}

    assert set(VARIABLE.findall(PAGE)) == in_code - OF_THE_LIBRARY - {"AWS_REGION"}


def test_the_credential_file_of_the_page_is_read(tmp_path: Path) -> None:
    (text,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    account = tmp_path / "account.json"
    account.touch()
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text("[work]\naws_access_key_id=w\naws_secret_access_key=w\n")
    document = json.loads(text)
    document["gs"]["gs://bucket"] = str(account)
    document["as"]["as://account/container"]["account_key"] = "AAAA"
    file = tmp_path / "credentials.json"
    file.write_text(json.dumps(document))
    environ = {"TRITON_CLOUD_CREDENTIAL_PATH": str(file), "HOME": str(tmp_path)}

    found = {
        root: find_credentials(read_location(root), environ)
        for root in (
            "s3://any/models",
            "s3://minio:9000/bucket/models",
            "s3://other-bucket",
            "gs://bucket/models",
            "as://account/container/models",
        )
    }

    assert [credentials.key_id for credentials in found.values()] == ["AKIA…", "…", "w", "", ""]
    assert found["s3://any/models"].region == "eu-west-3"
    assert found["gs://bucket/models"].path == str(account)
    assert found["as://account/container/models"].secret == "AAAA"


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    assert f"{download.PART_BYTE_SIZE >> 20} MiB are copied at once for each model" in PAGE
    assert download._MOST_AT_ONCE == 8
    assert "Eight parts" in PAGE
    assert cache.KEPT_S == 600
    assert "ten minutes" in PAGE
    assert f"{ServerOptions(()).repository_timeout_s:g} by default" in PAGE
