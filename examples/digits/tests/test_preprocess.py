"""The pre-processing model by itself, without a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils
from tritonpy_sdk.testing import PythonModel, load_python_model

EXAMPLE = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def model() -> Iterator[PythonModel]:
    with load_python_model(EXAMPLE / "models/digits_preprocess") as model:
        yield model


def request(*files: bytes) -> dict[str, list[list[bytes]]]:
    return {"pgm": [[file] for file in files]}


def test_an_image_of_8x8_keeps_every_pixel(model: PythonModel) -> None:
    with np.load(EXAMPLE / "images/heldout.npz") as file:
        pixels = file["pixels"]
    files = [b"P5\n8 8\n255\n" + image.tobytes() for image in pixels]

    batches = [files[start : start + 32] for start in range(0, len(files), 32)]
    images = np.concatenate([model.infer(request(*batch))["image"] for batch in batches])

    assert images.dtype == np.float32
    assert images.shape == (len(pixels), 1, 8, 8)
    np.testing.assert_allclose(images[:, 0], pixels / 255, rtol=0, atol=1e-6)


def test_requests_of_one_batch_get_their_own_images(model: PythonModel) -> None:
    white, black = b"P5 1 1 255\n\xff", b"P5 1 1 255\n\x00"

    first, second = model.infer_batch([request(white), request(black, white)])

    assert first["image"].mean(axis=(1, 2, 3)).tolist() == [1.0]
    assert second["image"].mean(axis=(1, 2, 3)).tolist() == [0.0, 1.0]


def test_a_larger_image_is_averaged_over_areas(model: PythonModel) -> None:
    small = np.arange(64, dtype=np.uint8).reshape(8, 8)
    noise = np.zeros((24, 40), np.uint8)
    noise[::3, ::5] = 45  # one pixel of 15 in every cell
    large = np.kron(small, np.ones((3, 5), np.uint8)) + noise

    image = model.infer(request(b"P5 40 24 255\n" + large.tobytes()))["image"]

    expected = (small + 45 / 15) / 255
    np.testing.assert_allclose(image[0, 0], expected, atol=1e-6)


def test_a_size_that_is_no_multiple_of_8_shares_pixels_between_cells(model: PythonModel) -> None:
    row = np.array([0, 240, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], np.uint8)  # 12 pixels: 1.5 per cell

    image = model.infer(request(b"P5 12 1 255\n" + row.tobytes()))["image"]

    expected = np.array([240 / 3, 240 / 3, 0, 0, 0, 0, 0, 0]) / 255
    np.testing.assert_allclose(image[0, 0, 5], expected, atol=1e-6)


def test_comments_and_sixteen_bit_pixels_are_read(model: PythonModel) -> None:
    file = b"P5\n# drawn by hand\n2 1 # two pixels\n1000\n" + np.array([250, 1000], ">u2").tobytes()

    image = model.infer(request(file))["image"]

    np.testing.assert_allclose(image[0, 0, 0], [0.25] * 4 + [1.0] * 4, atol=1e-6)


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
    model: PythonModel, file: bytes, text: str
) -> None:
    good = b"P5 1 1 255\n\xff"

    refused, answered = model.infer_batch([request(good, file), request(good)])

    prefix = "input 'pgm' of model 'digits_preprocess', image 1 of the request: "
    assert isinstance(refused.error, pb_utils.TritonError)
    assert refused.error.message() == prefix + text
    assert refused.error.code() == pb_utils.TritonError.INVALID_ARG
    assert answered["image"].shape == (1, 1, 8, 8)
