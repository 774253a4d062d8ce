"""`RemoteTriton`, by PyTriton's names."""

from __future__ import annotations

import numpy as np
import pytest
from tritonpy_sdk.pytriton.client.exceptions import PyTritonClientInvalidUrlError
from tritonpy_sdk.pytriton.decorators import batch
from tritonpy_sdk.pytriton.model_config import ModelConfig, Tensor
from tritonpy_sdk.pytriton.triton import RemoteTriton

from .given import X


@batch
def in_place(x):
    x *= 3
    return {"y": x}


def test_functions_are_bound_into_a_server_that_runs(server, address, token):
    tensors = [Tensor(name=name, dtype=np.float32, shape=(-1,)) for name in ("x", "y")]
    triton = RemoteTriton(url=f"tcp://{address}", access_token=token)
    assert not triton.is_connected()
    triton.bind("before", in_place, tensors[:1], tensors[1:], config=ModelConfig(max_batch_size=8))

    with triton:
        triton.bind("after", in_place, inputs=tensors[:1], outputs=tensors[1:], strict=True)

        assert triton.is_alive()
        assert triton.is_connected()
        for name in ("before", "after"):
            assert server.model(name).infer({"x": X})["y"].tolist() == [[3, 6]]
    assert not server.model("before").is_ready()
    assert (triton.stop(), triton.is_alive()) == (False, False)


@pytest.mark.parametrize(
    ("url", "variable", "address"),
    [
        ("localhost", "", "tcp://localhost:8003"),
        ("http://far:8000", "", "tcp://far:8003"),
        ("grpc://far", "", "tcp://far:8003"),
        ("http://[::1]:8000", "", "tcp://[::1]:8003"),
        ("tls://far:9", "", "tls://far:9"),
        ("unix:/run/bind", "", "unix:/run/bind"),
        ("localhost", "tcp://other:1", "tcp://other:1"),
    ],
)
def test_the_address_follows_from_the_url(monkeypatch, url, variable, address):
    monkeypatch.setenv("TRITONPY_BIND_ADDRESS", variable)

    assert RemoteTriton(url)._server._address.text == address


def test_an_url_that_is_none():
    with pytest.raises(PyTritonClientInvalidUrlError, match="got 'ftp://x'"):
        RemoteTriton("ftp://x")
