"""`corectl serve --debug-model`: a breakpoint in a model.py stops there, in the terminal of the server."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import Request, urlopen

CODE = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        secret = len(requests) + 41
        breakpoint()
        return [pb_utils.InferenceResponse([request.inputs()[0]]) for request in requests]
"""
CONFIG = """
backend: "python"
max_batch_size: 0
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { count: 3 kind: KIND_CPU } ]
"""


def test_a_breakpoint_stops_the_model_and_lets_it_go_on(tmp_path: Path) -> None:
    (tmp_path / "halting" / "1").mkdir(parents=True)
    (tmp_path / "halting" / "1" / "model.py").write_text(CODE)
    (tmp_path / "halting" / "config.pbtxt").write_text(CONFIG)
    command = [str(Path(sys.executable).with_name("corectl")), "serve", f"--model-repository={tmp_path}"]
    command += ["--debug-model=halting", "--allow-grpc=false", "--allow-metrics=false"]
    command += ["--http-address=127.0.0.1", "--http-port=0"]
    with (
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as server,
        ThreadPoolExecutor() as pool,
    ):
        try:
            assert server.stdin is not None
            assert server.stdout is not None
            assert server.stderr is not None
            line = next(line for line in server.stderr if "Started HTTPService at" in line)
            rest = threading.Thread(target=server.stderr.read)
            rest.start()
            body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1], "data": [3]}]}
            port = int(line.rpartition(":")[2].strip('"\n'))
            url = f"http://127.0.0.1:{port}/v2/models/halting/infer"
            answer = pool.submit(lambda: urlopen(Request(url, json.dumps(body).encode()), timeout=30).read())
            shown = ""
            while not shown.endswith("(Pdb) "):
                read = server.stdout.read(1)
                assert read, f"the server ended: {shown}"
                shown += read
            server.stdin.write("p secret\nc\n")
            server.stdin.flush()

            assert json.loads(answer.result(30))["outputs"][0]["data"] == [3]
            assert "model.py" in shown
            assert "42" in server.stdout.readline()
        finally:
            server.terminate()
            server.wait(30)
            rest.join()
