"""Tensors in system shared memory, by the utilities of tritonclient, over both protocols."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.utils as client_utils
from tritonclient.utils import InferenceServerException, shared_memory

from .conftest import AnyClient

VALUES = np.array([[1, -2, 3.5, np.inf], [5, 6, 7, 8]], np.float32)


class Region:
    """A region of this process, registered with the server."""

    def __init__(self, client: AnyClient, byte_size: int) -> None:
        self.name = f"region-{uuid.uuid4().hex[:12]}"
        self.key = f"/{self.name}"
        self.byte_size = byte_size
        self.handle = shared_memory.create_shared_memory_region(self.name, self.key, byte_size)
        self._client = client
        client.register_system_shared_memory(self.name, self.key, byte_size)

    def close(self) -> None:
        self._client.unregister_system_shared_memory(self.name)
        shared_memory.destroy_shared_memory_region(self.handle)


@pytest.fixture
def make_region(client: AnyClient) -> Iterator[Any]:
    regions: list[Region] = []

    def make(byte_size: int) -> Region:
        regions.append(Region(client, byte_size))
        return regions[-1]

    yield make
    for region in regions:
        region.close()


def placed(
    client: AnyClient, region: Region, shape: list[int], datatype: str, byte_size: int, offset: int = 0
) -> Any:
    tensor = client.package.InferInput("INPUT0", shape, datatype)
    tensor.set_shared_memory(region.name, byte_size, offset)
    return tensor


def wanted(client: AnyClient, region: Region, byte_size: int, offset: int = 0) -> Any:
    output = client.package.InferRequestedOutput("OUTPUT0")
    output.set_shared_memory(region.name, byte_size, offset)
    return output


def test_an_input_is_read_and_an_output_written_where_the_client_says(client, make_region):
    region = make_region(3 * VALUES.nbytes)
    shared_memory.set_shared_memory_region(region.handle, [VALUES], offset=VALUES.nbytes)
    tensor = placed(client, region, [2, 4], "FP32", VALUES.nbytes, VALUES.nbytes)
    output = wanted(client, region, VALUES.nbytes, 2 * VALUES.nbytes)

    result = client.infer("scores", [tensor], outputs=[output])

    found = shared_memory.get_contents_as_numpy(region.handle, np.float32, [2, 4], offset=2 * VALUES.nbytes)
    assert np.array_equal(found, VALUES)
    [described] = result.get_response(**client.as_json)["outputs"]
    assert list(map(int, described["shape"])) == [2, 4]
    assert described["datatype"] == "FP32"


def test_strings_travel_through_shared_memory(client, make_region):
    texts = np.array([["é"], ["a longer text"], [""]], object)
    wire = client_utils.serialize_byte_tensor(texts)
    byte_size = client_utils.serialized_byte_size(wire)
    given, taken = make_region(byte_size), make_region(byte_size)
    shared_memory.set_shared_memory_region(given.handle, [wire])

    client.infer(
        "texts",
        [placed(client, given, [3, 1], "BYTES", byte_size)],
        outputs=[wanted(client, taken, byte_size)],
    )

    found = shared_memory.get_contents_as_numpy(taken.handle, np.object_, [3, 1])
    assert [text.decode() for text in found.reshape(-1)] == ["é", "a longer text", ""]


def test_the_server_tells_what_is_registered(client, make_region):
    region = make_region(64)

    status = client.get_system_shared_memory_status(region.name, **client.as_json)

    [found] = status if client.is_http else status["regions"].values()
    assert (found["name"], found["key"], int(found["byte_size"])) == (region.name, region.key, 64)
    client.unregister_system_shared_memory(region.name)
    with pytest.raises(InferenceServerException):
        client.get_system_shared_memory_status(region.name)
    assert shared_memory.mapped_shared_memory_regions()  # the client's own region is untouched


def test_a_name_cannot_be_taken_twice(client, make_region):
    region = make_region(64)
    with pytest.raises(InferenceServerException) as failed:
        client.register_system_shared_memory(region.name, region.key, 64)

    assert f"shared memory region '{region.name}' already in manager" in failed.value.message()


@pytest.mark.parametrize(
    ("byte_size", "offset"), [(128, 0), (32, 48), (32, 2**40)], ids=["size", "end", "offset"]
)
def test_what_lies_outside_of_a_region_is_refused(client, make_region, byte_size, offset):
    region = make_region(64)
    with pytest.raises(InferenceServerException) as failed:
        client.infer("scores", [placed(client, region, [2, 4], "FP32", byte_size, offset)])

    assert failed.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")
    assert region.name in failed.value.message()


def test_an_output_that_does_not_fit_is_refused(client, make_region):
    region = make_region(16)
    tensor = client.input("INPUT0", VALUES)
    with pytest.raises(InferenceServerException) as failed:
        client.infer("scores", [tensor], outputs=[wanted(client, region, 16)])

    assert "should be at least 32 bytes to hold the results" in failed.value.message()


def test_a_region_that_is_not_registered_is_not_found(client):
    tensor = client.package.InferInput("INPUT0", [2, 4], "FP32")
    tensor.set_shared_memory("nowhere", 32)
    with pytest.raises(InferenceServerException) as failed:
        client.infer("scores", [tensor])

    assert failed.value.status() in ("404", "StatusCode.NOT_FOUND")
    assert failed.value.message() == "Unable to find shared memory region: 'nowhere'"


def test_cuda_shared_memory_is_refused_with_a_reason(client):
    with pytest.raises(InferenceServerException) as failed:
        client.register_cuda_shared_memory("gpu", b"\0" * 64, 0, 64)

    assert failed.value.message()
