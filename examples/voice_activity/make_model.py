"""Make the model's file of what the package `silero-vad` ships.

    python examples/voice_activity/make_model.py

The shipped TorchScript module keeps what it heard in itself, so that it hears one speaker at a time. The
network inside of it is a function. With what it heard as an input and an output, the server keeps that for
each sequence, and the chunks of many speakers are one batch. It needs torch and
`pip install --no-deps silero-vad`.
"""

from __future__ import annotations

import argparse
import warnings
from importlib.metadata import distribution
from pathlib import Path
from typing import Tuple  # noqa: UP035  # TorchScript reads it

import torch

HERE = Path(__file__).resolve().parent


class VoiceActivity(torch.nn.Module):
    """The probability of speech in chunks of 512 samples at 16 kHz."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, samples: torch.Tensor, memory: torch.Tensor, before: torch.Tensor
    ) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # noqa: UP006
        """Hear one chunk of each of n speakers.

        Args:
            samples: FP32 [n,512], from -1 to 1.
            memory: FP32 [n,2,128], zeros at first.
            before: FP32 [n,64], the last samples of the chunk before, zeros at first.

        Returns:
            FP32 [n,1], from 0 to 1; and the next `memory` and `before`.
        """
        heard = torch.cat([before, samples], 1)
        speech, following = self.network(heard, memory.transpose(0, 1))
        return speech, following.transpose(0, 1).contiguous(), samples[:, -64:].contiguous()


def make_model(repository: Path) -> Path:
    """Write version 1 of the model into a repository and return the path of its file."""
    path = repository / "voice_activity/1/model.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    file = distribution("silero-vad").locate_file("silero_vad/data/silero_vad.jit")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, and the network ships as nothing else
        shipped = torch.jit.load(str(file))
        torch.jit.save(torch.jit.script(VoiceActivity(shipped._model).eval()), str(path))
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make the model of the package silero-vad.")
    parser.add_argument(
        "--repository", type=Path, default=HERE / "models", help="folder of models to write to"
    )
    print(make_model(parser.parse_args().repository))
