"""Train the digits network and write everything in this example that is made by a program.

    python examples/digits/train.py

It writes, below the folder it lies in (or below `--output`):

    models/digits/1/model.onnx    the trained network
    images/heldout.npz            the images the training never saw, with their labels
    images/zero.pgm …             a few of them as image files
    requests/seven.json           one of them as the body of an inference request

The images are the 1,797 handwritten digits of 8x8 grey values that scikit-learn carries. A fifth of them is
held out, the same share of every digit. Nothing is chosen by looking at the held-out images: the number of
epochs is fixed and they are used once, at the end, to say how good the network is. All randomness is seeded
and the training runs on one thread, so that two runs on one machine write the same files.
"""

from __future__ import annotations

import argparse
import io
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

SEED = 7
HELD_OUT_SHARE = 0.2
EPOCHS = 60
BATCH_SIZE = 64
LEARNING_RATE = 3e-3
OPSET = 17
REQUIRED_ACCURACY = 0.98  # the client promises 97 %; a network that is barely that good is not written
EXAMPLES = {"zero": 0, "three": 3, "seven": 7}


def main() -> None:
    """Train, measure, and write the files only if the network is good enough."""
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description="Train the digits network and write the example's files.")
    parser.add_argument("--output", type=Path, default=here, help="folder to write to (default: this one)")
    output: Path = parser.parse_args().output

    pixels, labels = grey_images()
    train_pixels, held_out_pixels, train_labels, held_out_labels = train_test_split(
        pixels, labels, test_size=HELD_OUT_SHARE, stratify=labels, random_state=SEED
    )
    model = exported(train(train_pixels, train_labels))
    accuracy = measure(model, held_out_pixels, held_out_labels)
    print(f"accuracy on {len(held_out_labels)} held-out images: {accuracy:.2%}")
    if accuracy < REQUIRED_ACCURACY:
        raise SystemExit(f"nothing written: the accuracy is below the required {REQUIRED_ACCURACY:.0%}")

    for folder in ("models/digits/1", "images", "requests"):
        (output / folder).mkdir(parents=True, exist_ok=True)
    (output / "models/digits/1/model.onnx").write_bytes(model)
    np.savez_compressed(output / "images/heldout.npz", pixels=held_out_pixels, labels=held_out_labels)
    for name, digit in EXAMPLES.items():
        first = held_out_pixels[int(np.argmax(held_out_labels == digit))]
        (output / f"images/{name}.pgm").write_bytes(b"P5\n8 8\n255\n" + first.tobytes())
        if name == "seven":
            (output / "requests/seven.json").write_text(request_body(first))


def grey_images() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return all images as uint8 [1797,8,8], bright ink on black, and their labels as uint8 [1797].

    scikit-learn counts ink from 0 to 16. We train on the 0…255 that an image file holds, so that the network
    learns from exactly what it will be served.
    """
    digits = load_digits()
    return np.rint(digits.images * (255 / 16)).astype(np.uint8), digits.target.astype(np.uint8)


def network_input(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Turn uint8 [n,8,8] into what the network takes: float32 [n,1,8,8] from 0 to 1."""
    return (pixels / np.float32(255)).astype(np.float32)[:, np.newaxis]


def train(pixels: NDArray[np.uint8], labels: NDArray[np.uint8]) -> nn.Module:
    """Fit a network of two convolutions and return it; its output are the scores before the softmax."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    network = nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(64, 10),
    )
    images, digits = torch.from_numpy(network_input(pixels)), torch.from_numpy(labels.astype(np.int64))
    steps = EPOCHS * -(-len(digits) // BATCH_SIZE)
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    loss_of = nn.CrossEntropyLoss()
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(digits)).split(BATCH_SIZE):
            optimizer.zero_grad()
            loss_of(network(images[batch]), digits[batch]).backward()
            optimizer.step()
            schedule.step()
    return network


def exported(network: nn.Module) -> bytes:
    """Return `network` as an ONNX file: `image` FP32 [batch,1,8,8] to `scores` FP32 [batch,10], summing to 1.

    PyTorch's newer exporter would need one more package and writes the paths of this machine's source files
    into the model; the older one, which it deprecates, does neither, and the version of torch is pinned.
    """
    model = nn.Sequential(network, nn.Softmax(dim=1)).eval()
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            model,
            (torch.zeros(1, 1, 8, 8),),
            file,
            input_names=["image"],
            output_names=["scores"],
            dynamic_axes={"image": {0: "batch"}, "scores": {0: "batch"}},
            opset_version=OPSET,
            dynamo=False,
        )
    onnx.checker.check_model(file.getvalue(), full_check=True)
    return file.getvalue()


def measure(model: bytes, pixels: NDArray[np.uint8], labels: NDArray[np.uint8]) -> float:
    """Return the share of `pixels` in which the exported file, run by ONNX Runtime, finds the right digit."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (scores,) = session.run(["scores"], {"image": network_input(pixels)})
    return float(np.mean(scores.argmax(axis=1) == labels))


def request_body(pixels: NDArray[np.uint8]) -> str:
    """Return the JSON inference request for one image, laid out so that the digit can be seen in the file."""
    rows = [", ".join(f"{value:.4f}" for value in row) for row in network_input(pixels[np.newaxis])[0, 0]]
    data = ",\n  ".join(rows)
    tensor = f'"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [\n  {data}\n'
    return f'{{"inputs": [{{{tensor}]}}]}}\n'


if __name__ == "__main__":
    main()
