"""Make a WAV file with a melody over two long tones, as something with strings might play it.

    python examples/pitch/make_melody.py melody.wav

The file is the same on every machine. It needs numpy.
"""

from __future__ import annotations

import sys
import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RATE = 22050
NOTES = [
    (0.2, 0.6, 60),
    (0.8, 0.6, 64),
    (1.4, 0.6, 67),
    (2.0, 0.6, 72),
    (2.6, 0.6, 69),
    (3.2, 1.2, 67),
    (0.2, 2.4, 43),
    (2.6, 1.8, 41),
]
"""Beginning and length in seconds, and pitch: keys of MIDI, of which 60 is the C in the middle."""
SECONDS = 4.8


def melody() -> NDArray[np.float64]:
    """Samples from -1 to 1."""
    samples = np.zeros(int(SECONDS * RATE))
    for begin, length, key in NOTES:
        start = int(begin * RATE)
        tone = _tone(int(length * RATE), 440 * 2 ** ((key - 69) / 12))
        samples[start : start + len(tone)] += tone
    return 0.8 * samples / np.abs(samples).max()


def _tone(count: int, frequency: float) -> NDArray[np.float64]:
    """A plucked string: its overtones fade, the higher the sooner."""
    seconds = np.arange(count) / RATE
    overtones = [
        np.exp(-seconds * number) / number**1.5 * np.sin(2 * np.pi * frequency * number * seconds)
        for number in range(1, 9)
    ]
    ends = np.minimum(1, np.minimum(seconds / 0.005, seconds[::-1] / 0.03))
    return np.sum(overtones, axis=0) * ends


def write_melody(path: Path) -> None:
    """Write the samples as 16-bit mono."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((melody() * 32767).astype("<i2").tobytes())


if __name__ == "__main__":
    write_melody(Path(sys.argv[1]))
