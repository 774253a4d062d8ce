"""Modules as they are written: a class from model.py, with weights of either kind, and pickles."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from tritonpy.plugin import Backend, Internal, Model, TritonError
from tritonpy_backend_pytorch import model_execution
from tritonpy_sdk.testing import ask, request_of

torch = pytest.importorskip("torch")

SOURCE = """
from __future__ import annotations
import torch
from torch.nn import Linear, Module


class Scale(Module):
    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor, power: int = 1, *, shift: torch.Tensor | None = None):
        y = x * self.factor ** power
        return {"y": y if shift is None else y + shift}
"""
WEIGHTS = {"factor": torch.tensor([3.0])}


def tensor(name, **more):
    return {"name": name, "data_type": "TYPE_FP32", "dims": [2]} | more


CONFIG = {"max_batch_size": 4, "input": [tensor("x")], "output": [tensor("y")]}
X = np.ones((1, 2), "f4")


def test_a_class_without_weights_runs_as_it_is_made(load):
    model = load({"model.py": SOURCE}, CONFIG | {"runtime": "model.py"})

    assert ask(model, x=X) == {"y": [[1, 1]]}


@pytest.mark.parametrize("runtime", [{}, {"runtime": "model.py"}])
def test_weights_come_from_a_state_dict(load, saved, runtime):
    model = load({"model.py": SOURCE, "model.pt": saved(WEIGHTS)}, CONFIG | runtime)

    assert ask(model, x=X) == {"y": [[3, 3]]}


@pytest.mark.parametrize(
    ("signature", "body", "names"),
    [
        ("*xs", "xs[0] - xs[1]", ["a", "b"]),
        ("x, *xs, scale=1", "(x - xs[0]) * scale", ["INPUT__0", "INPUT__1"]),
        ("x, **more", "x - more['b']", ["x", "b"]),
        ("**more", "more['a'] - more['b']", ["a", "b"]),
    ],
)
def test_arguments_of_any_number_take_all_inputs(load, signature, body, names):
    source = f"import torch\nclass Net(torch.nn.Module):\n  def forward(self, {signature}): return {body}\n"
    config = CONFIG | {"input": [tensor(name) for name in names]}
    model = load({"model.py": source}, config | {"runtime": "model.py"})

    assert ask(model, named={names[0]: X * 3, names[1]: X}) == {"y": [[2, 2]]}


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("list[str]", "[text.upper() for text in texts]", [[b"\xc3\x84\xff"], [b"B"]]),
        ("list[bytes]", "[text + b'!' for text in texts]", [[b"\xc3\xa4\xff!"], [b"b!"]]),
    ],
)
def test_strings_of_any_bytes_come_as_the_module_asks_for_them(load, kind, body, expected):
    source = f"import torch\nclass Net(torch.nn.Module):\n  def forward(self, texts: {kind}): return {body}\n"
    texts, y = (tensor(name, data_type="TYPE_STRING", dims=[1]) for name in ("texts", "y"))
    model = load({"model.py": source}, {"max_batch_size": 4, "input": [texts], "output": [y]})

    answer = ask(model, rows=2, texts=np.array([[b"\xc3\xa4\xff"], [b"b"]], object))

    assert answer == {"y": expected}


def test_a_checkpoint_of_a_training_loop_has_a_state_dict(load, saved):
    model = load({"model.py": SOURCE, "model.pt": saved({"state_dict": WEIGHTS, "epoch": 3})}, CONFIG)

    assert ask(model, x=X) == {"y": [[3, 3]]}


def test_weights_come_from_safetensors(load):
    save = pytest.importorskip("safetensors.torch").save

    model = load({"model.py": SOURCE, "model.safetensors": save(WEIGHTS)}, CONFIG)

    assert ask(model, x=X) == {"y": [[3, 3]]}


def test_arguments_with_a_default_may_be_left_out(load, saved):
    optional = [
        tensor("power", optional=True, data_type="TYPE_INT32", dims=[1]),
        tensor("shift", optional=True),
    ]
    config = CONFIG | {"max_batch_size": 0, "input": [tensor("x"), *optional]}
    model = load({"model.py": SOURCE, "model.pt": saved(WEIGHTS)}, config)
    x = X[0]

    assert ask(model, x=x) == {"y": [3, 3]}
    assert ask(model, x=x, power=np.array([2], "i4")) == {"y": [9, 9]}
    assert ask(model, x=x, shift=x) == {"y": [4, 4]}
    assert ask(model, x=x, power=np.array([2], "i4"), shift=x) == {"y": [10, 10]}


def test_torch_compile_is_asked_for_by_its_parameters(load, saved):
    config = CONFIG | {
        "parameters": {"TORCH_COMPILE_OPTIONAL_PARAMETERS": {"string_value": '{"backend": "eager"}'}}
    }

    assert ask(load({"model.py": SOURCE, "model.pt": saved(WEIGHTS)}, config), x=X) == {"y": [[3, 3]]}


def test_a_model_that_does_not_own_its_input_does_not_write_to_it(load):
    source = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x): return x.add_(1)\n"
    x = X.copy()
    x.flags.writeable = False

    assert ask(load({"model.py": source}, CONFIG | {"runtime": "model.py"}), x=x) == {"y": [[2, 2]]}
    assert x.tolist() == [[1, 1]]


def test_an_output_that_the_model_keeps_is_copied_on_threads(load):
    source = (
        "import torch\nclass Net(torch.nn.Module):\n  def __init__(self):\n    super().__init__()\n"
        "    self.total = torch.zeros(1, 2)\n  def forward(self, x): return self.total.add_(x)\n"
    )
    model = load({"model.py": source}, CONFIG)

    first, second = (model.execute([request_of(x=X)])[0].only.outputs[0].numpy() for _ in range(2))

    assert (first.tolist(), second.tolist()) == ([[1, 1]], [[2, 2]])


def test_a_torchscript_file_runs_also_where_python_is_asked_for(load, scripted):
    config = CONFIG | {"runtime": "model.py", "input": [tensor("input")]}

    assert ask(load({"model.pt": scripted(torch.nn.Identity())}, config), input=X) == {"y": [[1, 1]]}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\n", "Cannot find a subclass of torch.nn.Module"),
        ("import nosuchmodule\n", "model.py: ModuleNotFoundError: No module named 'nosuchmodule'"),
        ("import sys\nsys.exit(4)\n", "model.py: SystemExit: 4"),
        (
            "import torch\nclass Net(torch.nn.Module):\n    def __init__(self, size): pass\n",
            r"Net\(\): TypeError",
        ),
    ],
)
def test_a_source_that_makes_no_module_is_told(load, source, message):
    with pytest.raises(TritonError, match=message):
        load({"model.py": source}, CONFIG | {"runtime": "model.py"})


def test_weights_that_do_not_fit_are_told(load, saved):
    with pytest.raises(TritonError, match=r"Missing key\(s\) in state_dict"):
        load({"model.py": SOURCE, "model.pt": saved({"other": torch.ones(1)})}, CONFIG)


def test_an_output_that_a_result_lacks_is_missed_by_those_who_ask_for_it(load):
    source = "import torch\nclass Net(torch.nn.Module):\n  def forward(self, x): return {'a': x * 2}\n"
    model = load({"model.py": source}, CONFIG | {"output": [tensor("b"), tensor("a")]})

    with_b, without_b = (
        model.execute([request_of(x=X, outputs=outputs)])[0].only for outputs in (["b"], ["a"])
    )

    assert with_b.error.message == "output 'b' leads to nothing in the result of the model, which has a"
    assert without_b.outputs[0].numpy().tolist() == [[2, 2]]


def test_broken_safetensors_are_told(load):
    pytest.importorskip("safetensors")
    weights = struct.pack("<Q", 9) + b'{"a": 12}'

    with pytest.raises(Internal, match=r"failed to load model 'net': .*model\.safetensors.*JSON"):
        load({"model.py": SOURCE, "model.safetensors": weights}, CONFIG)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return {}['k']", "KeyError: 'k'"),
        ("assert x.sum() < 0", "AssertionError"),
        ("raise RuntimeError('no')", "no"),
    ],
)
def test_an_error_of_the_code_is_told_with_its_kind(load, body, message):
    source = f"import torch\nclass Net(torch.nn.Module):\n  def forward(self, x): {body}\n"

    with pytest.raises(TritonError) as failed:
        ask(load({"model.py": source}, CONFIG), x=X)

    assert failed.value.message == f"PyTorch execute failure: {message}"


def test_the_classes_of_the_file_come_before_those_that_it_imports(load, saved):
    # `Linear` is before `Scale` in the alphabet, and not of this file.
    assert ask(load({"model.py": SOURCE}, CONFIG | {"runtime": "model.py"}), x=X) == {"y": [[1, 1]]}


class Pickled(torch.nn.Module):
    def forward(self, x):
        return x * 5


def test_a_pickle_that_is_code_is_refused_unless_the_model_allows_it(load, saved):
    file = saved(torch.nn.Sequential(torch.nn.Identity()))

    with pytest.raises(TritonError) as refused:
        load(file, CONFIG)
    assert "is a pickle of more than weights" in refused.value.message
    assert "torch.nn.modules.container.Sequential" in refused.value.message
    assert "'ALLOW_PICKLED_CODE'" in refused.value.message

    config = CONFIG | {
        "parameters": {"ALLOW_PICKLED_CODE": {"string_value": "true"}},
        "input": [tensor("input")],
    }
    assert ask(load(file, config, name="allowed"), input=X) == {"y": [[1, 1]]}


def test_weights_without_code_are_told_to_need_some(load, saved):
    with pytest.raises(TritonError, match="is a state dict: weights without code"):
        load(saved(WEIGHTS), CONFIG)


def test_a_missing_file_is_told_in_triton_s_words(load):
    with pytest.raises(TritonError, match=r"unable to find '.*/net/1/other.pt' for model instance 'net'"):
        load({"model.txt": "x"}, CONFIG | {"default_model_filename": "other.pt"})


@pytest.mark.parametrize(
    ("files", "execution"),
    [
        ({"model.py": SOURCE}, "process"),
        ({"model.pt": b"\x80\x02."}, "process"),
        ({"model.pt": b"?"}, None),
        ({}, None),
    ],
)
def test_python_code_runs_in_processes(tmp_path, files, execution):
    (tmp_path / "1").mkdir()
    for name, content in files.items():
        (tmp_path / "1" / name).write_bytes(content.encode() if isinstance(content, str) else content)

    assert model_execution(Model("net", 1, {"name": "net"}, tmp_path, Backend("pytorch"))) == execution
