"""The package `textgen` on the module path, as the models find it, and what its checkpoint holds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

VERSION = Path(__file__).resolve().parents[1] / "models/text_generation/1"
sys.path.append(str(VERSION))

from textgen.network import GPT2  # noqa: E402
from textgen.tokenizer import Tokenizer  # noqa: E402


@pytest.fixture(scope="session")
def checkpoint() -> Path:
    return VERSION / "checkpoint"


@pytest.fixture(scope="session")
def tokenizer(checkpoint: Path) -> Tokenizer:
    return Tokenizer.from_pretrained(checkpoint)


@pytest.fixture(scope="session")
def network(checkpoint: Path) -> GPT2:
    return GPT2.from_pretrained(checkpoint)


@pytest.fixture(scope="session")
def reference() -> dict[str, Any]:
    """What Hugging Face's tokenizer and network made of the same files; written by train.py."""
    found: dict[str, Any] = json.loads((Path(__file__).parent / "reference.json").read_text())
    return found
