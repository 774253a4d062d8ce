"""Operators that people use: a tokenizer of tensorflow-text in a SavedModel, its library in the model."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import pytest
from tritonpy_sdk.testing import ask

try:
    OPERATORS = Path(str(distribution("tensorflow-text").locate_file("tensorflow_text/python/ops")))
except PackageNotFoundError:
    pytest.skip(
        "tensorflow-text is not installed: pip install --no-deps tensorflow-text", allow_module_level=True
    )

# Saved by another process: where the operators are known already, nothing would have to open them.
SAVE = """
import sys

import tensorflow as tf
import tensorflow_text


class Words(tf.Module):
    def __init__(self):
        super().__init__()
        self.tokenizer = tensorflow_text.UnicodeScriptTokenizer()

    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.string, name="text")])
    def split(self, text):
        return {"words": self.tokenizer.tokenize(text[:, 0]).to_tensor("")}


module = Words()
tf.saved_model.save(module, sys.argv[1], signatures=module.split)
"""

LIBRARY = "_unicode_script_tokenizer.so"


def test_a_tokenizer_in_the_graph_finds_its_operators(load, tf, tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "model.savedmodel"
    subprocess.run([sys.executable, "-c", SAVE, path], check=True, capture_output=True)
    library = {LIBRARY: (OPERATORS / LIBRARY).read_bytes()}
    config = {"backend": "tensorflow", "model_operations": {"op_library_filename": [LIBRARY]}}

    for name in ("first", "second"):  # each with its own copy
        model = load(path, config, name=name, model_files=library)
        text = np.array([["Hello, wörld!".encode()], [b"one two"]], object)
        assert ask(model, 2, text=text) == {
            "words": [[b"Hello", b",", "wörld".encode(), b"!"], [b"one", b"two", b"", b""]]
        }
