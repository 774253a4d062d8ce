"""Turn grey image files of any size into the 8x8 images that the model `digits` takes."""

from __future__ import annotations

import re

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

SIDE = 8  # rows and columns of the image that `digits` takes

# A binary PGM file: "P5", width, height and the value of white as text, one blank, then the pixels row by
# row. Drawing programs put comments between the numbers. No image that we are sent needs more than 5 digits.
BLANK = rb"(?:\s|#[^\n]*\n)+"
HEADER = re.compile(rb"P5" + BLANK + rb"(\d{1,5})" + BLANK + rb"(\d{1,5})" + BLANK + rb"(\d{1,5})\s")


class TritonPythonModel:
    """The class that Triton looks for in a Python model; it calls `execute` once per batch."""

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """Answer every request of the batch; a request with a bad file fails alone."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        files = pb_utils.get_input_tensor_by_name(request, "pgm").as_numpy()  # bytes objects, shape [batch,1]
        images = []
        for index, file in enumerate(files.flat):
            try:
                images.append(shrink(read_pgm(file)))
            except ValueError as error:
                text = f"input 'pgm' of model 'digits_preprocess', image {index} of the request: {error}"
                code = pb_utils.TritonError.INVALID_ARG
                return pb_utils.InferenceResponse(error=pb_utils.TritonError(text, code))
        batch = np.stack(images)[:, np.newaxis]  # [batch,1,8,8]
        return pb_utils.InferenceResponse([pb_utils.Tensor("image", batch)])


def read_pgm(file: bytes) -> NDArray[np.float32]:
    """Return the pixels of a binary PGM file as float32 [height,width] from 0 (black) to 1 (white).

    Raises:
        ValueError: `file` is not one whole binary PGM image; the text says what was found instead.
    """
    header = HEADER.match(file)
    if header is None:
        raise ValueError(f"got a file that begins with {file[:12]!r}, expected a binary PGM file (P5)")
    width, height, white = map(int, header.groups())
    if width < 1 or height < 1 or not 1 <= white <= 65535:
        raise ValueError(f"got {width}x{height} with white {white}, expected 1x1 or more, white 1 to 65535")
    dtype = np.dtype(np.uint8 if white < 256 else ">u2")
    byte_size = width * height * dtype.itemsize
    got = len(file) - header.end()
    if got != byte_size:
        shape = f"{width}x{height} with white {white}"
        raise ValueError(f"got {got} bytes of pixels, expected {byte_size} for {shape}")
    pixels = np.frombuffer(file, dtype, offset=header.end()).reshape(height, width)
    scaled: NDArray[np.float32] = pixels.astype(np.float32) / np.float32(white)
    return scaled.clip(max=1)


def shrink(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Average `pixels` [height,width] over the areas of an 8x8 grid laid on the image: float32 [8,8]."""
    height, width = pixels.shape
    return (area_weights(height) @ pixels @ area_weights(width).T).astype(np.float32)


def area_weights(count: int) -> NDArray[np.float32]:
    """Return the share of each of `count` pixels in each of the 8 cells: [8,count], rows sum to 1."""
    edges = np.linspace(0, count, SIDE + 1)
    left = np.arange(count)
    overlap = np.minimum(edges[1:, np.newaxis], left + 1) - np.maximum(edges[:-1, np.newaxis], left)
    return (overlap.clip(min=0) * (SIDE / count)).astype(np.float32)
