"""The example `pitch`: its one command, and what its client makes of recordings and of answers."""

from __future__ import annotations

import shutil
import subprocess
import sys
import wave
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import tritonclient.http
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_sdk import ModelRepository

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/pitch"


@pytest.fixture(scope="module")
def modules() -> Iterator[tuple[ModuleType, ModuleType]]:
    """Those of the example: transcribe and make_melody."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLE))
        import make_melody
        import transcribe

        yield transcribe, make_melody


@pytest.fixture(scope="module")
def shipped() -> Path:
    """The folder of what basic-pitch ships."""
    if find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed: pip install tensorflow-cpu")
    try:
        return Path(str(distribution("basic-pitch").locate_file("basic_pitch/saved_models/icassp_2022")))
    except PackageNotFoundError:
        pytest.skip("basic-pitch is not installed: pip install --no-deps basic-pitch")


def test_one_command_prints_the_notes_that_are_played(
    modules: tuple[ModuleType, ModuleType], shipped: Path
) -> None:
    transcribe, make_melody = modules

    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "transcribe.py")], capture_output=True, text=True, timeout=120
    )

    assert done.returncode == 0, done.stderr
    heard = sorted(
        (name, float(begin)) for begin, _, _, _, _, name in map(str.split, done.stdout.splitlines())
    )
    played = sorted((transcribe.Note(begin, 0, key).name, begin) for begin, _, key in make_melody.NOTES)
    assert [name for name, _ in heard] == [name for name, _ in played], done.stdout
    assert [begin for _, begin in heard] == pytest.approx([begin for _, begin in played], abs=0.05)


def test_three_backends_hear_the_same_in_the_three_forms_of_the_model(
    modules: tuple[ModuleType, ModuleType], shipped: Path, tmp_path: Path
) -> None:
    for module in ("ai_edge_litert", "onnxruntime"):
        pytest.importorskip(module)
    transcribe, make_melody = modules
    repository = ModelRepository(tmp_path)
    repository.model("tensorflow", None)
    shutil.copytree(shipped / "nmp", tmp_path / "tensorflow/1/model.savedmodel")
    repository.model("litert", None, {"model.tflite": (shipped / "nmp.tflite").read_bytes()})
    repository.onnx("onnxruntime", (shipped / "nmp.onnx").read_bytes())
    samples = make_melody.melody()[: 2 * transcribe.WINDOW].reshape(2, -1, 1).astype("f4")
    options = ServerOptions(
        (str(tmp_path),), allow_grpc=False, allow_metrics=False, http_address="127.0.0.1", http_port=0
    )
    heard = {}
    with (
        Server(options) as server,
        tritonclient.http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}", network_timeout=300.0
        ) as client,
    ):
        for name in ("tensorflow", "litert", "onnxruntime"):
            config = client.get_model_config(name)
            tensor = tritonclient.http.InferInput(config["input"][0]["name"], list(samples.shape), "FP32")
            tensor.set_data_from_numpy(samples)
            result = client.infer(name, [tensor])
            outputs = [result.as_numpy(output["name"]) for output in config["output"]]
            assert config["backend"] == name
            assert config["max_batch_size"] == 4
            # Only the names differ: the three are told apart by what they are about.
            heard[name] = sorted(outputs, key=lambda output: (output.shape[-1], float(output.mean())))

    first = heard.pop("tensorflow")
    assert [output.shape for output in first] == [(2, 172, 88), (2, 172, 88), (2, 172, 264)]
    for others in heard.values():
        for output, other in zip(first, others, strict=True):
            np.testing.assert_allclose(output, other, atol=2e-3)


def test_windows_meet_where_their_edges_are_dropped(
    modules: tuple[ModuleType, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    transcribe = modules[0]
    samples = np.arange(1, 20 * transcribe.WINDOW, dtype="f4")

    class Client:
        """A model for which the first sample of a frame is what sounds in it."""

        def __init__(self, *_: object, **__: object) -> None: ...

        def __enter__(self) -> Client:
            return self

        def __exit__(self, *_: object) -> None: ...

        def infer(self, name: str, inputs: list[FakeInput], outputs: object) -> Client:
            assert len(inputs[0].array) <= transcribe.BATCH
            self.frames = inputs[0].array[:, :: transcribe.FRAME]
            return self

        def as_numpy(self, name: str) -> np.ndarray:
            return np.repeat(self.frames, 88, axis=2)

    class FakeInput:
        def __init__(self, name: str, shape: list[int], datatype: str) -> None: ...

        def set_data_from_numpy(self, array: np.ndarray) -> None:
            self.array = array

    monkeypatch.setattr(transcribe.tritonclient.http, "InferenceServerClient", Client)
    monkeypatch.setattr(transcribe.tritonclient.http, "InferInput", FakeInput)
    onsets, sounding = transcribe.ask("", samples)

    assert onsets.shape == sounding.shape == (-(-len(samples) // transcribe.FRAME), 88)
    assert sounding[:, 3].tolist() == samples[:: transcribe.FRAME].tolist()


def test_notes_begin_at_peaks_and_last_while_they_sound(modules: tuple[ModuleType, ModuleType]) -> None:
    transcribe = modules[0]
    onsets, sounding = np.zeros((2, 200, 88), "f4")
    onsets[10, 39] = onsets[60, 39] = onsets[5, 48] = onsets[100, 50] = 0.9
    onsets[9, 39] = onsets[11, 39] = 0.6  # beside a peak
    onsets[150, 39] = 0.4
    sounding[10:40, 39] = sounding[45:90, 39] = 0.5  # a short gap, and the same key again
    sounding[5:15, 48] = 0.9  # too short
    sounding[130:199, 50] = 0.9  # not what began

    found = transcribe.notes(onsets, sounding)

    ends = [(note.begin, note.end) for note in found]
    frames = [(10, 60), (60, 90)]
    assert ends == [
        pytest.approx([at * transcribe.FRAME / transcribe.RATE for at in pair]) for pair in frames
    ]
    assert [note.name for note in found] == ["C4", "C4"]


def test_a_file_of_another_rate_is_refused_with_what_converts_it(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "music.wav"), "wb") as file:
        file.setparams((2, 2, 44100, 0, "NONE", ""))
        file.writeframes(bytes(400))

    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "transcribe.py"), str(tmp_path / "music.wav")],
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 1
    assert "got (rate, bytes, channels) (44100, 2, 2), expected (22050, 2, 1)" in done.stderr
    assert "ffmpeg -i music.wav -ar 22050 -ac 1" in done.stderr
