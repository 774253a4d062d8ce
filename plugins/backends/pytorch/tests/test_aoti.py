"""AOTInductor packages, alone and beside the exported programs that they were made of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import tritonclient.http
from tritonpy.options import ServerOptions
from tritonpy.plugin import TritonError
from tritonpy.server import Server
from tritonpy_backend_pytorch import contents
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.testing import ask

pytest.importorskip("torch")

pytestmark = [pytest.mark.toolchain, pytest.mark.timeout(600)]  # the compiler takes minutes on a busy machine

MAKE = """
import sys, torch
from torch.export import Dim
from torch.export.pt2_archive._package import package_pt2

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        torch.nn.init.ones_(self.linear.weight)
        torch.nn.init.zeros_(self.linear.bias)

    def forward(self, x, *, more):
        return {"out": self.linear(x) + more, "sums": (x.sum(1),)}

batch = Dim("batch", max=64)
args, kwargs = (torch.ones(2, 4),), {"more": torch.ones(2, 3)}
shapes = {"x": {0: batch}, "more": {0: batch}}
program = torch.export.export(Net().eval(), args, kwargs, dynamic_shapes=shapes)
files = torch._inductor.aot_compile(program.module(), args, kwargs, options={"aot_inductor.package": True})
package_pt2(sys.argv[1] + "/only.pt2", aoti_files={"model": files})
package_pt2(sys.argv[1] + "/both.pt2", exported_programs={"model": program}, aoti_files={"model": files})

pictures = torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last)
sample = pictures, torch.ones(2, 8, dtype=torch.int32), torch.ones(2, 1)
size = Dim("size", max=5)
shapes = ({0: batch}, {0: batch, 1: 4 * size}, {0: batch})

class Pictures(torch.nn.Module):
    def forward(self, x, row, spare):
        return x * 2 + 1, row.sum(1)

program = torch.export.export(Pictures(), sample, dynamic_shapes=shapes)
torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[1] + "/pictures.pt2")
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A package alone and one with its program; the compiler takes half a minute."""
    folder = tmp_path_factory.mktemp("packages")
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    subprocess.run([sys.executable, "-W", "ignore", "-c", MAKE, str(folder)], check=True, env=environment)
    return {name: (folder / f"{name}.pt2").read_bytes() for name in ("only", "both", "pictures")}


def tensor(name, dims):
    return {"name": name, "data_type": "TYPE_FP32", "dims": dims}


CONFIG = {
    "platform": "torch_aoti",
    "max_batch_size": 8,
    "input": [tensor("ARGS[0]", [4]), tensor("KWARGS[more]", [3])],
    "output": [tensor("RESULT[out]", [3])],
}
X, MORE = np.ones((2, 4), "f4"), np.ones((2, 3), "f4")


def test_a_package_alone_is_served_in_batches_by_its_own_names(load, packages):
    model = load(packages["only"], CONFIG)

    assert ask(model, 2, named={"ARGS[0]": X, "KWARGS[more]": MORE}) == {"RESULT[out]": [[5, 5, 5]] * 2}


@pytest.mark.parametrize("names", [("more", "INPUT__0"), ("KWARGS[more]", "ARGS[0]"), ("MORE__1", "X__0")])
def test_values_may_be_called_by_their_order(load, packages, names):
    more, x = names
    config = CONFIG | {"input": [tensor(more, [3]), tensor(x, [4])], "output": [tensor("OUTPUT__1", [1])]}
    config["output"][0]["reshape"] = {"shape": []}

    assert ask(load(packages["only"], config), 2, named={x: X, more: MORE}) == {"OUTPUT__1": [[4], [4]]}


def test_the_program_beside_a_package_completes_the_configuration(load, packages):
    model = load(packages["both"])

    assert model.config["max_batch_size"] == 4
    assert [entry["name"] for entry in model.config["input"]] == ["x", "more"]
    assert [entry["name"] for entry in model.config["output"]] == ["out", "sums[0]"]
    assert model.handle.state.program.failure.startswith("Inductor model instance")
    assert ask(model, 2, x=X, more=MORE)["out"] == [[5, 5, 5]] * 2


def test_a_package_for_another_processor_leaves_it_to_the_program(load, packages, monkeypatch, caplog):
    aoti = pytest.importorskip("tritonpy_backend_pytorch.aoti")
    monkeypatch.setattr(aoti, "unfit_reason", lambda metadata: "it lacks amx_tile")

    model = load(packages["both"])

    assert "its exported program is served" in caplog.text
    assert ask(model, 2, x=X, more=MORE)["out"] == [[5, 5, 5]] * 2


def test_errors_are_told_in_triton_s_words(load, packages):
    config = CONFIG | {"output": [tensor("RESULT[out]", [3]) | {"data_type": "TYPE_INT32"}]}

    with pytest.raises(TritonError) as failed:
        ask(load(packages["only"], config), 2, named={"ARGS[0]": X, "KWARGS[more]": MORE})

    assert failed.value.message == (
        "configuration expects datatype TYPE_INT32 for output 'RESULT[out]', model provides TYPE_FP32"
    )


def test_metadata_name_the_platform(tmp_path, packages):
    (tmp_path / "only.pt2").write_bytes(packages["only"])

    found = contents.read_contents(tmp_path / "only.pt2")

    assert found.exported == ()
    assert found.compiled["model"].metadata["AOTI_PLATFORM"] == sys.platform


@pytest.mark.parametrize("held", [False, True], ids=["by its own interface", "by PyTorch's loader"])
def test_both_ways_to_call_a_package_give_the_same(load, packages, monkeypatch, caplog, held):
    package = pytest.importorskip("tritonpy_backend_pytorch.package")
    if held:
        monkeypatch.setattr(package, "Library", refused)

    model = load(packages["only"], CONFIG | {"instance_group": [{"kind": "KIND_CPU", "count": 2}]})

    assert ask(model, 2, named={"ARGS[0]": X, "KWARGS[more]": MORE}) == {"RESULT[out]": [[5, 5, 5]] * 2}
    assert ("holds the interpreter's lock" in caplog.text) is held


def refused(*args):
    raise AttributeError("undefined symbol: AOTInductorModelContainerRun")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"data_type": "TYPE_INT32"},
            "unable to load model 'net', configuration expects datatype TYPE_INT32 for input 'ARGS[0]', "
            "model provides TYPE_FP32",
        ),
        ({"dims": [5]}, "complete shape [-1,5]"),
        ({"dims": [2, 2]}, "the model expects 2 dimensions"),
    ],
)
def test_what_the_source_says_otherwise_is_refused_by_its_name(load, packages, change, message):
    config = CONFIG | {"input": [CONFIG["input"][0] | change, CONFIG["input"][1]]}

    with pytest.raises(TritonError) as refusal:
        load(packages["only"], config)

    assert message in refusal.value.message


PICTURES = {
    "max_batch_size": 8,
    "input": [
        tensor("x", [3, 4, 4]),
        tensor("row", [-1]) | {"data_type": "TYPE_INT32"},
        tensor("spare", [1]),
    ],
    "output": [
        tensor("OUTPUT__0", [3, 4, 4]),
        tensor("OUTPUT__1", [1]) | {"data_type": "TYPE_INT64", "reshape": {"shape": []}},
    ],
}


ONE = np.ones((1, 1), "f4")


def test_a_package_alone_completes_its_configuration_from_its_source_and_two_calls(load, packages):
    model = load(packages["pictures"])

    assert model.config["max_batch_size"] == 4
    assert described(model.config["input"]) == [
        ("INPUT__0", "TYPE_FP32", [3, 4, 4]),
        ("INPUT__1", "TYPE_INT32", [-1]),
        ("INPUT__2", "TYPE_FP32", [1]),
    ]
    assert described(model.config["output"]) == [
        ("OUTPUT__0", "TYPE_FP32", [3, 4, 4]),
        ("OUTPUT__1", "TYPE_INT64", [1]),
    ]
    answer = ask(model, INPUT__0=np.ones((1, 3, 4, 4), "f4"), INPUT__1=np.ones((1, 12), "i4"), INPUT__2=ONE)
    assert answer["OUTPUT__1"] == [[12]]


def described(tensors):
    return [(each["name"], each["data_type"], [int(dim) for dim in each["dims"]]) for each in tensors]


def test_an_input_has_the_order_of_memory_that_the_package_was_compiled_for(load, packages):
    x = np.arange(96, dtype="f4").reshape(2, 3, 4, 4)

    answer = ask(
        load(packages["pictures"], PICTURES), 2, x=x, row=np.ones((2, 8), "i4"), spare=np.ones((2, 1), "f4")
    )

    assert answer["OUTPUT__0"] == (x * 2 + 1).tolist()
    assert answer["OUTPUT__1"] == [[8], [8]]


@pytest.mark.parametrize(
    ("width", "message"),
    [
        (7, "input 'row' of model 'net' has size 7 in dimension 1, the model takes sizes of the form 4*n"),
        (24, "input 'row' of model 'net' has size 24 in dimension 1, the model takes 0 to 20"),
    ],
)
def test_sizes_are_checked_before_the_call(load, packages, width, message):
    model = load(packages["pictures"], PICTURES)

    with pytest.raises(TritonError) as refusal:
        ask(model, x=np.ones((1, 3, 4, 4), "f4"), row=np.ones((1, width), "i4"), spare=ONE)

    assert refusal.value.message == message


def test_a_package_that_is_loaded_again_is_the_same_library(load, packages):
    load(packages["only"], CONFIG)
    before = mapped_libraries()

    again = load(packages["only"], CONFIG, name="again")

    assert mapped_libraries() == before
    assert ask(again, 2, named={"ARGS[0]": X, "KWARGS[more]": MORE}) == {"RESULT[out]": [[5, 5, 5]] * 2}


def mapped_libraries():
    """Files of packages that are in the memory of this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split(maxsplit=5)[5] for line in lines if ".wrapper.so" in line}


@pytest.mark.parametrize("isolation", ["", "process"])
def test_a_package_runs_on_threads_or_in_a_process(tmp_path, packages, isolation):
    parameters = {"parameters": {"TRITONPY_ISOLATION": {"string_value": isolation}}} if isolation else {}
    ModelRepository(tmp_path).model("net", CONFIG | parameters, {"model.pt2": packages["only"]})
    options = ServerOptions(
        (str(tmp_path),), http_address="127.0.0.1", http_port=0, allow_grpc=False, allow_metrics=False
    )

    def given(name, array):
        made = tritonclient.http.InferInput(name, list(array.shape), "FP32")
        made.set_data_from_numpy(array)
        return made

    with (
        Server(options) as server,
        tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.http_port}") as client,
    ):
        out = client.infer("net", [given("ARGS[0]", X), given("KWARGS[more]", MORE)]).as_numpy("RESULT[out]")
        workers = psutil.Process().children(recursive=True)

    assert out.tolist() == [[5, 5, 5]] * 2
    assert bool(workers) is bool(isolation)
