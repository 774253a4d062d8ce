"""The pre-processing model by itself: its hooks get a stand-in for the module that the server gives them."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

EXAMPLE = Path(__file__).resolve().parents[1]


@dataclass
class Tensor:
    name: str
    array: NDArray[Any]  # numbers or bytes objects

    def as_numpy(self) -> NDArray[Any]:  # as `array`
        return self.array


@dataclass
class TritonError:
    INVALID_ARG = 3

    text: str
    code: int


@dataclass
class InferenceResponse:
    output_tensors: list[Tensor] = field(default_factory=list)
    error: TritonError | None = None


def tensor_by_name(request: list[Tensor], name: str) -> Tensor:
    return next(tensor for tensor in request if tensor.name == name)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pb_utils = SimpleNamespace(
        Tensor=Tensor,
        InferenceResponse=InferenceResponse,
        TritonError=TritonError,
        get_input_tensor_by_name=tensor_by_name,
    )
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", pb_utils)
    spec = importlib.util.spec_from_file_location("model", EXAMPLE / "models/digits_preprocess/1/model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def request(*files: bytes) -> list[Tensor]:
    return [Tensor("pgm", np.array([[file] for file in files], dtype=np.object_))]


def execute(model: ModuleType, *requests: list[Tensor]) -> list[InferenceResponse]:
    responses: list[InferenceResponse] = model.TritonPythonModel().execute(list(requests))
    return responses


def test_an_image_of_8x8_keeps_every_pixel(model: ModuleType) -> None:
    with np.load(EXAMPLE / "images/heldout.npz") as file:
        pixels = file["pixels"]
    files = [b"P5\n8 8\n255\n" + image.tobytes() for image in pixels]

    (response,) = execute(model, request(*files))

    (output,) = response.output_tensors
    assert output.name == "image"
    assert output.array.dtype == np.float32
    assert output.array.shape == (len(pixels), 1, 8, 8)
    np.testing.assert_allclose(output.array[:, 0], pixels / 255, rtol=0, atol=1e-6)


def test_requests_of_one_batch_get_their_own_images(model: ModuleType) -> None:
    white, black = b"P5 1 1 255\n\xff", b"P5 1 1 255\n\x00"

    first, second = execute(model, request(white), request(black, white))

    assert first.output_tensors[0].array.mean(axis=(1, 2, 3)).tolist() == [1.0]
    assert second.output_tensors[0].array.mean(axis=(1, 2, 3)).tolist() == [0.0, 1.0]


def test_a_larger_image_is_averaged_over_areas(model: ModuleType) -> None:
    small = np.arange(64, dtype=np.uint8).reshape(8, 8)
    noise = np.zeros((24, 40), np.uint8)
    noise[::3, ::5] = 45  # one pixel of 15 in every cell
    large = np.kron(small, np.ones((3, 5), np.uint8)) + noise

    (response,) = execute(model, request(b"P5 40 24 255\n" + large.tobytes()))

    expected = (small + 45 / 15) / 255
    np.testing.assert_allclose(response.output_tensors[0].array[0, 0], expected, atol=1e-6)


def test_a_size_that_is_no_multiple_of_8_shares_pixels_between_cells(model: ModuleType) -> None:
    row = np.array([0, 240, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], np.uint8)  # 12 pixels: 1.5 per cell

    (response,) = execute(model, request(b"P5 12 1 255\n" + row.tobytes()))

    expected = np.array([240 / 3, 240 / 3, 0, 0, 0, 0, 0, 0]) / 255
    np.testing.assert_allclose(response.output_tensors[0].array[0, 0, 5], expected, atol=1e-6)


def test_comments_and_sixteen_bit_pixels_are_read(model: ModuleType) -> None:
    file = b"P5\n# drawn by hand\n2 1 # two pixels\n1000\n" + np.array([250, 1000], ">u2").tobytes()

    (response,) = execute(model, request(file))

    np.testing.assert_allclose(response.output_tensors[0].array[0, 0, 0], [0.25] * 4 + [1.0] * 4, atol=1e-6)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (
            b"\x89PNG\r\n\x1a\n",
            r"got a file that begins with b'\x89PNG\r\n\x1a\n', expected a binary PGM file (P5)",
        ),
        (b"", "got a file that begins with b'', expected a binary PGM file (P5)"),
        (b"P5 8 8 255\n" + bytes(63), "got 63 bytes of pixels, expected 64 for 8x8 with white 255"),
        (b"P5 8 8 255\n" + bytes(65), "got 65 bytes of pixels, expected 64 for 8x8 with white 255"),
        (
            b"P5 99999 99999 65535\n",
            "got 0 bytes of pixels, expected 19999600002 for 99999x99999 with white 65535",
        ),
        (b"P5 0 8 255\n", "got 0x8 with white 255, expected 1x1 or more, white 1 to 65535"),
        (b"P5 8 8 0\n" + bytes(64), "got 8x8 with white 0, expected 1x1 or more, white 1 to 65535"),
    ],
)
def test_a_bad_file_fails_only_its_own_request_and_is_named(
    model: ModuleType, file: bytes, text: str
) -> None:
    good = b"P5 1 1 255\n\xff"

    refused, answered = execute(model, request(good, file), request(good))

    prefix = "input 'pgm' of model 'digits_preprocess', image 1 of the request: "
    assert refused.output_tensors == []
    assert refused.error == TritonError(prefix + text, TritonError.INVALID_ARG)
    assert answered.error is None
    assert len(answered.output_tensors) == 1
