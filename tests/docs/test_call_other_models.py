"""The models on the page about calls answer as it says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import tritonclient.http as httpclient

PAGE = Path(__file__).parent.parent.parent / "docs/how-to/call-other-models.md"
_FILE = re.compile(r"^```(?:python|protobuf)\n# (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_models_of_the_page_call_each_other(serve, tmp_path: Path) -> None:
    files = _FILE.findall(PAGE.read_text())
    for path, content in files:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    server = serve(tmp_path / "models")
    text = httpclient.InferInput("TEXT", [3], "BYTES")
    text.set_data_from_numpy(np.array([b" four ", b"six   ", b"eleven letters"], np.object_))

    client = httpclient.InferenceServerClient(f"127.0.0.1:{server.http_port}")
    count = client.infer("count", [text]).as_numpy("COUNT")
    spread = client.infer("spread", [text]).as_numpy("SPREAD")
    client.close()

    assert len(files) == 6
    assert count.tolist() == [4, 3, 14]
    assert spread.tolist() == [11]
