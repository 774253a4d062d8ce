"""Print where in a WAV file somebody speaks, as a server hears it over a gRPC stream.

    python examples/voice_activity/detect.py

Without a file it makes one, and without `--grpc-url` a model and a server for it. The chunks of the file go
out as one sequence, in which the server keeps what the model remembers. It needs numpy and
`tritonclient[grpc]`, and for a server of its own torch and `silero-vad`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import wave
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import tritonclient.grpc
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException

HERE = Path(__file__).resolve().parent
RATE = 16000
CHUNK = 512  # samples, 32 ms
UNDER_WAY = 64  # chunks without an answer at a time
BEGIN, END = 0.5, 0.35  # probabilities at which a segment begins and ends
SHORTEST, PAUSE = 0.25, 0.1  # seconds: shorter segments are dropped, shorter pauses bridged


def main() -> int:
    """Detect, print, and return the exit status."""
    parser = argparse.ArgumentParser(description="Print where in a WAV file somebody speaks.")
    parser.add_argument("file", nargs="?", type=Path, help="16 kHz, 16 bit, mono (default: one made here)")
    parser.add_argument("--grpc-url", help="address of a server (default: one started here)")
    parser.add_argument("--sequence", type=int, default=1, help="id; each stream at a time has its own")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            chunks = read_chunks(options.file or _made(folder))
            url = options.grpc_url or _served(stack, folder)
            scores = list(ask(url, chunks, options.sequence))
        except (InferenceServerException, OSError, ValueError, wave.Error) as error:
            print(error, file=sys.stderr)
            return 1
    for begin, end in segments(scores):
        print(f"{begin:.2f} s to {end:.2f} s")
    return 0


def read_chunks(path: Path) -> NDArray[np.float32]:
    """The samples of a file as FP32 [n,512]; the last chunk is filled up with silence.

    Raises:
        ValueError: the file has another rate or form, or no samples.
    """
    with wave.open(str(path), "rb") as file:
        form = (file.getframerate(), file.getsampwidth(), file.getnchannels())
        if form != (RATE, 2, 1):
            raise ValueError(f"{path}: got (rate, bytes, channels) {form}, expected {(RATE, 2, 1)}")
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    if not len(samples):
        raise ValueError(f"{path}: no samples")
    filled = np.pad(samples, (0, -len(samples) % CHUNK))
    return (filled / np.float32(32768)).astype(np.float32).reshape(-1, CHUNK)


def ask(url: str, chunks: NDArray[np.float32], sequence: int) -> Iterator[float]:
    """Yield the probability of speech in each chunk, in their order."""
    heard: SimpleQueue[tuple[tritonclient.grpc.InferResult | None, InferenceServerException | None]] = (
        SimpleQueue()
    )
    with tritonclient.grpc.InferenceServerClient(url) as client:
        client.start_stream(lambda result, error: heard.put((result, error)))
        answered = 0
        for index, chunk in enumerate(chunks):
            is_last = index == len(chunks) - 1
            tensor = tritonclient.grpc.InferInput("samples", [1, CHUNK], "FP32")
            tensor.set_data_from_numpy(chunk[np.newaxis])
            client.async_stream_infer(
                "voice_activity",
                [tensor],
                sequence_id=sequence,
                sequence_start=index == 0,
                sequence_end=is_last,
            )
            while answered < index + 1 and (is_last or index - answered >= UNDER_WAY - 1):
                result, error = heard.get()
                if error is not None:
                    raise error
                assert result is not None  # or there is an error
                answered += 1
                yield float(result.as_numpy("SPEECH__0").item())


def segments(scores: Sequence[float]) -> list[tuple[float, float]]:
    """Where somebody speaks, in seconds from the beginning, of the probability for each chunk."""
    found: list[tuple[float, float]] = []
    begin: int | None = None
    for index, score in enumerate([*scores, 0.0]):
        if begin is None and score >= BEGIN:
            begin = index
        elif begin is not None and score < END:
            start, end = begin * CHUNK / RATE, index * CHUNK / RATE
            if found and start - found[-1][1] < PAUSE:
                start = found.pop()[0]
            found.append((start, end))
            begin = None
    return [(start, end) for start, end in found if end - start >= SHORTEST]


def _made(folder: Path) -> Path:
    from make_speech import write_speech

    write_speech(folder / "speech.wav")
    return folder / "speech.wav"


def _served(stack: ExitStack, folder: Path) -> str:
    """Start a server that ends with `stack` and return its address."""
    from make_model import make_model
    from tritonpy.options import ServerOptions
    from tritonpy.server import Server

    shutil.copytree(HERE / "models", folder / "models")
    make_model(folder / "models")
    options = ServerOptions(
        (str(folder / "models"),),
        allow_http=False,
        allow_metrics=False,
        grpc_address="127.0.0.1",
        grpc_port=0,
    )
    return f"127.0.0.1:{stack.enter_context(Server(options)).grpc_port}"


if __name__ == "__main__":
    sys.exit(main())
