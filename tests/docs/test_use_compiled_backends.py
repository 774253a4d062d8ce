"""The page on backends compiled for Triton: what it has people type, and the errors that it explains."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from tritonpy_abi.build import headers, read_sources, unsupported
from tritonpy_sdk.testing import compile_shared_object, find_compiler

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/use-compiled-backends.md").read_text()
BACKEND = ROOT / "plugins/abi/tests/csrc/backends/copying.c"
SOURCES = [*ROOT.glob("core/src/**/*.py"), *ROOT.glob("plugins/abi/src/**/*.py")]


@pytest.mark.timeout(120)  # it compiles
@pytest.mark.skipif(find_compiler(".c") is None, reason="there is no compiler for C")
def test_a_library_is_served_as_the_page_says(
    tmp_path: Path, served: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    library, version, *_ = re.findall(r"^(?:backends|models)/\S+$", PAGE, re.MULTILINE)
    (path, config), *_ = re.findall(r"^```protobuf\n# (\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / version).mkdir(parents=True)
    (tmp_path / path).write_text(config)
    compiled = compile_shared_object(BACKEND, tmp_path / "copying.so", "-pthread")
    (tmp_path / library).parent.mkdir(parents=True)
    shutil.move(compiled, tmp_path / library)
    serve, *_ = re.findall(r"^\$ corectl serve (.*)", PAGE, re.MULTILINE)
    [(url, body)] = re.findall(r"^\$ curl -s localhost:8000(\S+) -d '(.*)'", PAGE, re.MULTILINE)
    monkeypatch.chdir(tmp_path)

    server = served(*shlex.split(serve))
    asked = Request(f"http://127.0.0.1:{server.http_port}{url}", body.encode())
    [output] = json.load(urlopen(asked))["outputs"]

    assert output == {**json.loads(body)["inputs"][0], "name": "OUTPUT0", "data": [1.0, 2.0]}


def test_the_errors_that_are_explained_are_those_that_come() -> None:
    section = PAGE.partition("## When it does not load\n")[2].partition("\n## ")[0]
    explained = re.findall(r"^\| `(.*?)` \|", section, re.MULTILINE)
    # As the sources write it, of which a text may be on two lines and have names in it.
    text = re.sub(r'"\s*f?"', "", "".join(path.read_text() for path in SOURCES))
    text = re.sub(r"\{name\}", "mine", text)

    assert len(explained) > 10
    assert [words for words in explained if words not in text] == []


def test_all_functions_for_backends_are_there_as_the_page_says() -> None:
    missing = unsupported(read_sources(headers()))

    assert "All functions whose names begin with `TRITONBACKEND_` work" in PAGE
    assert [name for name in missing if name.startswith("TRITONBACKEND_")] == []
