"""The example `voice_activity`: its one command, and its model beside the ONNX file of the same package."""

from __future__ import annotations

import subprocess
import sys
import wave
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray
from tritonpy.options import ServerOptions
from tritonpy.server import Server

pytest.importorskip("torch")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples/voice_activity"
try:
    ONNX = Path(str(distribution("silero-vad").locate_file("silero_vad/data/silero_vad.onnx")))
except PackageNotFoundError:
    pytest.skip("silero-vad is not installed: pip install --no-deps silero-vad", allow_module_level=True)


@pytest.fixture(scope="module")
def modules() -> Iterator[tuple[ModuleType, ModuleType, ModuleType]]:
    """Those of the example: detect, make_model and make_speech."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLE))
        import detect
        import make_model
        import make_speech

        yield detect, make_model, make_speech


@pytest.fixture(scope="module")
def url(
    tmp_path_factory: pytest.TempPathFactory, modules: tuple[ModuleType, ModuleType, ModuleType]
) -> Iterator[str]:
    root = tmp_path_factory.mktemp("models")
    modules[1].make_model(root)
    config = (EXAMPLE / "models/voice_activity/config.pbtxt").read_text()
    (root / "voice_activity/config.pbtxt").write_text(config)
    options = ServerOptions(
        (str(root),), allow_http=False, allow_metrics=False, grpc_address="127.0.0.1", grpc_port=0
    )
    with Server(options) as server:
        yield f"127.0.0.1:{server.grpc_port}"


def by_onnx(chunks: NDArray[np.float32]) -> list[float]:
    """The same model's probabilities, with the state kept here."""
    session = pytest.importorskip("onnxruntime").InferenceSession(ONNX)
    state, context = np.zeros((2, 1, 128), "f4"), np.zeros((1, 64), "f4")
    scores = []
    for chunk in chunks[:, np.newaxis]:
        x = np.concatenate([context, chunk], 1)
        score, state = session.run(None, {"input": x, "state": state, "sr": np.array(16000)})
        scores.append(float(score[0, 0]))
        context = x[:, -64:]
    return scores


def test_one_command_prints_where_somebody_speaks() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "detect.py")], capture_output=True, text=True, timeout=120
    )

    assert done.returncode == 0, done.stderr
    found = [[float(word) for word in line.replace("s", "").split("to")] for line in done.stdout.splitlines()]
    # The file has phrases of 2 s from 1 s on and of 1.5 s from 4.2 s on; the last words fade.
    assert len(found) == 2, done.stdout
    for (begin, end), (expected_begin, expected_end) in zip(found, [(1, 3), (4.2, 5.7)], strict=True):
        assert begin == pytest.approx(expected_begin, abs=0.15)
        assert end == pytest.approx(expected_end, abs=0.15)


def test_streams_at_the_same_time_each_hear_what_the_onnx_file_hears(
    url: str, modules: tuple[ModuleType, ModuleType, ModuleType], tmp_path: Path
) -> None:
    detect, _, make_speech = modules
    voices = []
    for index, pitch in enumerate((100, 130, 210)):
        make_speech.write_speech(tmp_path / f"{pitch}.wav", pitch, index)
        voices.append(detect.read_chunks(tmp_path / f"{pitch}.wav")[20:80])  # silence and some syllables

    with ThreadPoolExecutor(len(voices)) as pool:
        heard = list(
            pool.map(lambda index: list(detect.ask(url, voices[index], index + 1)), range(len(voices)))
        )

    for scores, chunks in zip(heard, voices, strict=True):
        np.testing.assert_allclose(scores, by_onnx(chunks), atol=1e-5)
    assert len({tuple(scores) for scores in heard}) == len(voices)


def test_a_sequence_that_begins_anew_remembers_nothing(
    url: str, modules: tuple[ModuleType, ModuleType, ModuleType]
) -> None:
    detect, _, make_speech = modules
    samples = make_speech.speech(120, 1).astype("f4")[16000 : 16000 + 40 * 512].reshape(-1, 512)

    first, second = (list(detect.ask(url, samples, 9)) for _ in range(2))

    assert first == pytest.approx(second, abs=1e-6)


def test_short_pauses_are_bridged_and_short_sounds_dropped(
    modules: tuple[ModuleType, ModuleType, ModuleType],
) -> None:
    detect = modules[0]
    spoken = [1.0] * 20

    assert detect.segments([0.0, *spoken, 0.1, 0.1, *spoken, 0.4, 0.2]) == [(0.032, 44 * 0.032)]
    assert detect.segments([*spoken, *[0.0] * 10, *[1.0] * 3]) == [(0.0, 20 * 0.032)]
    assert detect.segments([0.45] * 30) == []


def test_a_file_of_another_rate_is_refused(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "music.wav"), "wb") as file:
        file.setparams((2, 2, 44100, 0, "NONE", ""))
        file.writeframes(bytes(400))

    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "detect.py"), str(tmp_path / "music.wav")],
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 1
    assert "got (rate, bytes, channels) (44100, 2, 2), expected (16000, 2, 1)" in done.stderr
