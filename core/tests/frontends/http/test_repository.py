"""Files in load requests: whatever their size, decoded whole or refused."""

from __future__ import annotations

import base64
import json

import pytest
from tritonpy.errors import InvalidArg
from tritonpy.frontends.http.repository import load_parameters

SLICE = 1024 * 1024
BYTES = SLICE // 4 * 3


def body(text: str) -> bytes:
    return json.dumps({"parameters": {"file:1/model.bin": text}}).encode()


@pytest.mark.parametrize("size", [0, 1, 2, 3, BYTES - 1, BYTES, BYTES + 1, 2_000_000])
def test_a_file_of_any_size_comes_out_whole(size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    content = content[:size]

    wanted = load_parameters(body(base64.b64encode(content).decode()))

    assert wanted.files == {"file:1/model.bin": content}


@pytest.mark.parametrize(
    "text",
    [
        "QQ=A",
        "Q",
        "QUJD\n",
        "é",
        "A" * SLICE + "Q",
        "A" * (SLICE - 1) + "=" + "QUJD",  # padding is for the end
        "A" * (SLICE - 2) + "==" + "QQ==",
    ],
)
def test_what_is_no_base64_is_refused(text: str) -> None:
    with pytest.raises(InvalidArg, match=r"load parameter 'file:1/model.bin' is not base64"):
        load_parameters(body(text))
