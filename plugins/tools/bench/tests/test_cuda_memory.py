"""Tensors in the memory of a GPU, as far as a machine without one can tell."""

from __future__ import annotations

import base64
import sys
from types import SimpleNamespace

import pytest
from tritonpy_bench import BenchError, Load, Stability, cuda_memory, measure
from tritonpy_bench.load import Protocol

MODULE = "tritonclient.utils.cuda_shared_memory"


@pytest.mark.parametrize(
    "missing", [MODULE, "cuda.bindings.runtime"], ids=["no tritonclient", "no cuda-python"]
)
def test_what_is_missing_is_named(
    urls: dict[str, str], monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)

    with pytest.raises(BenchError, match=r"--shared-memory=cuda needs .*pip install 'tritonclient\[cuda\]'"):
        measure(Load(model="echo", url=urls["http"], shared_memory="cuda"), Stability(request_count=1))


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_region_that_the_server_refuses_is_freed(
    urls: dict[str, str], monkeypatch: pytest.MonkeyPatch, protocol: Protocol
) -> None:
    freed = []
    functions = SimpleNamespace(
        create_shared_memory_region=lambda name, byte_size, device: (name, byte_size, device),
        get_raw_handle=lambda region: base64.b64encode(bytes(64)),
        destroy_shared_memory_region=freed.append,
    )
    monkeypatch.setattr(cuda_memory, "_functions", lambda: functions)
    load = Load(model="echo", url=urls[protocol], protocol=protocol, shared_memory="cuda", cuda_device=99)

    with pytest.raises(BenchError, match=r"(?i)cuda|GPU"):
        measure(load, Stability(request_count=1))

    [(name, byte_size, device)] = freed
    assert (name.startswith("bench_"), byte_size >= 64, device) == (True, True, 99)
