"""Draw what a running server answers for held-out digits: each image with its ten scores, as an SVG file.

    python examples/digits/draw.py

The first row has an image of each digit; the second has all of the 360 that are read wrong. It needs numpy,
which the server brings along.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from urllib.request import urlopen

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
BATCH_SIZE = 4  # what the server takes for a model without a configuration
PIXEL = 9  # of the drawn image, in units of the file
CARD_WIDTH, CARD_HEIGHT = 96, 176
SCALE = 48  # a score of 1 is a bar of this height
RIGHT, WRONG, REST, INK = "#1a7f37", "#cf222e", "#8c959f", "#1f2328"


def main() -> None:
    """Ask the server for all images and write the file."""
    parser = argparse.ArgumentParser(description="Draw what a server answers for held-out digits.")
    parser.add_argument("--url", default="localhost:8000", help="HTTP address of the server")
    parser.add_argument("--output", type=Path, default=HERE / "answers.svg", help="the file to write")
    options = parser.parse_args()
    with np.load(HERE / "images" / "heldout.npz") as file:
        pixels, labels = file["pixels"], file["labels"]
    scores = ask(options.url, pixels)
    found = scores.argmax(axis=1)
    firsts = [int(np.flatnonzero((labels == digit) & (found == digit))[0]) for digit in range(10)]
    wrong = np.flatnonzero(found != labels).tolist()
    rows = [
        "".join(
            card(column, row, pixels[index], scores[index], int(labels[index]))
            for column, index in enumerate(indices)
        )
        for row, indices in enumerate((firsts, wrong))
    ]
    note = f"Of {len(labels)} held-out images {len(wrong)} are read wrong: these."
    options.output.write_text(picture(rows, note))


def ask(url: str, pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return the scores [n,10] that the model `digits` gives to images [n,8,8] of grey values up to 255."""
    answers = []
    for start in range(0, len(pixels), BATCH_SIZE):
        images = pixels[start : start + BATCH_SIZE, np.newaxis] / 255
        tensor = {"name": "image", "datatype": "FP32", "shape": images.shape, "data": images.tolist()}
        body = json.dumps({"inputs": [tensor]}).encode()
        with urlopen(f"http://{url}/v2/models/digits/infer", body) as answer:
            [scores] = json.load(answer)["outputs"]
        answers.append(np.reshape(scores["data"], scores["shape"]))
    return np.concatenate(answers)


def card(column: int, row: int, pixels: NDArray[np.uint8], scores: NDArray[np.float64], label: int) -> str:
    """Draw one image, its scores as bars, and the digit that was read."""
    found = int(scores.argmax())
    colour = RIGHT if found == label else WRONG
    parts = [f'<g shape-rendering="crispEdges"><rect width="{8 * PIXEL}" height="{8 * PIXEL}"/>']
    for y, x in np.argwhere(pixels):
        place = f'x="{x * PIXEL}" y="{y * PIXEL}"'
        parts.append(f'<rect {place} width="{PIXEL}" height="{PIXEL}" fill="{grey(pixels[y, x])}"/>')
    parts.append("</g>")
    base = 8 * PIXEL + 6 + SCALE
    for digit, score in enumerate(scores):
        height = max(1, round(float(score) * SCALE))
        bar = f'x="{digit * 7.2 + 0.6:.1f}" y="{base - height}" width="6" height="{height}"'
        parts.append(f'<rect {bar} fill="{colour if digit == found else REST}"/>')
        parts.append(f'<text x="{digit * 7.2 + 3.6:.1f}" y="{base + 10}" class="axis">{digit}</text>')
    words = f"read as {found}" if found == label else f"{label} read as {found}"
    parts.append(f'<text x="{4 * PIXEL}" y="{base + 26}" class="read">{words}</text>')
    place = f"translate({16 + column * CARD_WIDTH},{16 + row * (CARD_HEIGHT + 12)})"
    return f'<g transform="{place}">{"".join(parts)}</g>\n'


def grey(value: np.uint8) -> str:
    """Return the colour of a pixel."""
    return f"#{value:02x}{value:02x}{value:02x}"


def picture(rows: list[str], note: str) -> str:
    """Put the rows of cards onto one sheet, with a note at the end of the second."""
    width, height = 10 * CARD_WIDTH + 8, 2 * (CARD_HEIGHT + 16)
    style = (
        f"text {{ font-family: sans-serif; fill: {INK}; }} .axis {{ font-size: 8px; text-anchor: middle; }} "
        ".read { font-size: 12px; text-anchor: middle; }"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">\n'
        f"<title>Handwritten digits and the scores that the server gives them</title>\n"
        f"<style>{style}</style>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#fff"/>\n'
        f"{''.join(rows)}"
        f'<text x="{width - 24}" y="{height - 20}" font-size="14" text-anchor="end">{note}</text>\n'
        "</svg>\n"
    )


if __name__ == "__main__":
    main()
