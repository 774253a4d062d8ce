"""The ensemble on the page about ensembles answers as it says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import tritonclient.http as httpclient

PAGE = Path(__file__).parent.parent.parent / "docs/how-to/ensembles.md"
_FILE = re.compile(r"^```(?:python|protobuf)\n# (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_ensemble_of_the_page_answers(serve, tmp_path: Path) -> None:
    files = _FILE.findall(PAGE.read_text())
    for path, content in files:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    (tmp_path / "models/survey/1").mkdir()
    server = serve(tmp_path / "models")
    text = httpclient.InferInput("TEXT", [1], "BYTES")
    text.set_data_from_numpy(np.array([b"to be or not"], np.object_))

    with httpclient.InferenceServerClient(f"127.0.0.1:{server.http_port}") as client:
        result = client.infer("survey", [text])

    assert len(files) == 7
    assert result.as_numpy("LENGTHS").tolist() == [2, 2, 2, 3]
    assert result.as_numpy("LONGEST").tolist() == [b"not"]
