"""What the page on securing the ports shows of keys and forwarded headers is what happens."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy.frontends.header_forwarding import HeaderForwarding
from tritonpy.frontends.restriction import CATEGORIES

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/how-to/secure-the-ports.md").read_text()


def section(title: str) -> str:
    """The text under one heading."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def flags_of(text: str) -> list[str]:
    """The options behind the model repository of the first `corectl serve`."""
    (command, *_) = re.findall(r"^\$ (corectl serve (?:.*\\\n)*.*)$", text, re.MULTILINE)
    words = shlex.split(command.replace("\\\n", " "))
    assert words[2:4] == ["--model-repository", "examples/text_generation/models"]
    return words[4:]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_a_key_opens_what_it_is_for(served: Callable[..., Any]) -> None:
    text = section("Calls that need a key")
    server = served(f"--model-repository={ROOT / 'examples/text_generation/models'}", *flags_of(text))
    url = f"localhost:{server.ports['HTTPService']}"
    examples = re.findall(r"^\$ (curl .*)\n(.*)\n", text, re.MULTILINE)
    assert len(examples) == 2

    for command, expected in examples:
        line = command.replace("localhost:8000", url)
        result = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60, check=True)
        assert result.stdout.rstrip("\n") == expected


def test_the_page_lists_all_categories() -> None:
    assert re.findall(r"^\| `([a-z-]+)` \|", section("Calls that need a key"), re.MULTILINE) == [*CATEGORIES]


def test_the_pattern_of_the_page_finds_what_it_should() -> None:
    (flag,) = flags_of(section("Headers that models see"))
    name, _, pattern = flag.partition("=")
    forwarding = HeaderForwarding(pattern, name)

    assert forwarding.finds(b"X-Tenant-Id")
    assert not forwarding.finds(b"My-X-Tenant")
