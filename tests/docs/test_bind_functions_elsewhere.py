"""The program on the page about servers elsewhere, and that of the plugin, serve as they say."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.http as http
from tritonpy_sdk.testing import DEADLINE_S, until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/bind-functions-elsewhere.md").read_text()
README = (ROOT / "plugins/frontends/bind/README.md").read_text()


def test_the_program_serves_into_a_server_elsewhere(served: Callable[..., Any], tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n# add.py\n(.*?)```", PAGE, re.DOTALL)
    (same,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert same == program
    (make_token,) = re.findall(r'\$ python -c "(.*?)" > token', PAGE)
    token = subprocess.run([sys.executable, "-c", make_token], capture_output=True, check=True).stdout
    (tmp_path / "token").write_bytes(token)
    (tmp_path / "models").mkdir()
    server = served(
        f"--model-repository={tmp_path}/models",
        f"--frontend-config=bind,token-file={tmp_path}/token",
        "--frontend-config=bind,port=0",
    )
    port = server.wait_for_log(r"Started frontend 'bind' at \S+:(\d+)\D")[1]
    (tmp_path / "add.py").write_text(program.replace("localhost:8003", f"127.0.0.1:{port}"))
    process = subprocess.Popen([sys.executable, "add.py"], cwd=tmp_path, env=os.environ)
    try:
        with http.InferenceServerClient(f"127.0.0.1:{server.ports['HTTPService']}") as client:
            until(lambda: client.is_model_ready("add"))
            inputs = [http.InferInput(name, [1, 1], "FP32") for name in ("a", "b")]
            for value, tensor in enumerate(inputs, 1):
                tensor.set_data_from_numpy(np.array([[value]], np.float32))
            assert client.infer("add", inputs).as_numpy("sum").tolist() == [[3]]
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0
            assert not client.is_model_ready("add")
    finally:
        process.kill()
        process.wait()
