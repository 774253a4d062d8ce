"""tritonclient and its utilities for shared memory."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from .memory import shape_of


def status_of(client: Any) -> dict[str, int]:
    """The sizes of all regions, by name, whatever the protocol calls them."""
    status = client.get_system_shared_memory_status()
    if isinstance(status, list):
        return {entry["name"]: entry["byte_size"] for entry in status}
    return {name: entry.byte_size for name, entry in status.regions.items()}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("model", ["numbers", "plain", "caller"])
def test_tensors_go_back_and_forth_in_the_clients_regions(
    ours: dict[str, int], client_of: Any, region: Any, protocol: str, model: str
) -> None:
    module, client = client_of(protocol, ours)
    values = np.linspace(-1, 1, 100_000, dtype=np.float32)
    given, wanted = region("given", values.nbytes), region("wanted", values.nbytes)
    given.set(values)
    given.register(client)
    wanted.register(client)
    assert status_of(client) == {"given": values.nbytes, "wanted": values.nbytes}
    tensor = module.InferInput("INPUT0", [values.size], "FP32")
    tensor.set_shared_memory("given", values.nbytes)
    output = module.InferRequestedOutput("OUTPUT0")
    output.set_shared_memory("wanted", values.nbytes)

    for step in range(3):  # the same request again, on other data
        given.set(values + step)
        answer = client.infer(model, [tensor], outputs=[output])

        assert shape_of(answer) == [values.size]
        result = wanted.get(np.float32, [values.size])
        factor = 2 if model == "caller" else 1
        np.testing.assert_array_equal(result, (values + step) * factor)

    client.unregister_system_shared_memory("given")
    assert list(status_of(client)) == ["wanted"]
    client.unregister_system_shared_memory()
    assert status_of(client) == {}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_strings_go_back_and_forth_in_the_clients_regions(
    ours: dict[str, int], client_of: Any, region: Any, protocol: str
) -> None:
    module, client = client_of(protocol, ours)
    strings = np.array(["a", "", "ünï", "\0"], dtype=object)
    packed = serialize_byte_tensor(strings)
    byte_size = len(packed.item())
    given, wanted = region("given", byte_size), region("wanted", byte_size)
    given.set(packed)
    given.register(client)
    wanted.register(client)
    tensor = module.InferInput("INPUT0", [4], "BYTES")
    tensor.set_shared_memory("given", byte_size)
    output = module.InferRequestedOutput("OUTPUT0")
    output.set_shared_memory("wanted", byte_size)

    client.infer("strings", [tensor], outputs=[output])

    result = wanted.get(np.object_, [4])
    assert [element.decode() for element in result] == strings.tolist()
    client.unregister_system_shared_memory()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_region_is_registered_once(
    ours: dict[str, int], client_of: Any, region: Any, protocol: str
) -> None:
    _, client = client_of(protocol, ours)
    given = region("given", 64)
    given.register(client)

    with pytest.raises(InferenceServerException, match="shared memory region 'given' already in manager"):
        given.register(client)

    client.unregister_system_shared_memory()


def test_streamed_responses_are_in_the_region_when_they_arrive(
    ours: dict[str, int], client_of: Any, region: Any
) -> None:
    module, client = client_of("grpc", ours)
    given, wanted = region("given", 16), region("wanted", 16)
    given.set(np.array([1, 2, 3, 4], np.float32))
    given.register(client)
    wanted.register(client)
    tensor = module.InferInput("INPUT0", [4], "FP32")
    tensor.set_shared_memory("given", 16)
    output = module.InferRequestedOutput("OUTPUT0")
    output.set_shared_memory("wanted", 16)
    seen: list[Any] = []
    arrived = threading.Semaphore(0)

    def on_response(result: Any, error: Any) -> None:
        values = wanted.get(np.float32, [4]).tolist()
        seen.append(error or (values, list(result.get_response().outputs[0].shape)))
        arrived.release()

    client.start_stream(on_response)
    client.async_stream_infer("numbers", [tensor], outputs=[output])
    assert arrived.acquire(timeout=20)
    client.async_stream_infer("repeat", [tensor], outputs=[output])
    for _ in range(3):
        assert arrived.acquire(timeout=20)
    client.stop_stream()
    client.unregister_system_shared_memory()

    assert seen[0] == ([1, 2, 3, 4], [4])
    assert [shape for _, shape in seen] == [[4]] * 4
    # Responses of one request share the region: the last one stands there in the end.
    assert seen[-1][0] == [3, 4, 5, 6]
