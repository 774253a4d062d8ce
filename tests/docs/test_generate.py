"""What the page on generate shows is what curl shows."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/how-to/generate.md").read_text()
EXAMPLES = re.findall(r"^```console\n\$ (curl .*)\n((?:.*\n)*?)```", PAGE, re.MULTILINE)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_every_answer_of_the_page_is_what_comes(served: Callable[..., Any]) -> None:
    assert "$ corectl serve --model-repository examples/text_generation/models" in PAGE
    server = served(f"--model-repository={ROOT / 'examples/text_generation/models'}")
    url = f"localhost:{server.ports['HTTPService']}"
    assert len(EXAMPLES) == 5

    for command, expected in EXAMPLES:
        line = command.replace("localhost:8000", url)
        result = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60, check=True)
        assert result.stdout.rstrip("\n") == expected.rstrip("\n")
