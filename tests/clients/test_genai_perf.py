"""NVIDIA's GenAI-Perf measures a model of this server that streams words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import ServerProcess

from ..fetched import CACHE, environment

pytestmark = [pytest.mark.neighbours, pytest.mark.timeout(1800)]  # it brings 900 MB

PACKAGE = "genai-perf==0.0.16"
LAUNCHER = Path(__file__).parents[2] / "benchmarks" / "real_triton.py"
MODEL = """
import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in range(8):
                text = numpy.array([f" word{number}".encode()], dtype=object)
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("text_output", text)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
CONFIG = {
    "backend": "python",
    "model_transaction_policy": {"decoupled": True},
    "input": [
        {"name": "text_input", "data_type": "TYPE_STRING", "dims": [1]},
        {"name": "stream", "data_type": "TYPE_BOOL", "dims": [1], "optional": True},
        {"name": "sampling_parameters", "data_type": "TYPE_STRING", "dims": [1], "optional": True},
        {"name": "exclude_input_in_output", "data_type": "TYPE_BOOL", "dims": [1], "optional": True},
    ],
    "output": [{"name": "text_output", "data_type": "TYPE_STRING", "dims": [-1]}],
}
MAKE_TOKENIZER = """
import sys

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

words = ["[UNK]", "the", "a", "to", "be", "or", "not", "is", *(f"word{number}" for number in range(8))]
tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, "[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
special = {"unk_token": "[UNK]", "bos_token": "[UNK]", "eos_token": "[UNK]"}
PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(sys.argv[1])
"""


def test_words_of_a_stream_are_measured(tmp_path: Path) -> None:
    python = environment(CACHE / "genai-perf", PACKAGE)
    programs = tmp_path / "programs"
    programs.mkdir()
    perf_analyzer = programs / "perf_analyzer"
    perf_analyzer.write_text(f'#!/bin/sh\nexec {sys.executable} {LAUNCHER} perf -- "$@"\n')
    perf_analyzer.chmod(0o755)
    variables = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "200"}
    subprocess.run([python, "-c", MAKE_TOKENIZER, tmp_path / "tokenizer"], check=True, timeout=300)
    repository = ModelRepository(tmp_path / "models")
    repository.python("words", MODEL, CONFIG)
    words = ["-m", "words", "--endpoint-type", "kserve", "--backend", "vllm", "--streaming"]
    words += ["--tokenizer", str(tmp_path / "tokenizer"), "--concurrency", "1", "--request-count", "10"]
    words += ["--num-prompts", "5", "--synthetic-input-tokens-mean", "10", "--output-tokens-mean", "8"]
    with ServerProcess("--model-repository", repository.path) as server:
        done = subprocess.run(
            [
                python,
                "-c",
                "import sys; from genai_perf.main import main; sys.exit(main())",
                "profile",
                *words,
                "-u",
                f"localhost:{server.grpc_port}",
            ],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            cwd=tmp_path,
            env=variables,
        )

    assert done.returncode == 0, done.stdout + done.stderr
    [path] = tmp_path.glob("artifacts/**/profile_export_genai_perf.json")
    found = json.loads(path.read_text())
    assert found["output_sequence_length"]["avg"] == 8
    assert found["request_count"]["avg"] == 10
    assert found["time_to_first_token"]["avg"] > 0
