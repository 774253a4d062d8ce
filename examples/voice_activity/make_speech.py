"""Make a WAV file with something like speech in it: a buzz through the resonances of vowels, in two phrases.

    python examples/voice_activity/make_speech.py speech.wav

The file is the same on every machine and nobody's voice. It needs numpy.
"""

from __future__ import annotations

import sys
import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RATE = 16000
VOWELS = [(730, 1090, 2440), (270, 2290, 3010), (570, 840, 2410), (530, 1840, 2480), (300, 870, 2240)]
"""The three lowest resonances of a, i, o, e and u in Hz."""
PHRASES = [1.0, 2.0, 1.2, 1.5, 0.8]
"""Seconds of silence and of speech, in turn."""

Samples = NDArray[np.float64]


def speech(pitch: float, seed: int) -> Samples:
    """Samples from -1 to 1: silence and phrases of a voice with this many Hz."""
    random = np.random.default_rng(seed)
    parts = []
    for index, seconds in enumerate(PHRASES):
        count = int(seconds * RATE)
        parts.append(_phrase(count, pitch, random) if index % 2 else np.zeros(count))
    samples = np.concatenate(parts)
    return samples + random.normal(size=len(samples)) * 0.001


def _phrase(count: int, pitch: float, random: np.random.Generator) -> Samples:
    """Syllables, each a hiss and a vowel."""
    parts: list[Samples] = []
    while sum(map(len, parts)) < count:
        hiss = np.hanning(RATE // 20)
        parts.append(hiss * random.normal(size=len(hiss)) * 0.03)
        parts.append(_vowel(int(random.uniform(0.16, 0.24) * RATE), pitch, random))
    return np.concatenate(parts)[:count]


def _vowel(count: int, pitch: float, random: np.random.Generator) -> Samples:
    seconds = np.arange(count) / RATE
    phase = np.cumsum(pitch * (1 + 0.15 * np.sin(2 * np.pi * 1.3 * seconds))) / RATE
    buzz = np.diff(np.floor(phase), prepend=0.0) + 0.01 * random.normal(size=count)
    time = np.arange(800) / RATE
    sound = np.zeros(count)
    for frequency, width, gain in zip(
        VOWELS[random.integers(len(VOWELS))], (80, 100, 140), (1, 0.6, 0.3), strict=True
    ):
        resonance = gain * width * np.exp(-np.pi * width * time) * np.sin(2 * np.pi * frequency * time)
        sound += np.convolve(buzz, resonance)[:count]
    sound *= np.minimum(1, np.minimum(seconds, seconds[::-1]) / 0.03)
    return 0.4 * sound / np.abs(sound).max()


def write_speech(path: Path, pitch: float = 120, seed: int = 1) -> None:
    """Write the samples as 16-bit mono."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((speech(pitch, seed) * 32767).astype("<i2").tobytes())


if __name__ == "__main__":
    write_speech(Path(sys.argv[1]))
