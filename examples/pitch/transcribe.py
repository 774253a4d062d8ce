"""Print the notes in a WAV file, as a server hears them.

    python examples/pitch/transcribe.py

Without a file it makes one, and without `--url` a model and a server for it. The file goes out in
windows of two seconds, up to 16 of them in a request. It needs numpy and `tritonclient[http]`, and for a
server of its own the backend `tensorflow` and `basic-pitch`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import wave
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tritonclient.http
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException

HERE = Path(__file__).resolve().parent
RATE = 22050
FRAME = 256  # samples, 11.6 ms
WINDOW = 43844  # samples that the model takes; it gives 172 frames for them
EDGE = 15  # frames at both ends of a window that know too little of what is around them
KEPT = 172 - 2 * EDGE
BATCH = 16  # windows in a request
LOWEST_KEY = 21  # of the 88 keys, as MIDI counts: an A
BEGIN, GO_ON = 0.5, 0.3  # probabilities with which a note begins, and goes on
SHORTEST, GAP = 17, 11  # frames: shorter notes are dropped, shorter gaps in them bridged
NAMES = ["C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"]

Array = NDArray[np.float32]


class Note(NamedTuple):
    """A tone: seconds from the beginning, and its key as MIDI counts, 60 for the C in the middle."""

    begin: float
    end: float
    key: int

    @property
    def name(self) -> str:
        """As musicians say it: C4 for key 60."""
        return f"{NAMES[self.key % 12]}{self.key // 12 - 1}"


def main() -> int:
    """Listen, print, and return the exit status."""
    parser = argparse.ArgumentParser(description="Print the notes in a WAV file.")
    parser.add_argument("file", nargs="?", type=Path, help="22.05 kHz, 16 bit, mono (default: one made here)")
    parser.add_argument("--url", help="address of a server's HTTP port (default: one started here)")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            samples = read_samples(options.file or _made(folder))
            onsets, sounding = ask(options.url or _served(stack, folder), samples)
        except (InferenceServerException, OSError, ValueError, wave.Error) as error:
            print(error, file=sys.stderr)
            return 1
    for note in notes(onsets, sounding):
        print(f"{note.begin:.2f} s to {note.end:.2f} s  {note.name}")
    return 0


def read_samples(path: Path) -> Array:
    """The samples of a file, from -1 to 1.

    Raises:
        ValueError: the file has another rate or form, or no samples.
    """
    with wave.open(str(path), "rb") as file:
        form = (file.getframerate(), file.getsampwidth(), file.getnchannels())
        if form != (RATE, 2, 1):
            raise ValueError(
                f"{path}: got (rate, bytes, channels) {form}, expected {(RATE, 2, 1)}: "
                f"ffmpeg -i {path.name} -ar {RATE} -ac 1 -sample_fmt s16 mono.wav"
            )
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    if not len(samples):
        raise ValueError(f"{path}: no samples")
    return samples.astype(np.float32) / 32768


def ask(url: str, samples: Array) -> tuple[Array, Array]:
    """Probabilities that a note begins, and that one sounds: FP32 [frames,88], a column for each key."""
    frames = -(-len(samples) // FRAME)
    count = -(-frames // KEPT)
    hop = KEPT * FRAME  # windows overlap by what is dropped of their frames
    filled = np.zeros((count - 1) * hop + WINDOW, np.float32)
    filled[EDGE * FRAME :][: len(samples)] = samples
    windows = np.lib.stride_tricks.sliding_window_view(filled, WINDOW)[::hop, :, np.newaxis]
    heard: dict[str, list[Array]] = {"onset": [], "note": []}
    wanted = [tritonclient.http.InferRequestedOutput(name) for name in heard]
    with tritonclient.http.InferenceServerClient(url, network_timeout=300.0) as client:
        for start in range(0, count, BATCH):
            batch = windows[start : start + BATCH]
            tensor = tritonclient.http.InferInput("input_2", list(batch.shape), "FP32")
            tensor.set_data_from_numpy(np.ascontiguousarray(batch))
            result = client.infer("pitch", [tensor], outputs=wanted)
            for name, parts in heard.items():
                parts.append(result.as_numpy(name)[:, EDGE:-EDGE].reshape(-1, 88))
    onsets, sounding = (np.concatenate(parts)[:frames] for parts in heard.values())
    return onsets, sounding


def notes(onsets: Array, sounding: Array) -> list[Note]:
    """The notes in the order in which they begin, of what `ask` gives."""
    edged = np.pad(onsets, ((1, 1), (0, 0)))
    begins = (onsets >= BEGIN) & (onsets > edged[:-2]) & (onsets >= edged[2:])
    found = []
    for index in np.flatnonzero(begins.any(0)):
        starts = np.flatnonzero(begins[:, index]).tolist()
        for start, following in zip(starts, [*starts[1:], len(onsets)], strict=True):
            loud = start + np.flatnonzero(sounding[start:following, index] >= GO_ON)
            gaps = np.flatnonzero(np.diff(loud, prepend=start) > GAP)
            loud = loud[: gaps[0]] if len(gaps) else loud
            if len(loud) and loud[-1] - start >= SHORTEST:
                end = int(loud[-1]) + 1
                found.append(Note(start * FRAME / RATE, end * FRAME / RATE, LOWEST_KEY + int(index)))
    return sorted(found)


def _made(folder: Path) -> Path:
    from make_melody import write_melody

    write_melody(folder / "melody.wav")
    return folder / "melody.wav"


def _served(stack: ExitStack, folder: Path) -> str:
    """Start a server that ends with `stack` and return its address."""
    from make_model import make_model
    from tritonpy.options import ServerOptions
    from tritonpy.server import Server

    shutil.copytree(HERE / "models", folder / "models")
    make_model(folder / "models")
    options = ServerOptions(
        (str(folder / "models"),),
        allow_grpc=False,
        allow_metrics=False,
        http_address="127.0.0.1",
        http_port=0,
    )
    return f"127.0.0.1:{stack.enter_context(Server(options)).http_port}"


if __name__ == "__main__":
    sys.exit(main())
