"""What can be known of GPUs without one: copies, the errors of calls, and a worker that loses its GPU."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tritonclient.http
import tritonpy_backend_pytorch as backend
from tritonclient.utils import InferenceServerException
from tritonpy.options import ServerOptions
from tritonpy.plugin import Backend, Model
from tritonpy.server import Server
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.testing import ask

torch = pytest.importorskip("torch")
from tritonpy_backend_pytorch.exported import load_exported  # noqa: E402
from tritonpy_backend_pytorch.gpu import Transfers, describe_feeds, is_lost, is_out_of_memory  # noqa: E402

ASSERTED = "CUDA error: device-side assert triggered"


def test_all_tensors_of_a_call_are_moved_and_nothing_else():
    tensor = torch.ones(2)  # `meta` stands for a GPU; tensors there have no memory
    transfers = Transfers("meta", pins=False)

    args, kwargs = transfers.feeding(lambda feeds: ([tensor, 3, ["text"]], {"parts": {"a": [tensor]}}))({})

    assert (args[0].device.type, args[1:]) == ("meta", [3, ["text"]])
    assert kwargs["parts"]["a"][0].device.type == "meta"
    assert tensor.device.type == "cpu"


def test_only_what_is_on_the_device_is_fetched():
    values = [torch.ones(2, 3), ["text"], 5]

    fetched = Transfers("cpu", pins=False).to_host(values)  # the host stands for a GPU

    assert fetched[0].equal(values[0])
    assert fetched[0] is not values[0]
    assert fetched[1:] == values[1:]


def works():
    pass


def fails():
    raise torch.AcceleratorError(ASSERTED)


@pytest.mark.parametrize(
    ("exc", "probe", "lost"),
    [
        (torch.AcceleratorError(ASSERTED), fails, True),
        (RuntimeError(ASSERTED), fails, True),
        (torch.AcceleratorError("CUDA error: invalid configuration argument"), works, False),
        (RuntimeError("index out of range"), fails, False),
        (torch.OutOfMemoryError("CUDA out of memory"), fails, False),
    ],
)
def test_a_gpu_is_lost_when_an_error_of_it_does_not_go_away(exc, probe, lost):
    assert is_lost(exc, probe) is lost


def test_an_exported_program_is_moved_to_the_device(tmp_path, exported):
    path = tmp_path / "model.pt2"
    path.write_bytes(exported(torch.nn.Linear(2, 3), (torch.ones(1, 2),)))

    result = load_exported(path, "net", "model", "meta").call(torch.ones(1, 2, device="meta"))

    assert (result.device.type, tuple(result.shape)) == ("meta", (1, 3))


def test_running_out_of_memory_is_an_error_of_the_request_with_sizes(load):
    source = (
        "import torch\nclass Net(torch.nn.Module):\n"
        "  def forward(self, x): return x + torch.empty(int(x.sum()), 2)[:1]\n"
    )
    tensors = [{"name": "x", "data_type": "TYPE_FP64", "dims": [2]}]
    outputs = [{"name": "y", "data_type": "TYPE_FP64", "dims": [2]}]
    model = load({"model.py": source}, {"max_batch_size": 4, "input": tensors, "output": outputs})

    with pytest.raises(Exception, match="can't allocate memory") as failed:
        ask(model, x=np.full((1, 2), 2.0**51))

    assert failed.value.message.startswith("PyTorch execute failure: ")
    assert failed.value.message.endswith("The inputs of the call: x [1,2] (0.0 MiB)")
    assert np.shape(ask(model, x=np.ones((1, 2)))["y"]) == (1, 2)


def test_an_error_of_memory_is_known_by_its_kind():
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"))
    assert not is_out_of_memory(RuntimeError("index out of range"))
    assert describe_feeds({"a": np.zeros((1 << 18, 4), "f4"), "b": np.zeros((), "f4")}) == (
        "a [262144,4] (4.0 MiB), b [] (0.0 MiB)"
    )


@pytest.mark.parametrize(
    ("kind", "has_cuda", "execution"),
    [
        ("KIND_GPU", True, "process"),
        ("KIND_MODEL", True, "process"),
        ("KIND_MODEL", False, None),
        ("KIND_CPU", True, None),
    ],
)
def test_models_on_gpus_run_in_processes(tmp_path, monkeypatch, kind, has_cuda, execution):
    monkeypatch.setattr(backend, "_has_cuda", lambda: has_cuda)
    config = {"name": "net", "instance_group": [{"kind": kind, "count": 1}]}

    assert backend.model_execution(Model("net", 1, config, tmp_path, Backend("pytorch"))) == execution


# On the CPU no call can lose a GPU, so the model tells the backend that one has.
LOSES = f"""
import torch
from tritonpy_backend_pytorch import instance

waiting = instance.TorchInstance.__init__


def with_gpu(self, *args):
    waiting(self, *args)
    self._wait = lambda: None


instance.TorchInstance.__init__ = with_gpu
instance.is_lost = lambda exc, probe: "assert" in str(exc)


class Net(torch.nn.Module):
    def forward(self, x):
        if (x < 0).any():
            raise torch.AcceleratorError({ASSERTED!r})
        return x * 2
"""


def config(**more):
    return {
        "backend": "pytorch",
        "runtime": "model.py",
        "max_batch_size": 4,
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [1]}],
        "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [1]}],
    } | more


def test_a_worker_that_loses_its_gpu_answers_and_is_started_anew(tmp_path):
    ModelRepository(tmp_path).model("net", config(), {"model.py": LOSES})
    options = ServerOptions(
        (str(tmp_path),), http_address="127.0.0.1", http_port=0, allow_grpc=False, allow_metrics=False
    )

    def tensor(value):
        made = tritonclient.http.InferInput("x", [1, 1], "FP32")
        made.set_data_from_numpy(np.array([[value]], "f4"))
        return [made]

    with (
        Server(options) as server,
        tritonclient.http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}", network_timeout=60
        ) as client,
    ):
        with pytest.raises(InferenceServerException) as lost:
            client.infer("net", tensor(-1))
        after = client.infer("net", tensor(3)).as_numpy("y")  # waits for the new worker

    assert lost.value.message().startswith(f"PyTorch execute failure: {ASSERTED}")
    assert "can use its GPU no more" in lost.value.message()
    assert after.tolist() == [[6]]


def test_on_threads_the_model_is_not_ready_any_more(load, monkeypatch):
    assert threading.current_thread() is threading.main_thread()  # instances have threads of their own
    instance = pytest.importorskip("tritonpy_backend_pytorch.instance")
    monkeypatch.setattr(instance, "is_lost", instance.is_lost)
    monkeypatch.setattr(instance.TorchInstance, "__init__", instance.TorchInstance.__init__)
    model = load({"model.py": LOSES}, config())
    assert backend.model_instance_ready(model.instances[0])

    for value in (-1, 1):
        with pytest.raises(Exception, match=f"{ASSERTED}\n.*can use its GPU no more"):
            ask(model, x=np.full((1, 1), value, "f4"))

    assert not backend.model_instance_ready(model.instances[0])
