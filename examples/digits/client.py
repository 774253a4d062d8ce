"""Send the held-out digits to a running server over HTTP and gRPC and print how many it reads right.

    python examples/digits/client.py

Every image goes as an image file to the model `digits_preprocess` and what comes back goes to the model
`digits`. With `--straight` the images go to `digits` as numbers. The program ends with 1 when a protocol
falls below 97 %, so that it serves as a test of the whole way. It needs numpy and `tritonclient[all]`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.http
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException

HELD_OUT = Path(__file__).resolve().parent / "images" / "heldout.npz"
REQUIRED_ACCURACY = 0.97
ENLARGE = 4  # the digits were scanned at 32x32 before they were counted down to 8x8: send that size


def main() -> int:
    """Ask over both protocols and return the exit status."""
    parser = argparse.ArgumentParser(description="Ask a server to read the held-out digits.")
    parser.add_argument("--url", default="localhost:8000", help="HTTP address of the server")
    parser.add_argument("--grpc-url", default="localhost:8001", help="gRPC address of the server")
    parser.add_argument("--batch-size", type=int, default=4, help="images per request (default: 4)")
    parser.add_argument("--straight", action="store_true", help="leave digits_preprocess out")
    options = parser.parse_args()
    if options.batch_size < 1:
        parser.error(f"--batch-size: got {options.batch_size}, expected 1 or more")

    with np.load(HELD_OUT) as file:
        pixels, labels = file["pixels"], file["labels"]
    passed = True
    for protocol, module, url in (
        ("HTTP", tritonclient.http, options.url),
        ("gRPC", tritonclient.grpc, options.grpc_url),
    ):
        try:
            found = read_digits(module, url, pixels, options.batch_size, options.straight)
        except (InferenceServerException, OSError) as error:
            print(f"{protocol}: {url}: {error}", file=sys.stderr)
            return 1
        right = int(np.sum(found == labels))
        accuracy = right / len(labels)
        print(f"{protocol}: {right} of {len(labels)} held-out images right, {accuracy:.2%}")
        if accuracy < REQUIRED_ACCURACY:
            print(f"{protocol}: expected at least {REQUIRED_ACCURACY:.0%}", file=sys.stderr)
            passed = False
    return 0 if passed else 1


def read_digits(
    module: ModuleType, url: str, pixels: NDArray[np.uint8], batch_size: int, straight: bool
) -> NDArray[np.int64]:
    """Return the digit that the server sees in each of `pixels` [n,8,8].

    Args:
        module: `tritonclient.http` or `tritonclient.grpc`; what we use of them is the same in both.
        url: host and port of the server, without a scheme.
        pixels: grey values from 0 to 255.
        batch_size: images per request; the server refuses more than a model's `max_batch_size`.
        straight: scale the images here and leave `digits_preprocess` out.
    """
    found = []
    with module.InferenceServerClient(url) as client:
        for start in range(0, len(pixels), batch_size):
            batch = pixels[start : start + batch_size]
            if straight:
                images = (batch / np.float32(255)).astype(np.float32)[:, np.newaxis]
            else:
                files = np.array([[pgm(image)] for image in batch], dtype=np.object_)
                images = infer(module, client, "digits_preprocess", "pgm", "BYTES", files, "image")
            scores = infer(module, client, "digits", "image", "FP32", images, "scores")
            found.append(scores.argmax(axis=1))
    return np.concatenate(found)


def infer(
    module: ModuleType,
    client: Any,  # InferenceServerClient of either module; they share no base class
    model: str,
    input_name: str,
    datatype: str,
    array: NDArray[Any],  # float32 numbers or bytes objects
    output_name: str,
) -> NDArray[np.float32]:
    """Send one array to a model with one input and return one output."""
    tensor = module.InferInput(input_name, array.shape, datatype)
    tensor.set_data_from_numpy(array)
    answer: NDArray[np.float32] = client.infer(model, [tensor]).as_numpy(output_name)
    return answer


def pgm(pixels: NDArray[np.uint8]) -> bytes:
    """Return one image as a binary PGM file, enlarged to the size that the digits were scanned at."""
    large = np.kron(pixels, np.ones((ENLARGE, ENLARGE), np.uint8))
    height, width = large.shape
    return f"P5 {width} {height} 255\n".encode() + large.tobytes()


if __name__ == "__main__":
    sys.exit(main())
