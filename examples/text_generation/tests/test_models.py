"""The two Triton models by hand: what their listeners send, and what they refuse to start with."""

from __future__ import annotations

import importlib.util
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest
import triton_python_backend_utils as pb_utils
from textgen.sampling import Sampling
from textgen.serving import Service
from textgen.tokenizer import Tokenizer

MODELS = Path(__file__).resolve().parents[1] / "models"
PROMPT = "smile: "
TEXT = "🙂 ok"


@dataclass
class Sender:
    """Keeps what is sent; an error as its code and text, the final flag as None."""

    sent: list[str | tuple[int, str] | None] = field(default_factory=list)
    is_gone: bool = False

    def is_cancelled(self) -> bool:
        return self.is_gone

    def send(self, response: pb_utils.InferenceResponse | None = None, flags: int = 0) -> None:
        if response is not None:
            error = response.error()
            if error is not None:
                self.sent.append((error.code(), error.message()))
            else:
                [tensor] = response.output_tensors()
                assert (tensor.name(), tensor.as_numpy().shape) == ("text_output", (1,))
                self.sent.append(tensor.as_numpy()[0].decode())
        if flags:
            self.sent.append(None)


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.parents[1].name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def whole() -> ModuleType:
    return load(MODELS / "text_generation/1/model.py")


@pytest.fixture(scope="module")
def stream() -> ModuleType:
    return load(MODELS / "text_generation_stream/1/model.py")


@pytest.mark.parametrize(("full", "expected"), [(True, PROMPT + TEXT), (False, TEXT)])
def test_the_whole_text_is_sent_once(
    whole: ModuleType, tokenizer: Tokenizer, full: bool, expected: str
) -> None:
    sender = Sender()
    listener = whole.WholeText(sender, tokenizer, PROMPT, Sampling(return_full_text=full))

    for token in tokenizer.encode(TEXT):
        listener.on_token(token)
    listener.on_end(is_cancelled=False)

    assert sender.sent == [expected, None]


def test_a_piece_is_sent_for_every_token_and_a_character_only_when_it_is_whole(
    stream: ModuleType, tokenizer: Tokenizer
) -> None:
    sender = Sender()
    listener = stream.Pieces(sender, tokenizer, PROMPT, Sampling())
    tokens = tokenizer.encode(TEXT)

    for token in tokens:
        listener.on_token(token)
    listener.on_end(is_cancelled=False)

    *pieces, final = sender.sent
    assert len(pieces) == len(tokens)
    assert pieces[0] == ""  # no token holds a whole smile
    assert "".join(map(str, pieces)) == TEXT
    assert final is None


def test_half_a_character_at_the_end_of_a_stream_is_replaced(
    stream: ModuleType, tokenizer: Tokenizer
) -> None:
    sender = Sender()
    listener = stream.Pieces(sender, tokenizer, PROMPT, Sampling())

    listener.on_token(tokenizer.encode("🙂")[0])
    listener.on_end(is_cancelled=False)

    assert sender.sent == ["", "\ufffd", None]


def test_a_text_that_nobody_waits_for_is_closed(
    whole: ModuleType, stream: ModuleType, tokenizer: Tokenizer
) -> None:
    for listen, expected in (
        (whole.WholeText, [(pb_utils.TritonError.CANCELLED, "request was cancelled"), None]),
        (stream.Pieces, [None]),
    ):
        sender = Sender()
        listener = listen(sender, tokenizer, PROMPT, Sampling())

        assert listener.is_cancelled() is False
        sender.is_gone = True
        assert listener.is_cancelled() is True
        listener.on_end(is_cancelled=True)

        assert sender.sent == expected


def test_a_failure_is_sent_with_the_name_of_the_model(
    whole: ModuleType, stream: ModuleType, tokenizer: Tokenizer
) -> None:
    for listen, name in ((whole.WholeText, "text_generation"), (stream.Pieces, "text_generation_stream")):
        sender = Sender()
        listen(sender, tokenizer, PROMPT, Sampling()).on_error(MemoryError("no room"))

        text = f"model '{name}': MemoryError: no room"
        assert sender.sent == [(pb_utils.TritonError.INTERNAL, text), None]


def test_a_stream_without_its_sibling_says_what_is_missing(tmp_path: Path) -> None:
    copy = tmp_path / "text_generation_stream/1/model.py"
    copy.parent.mkdir(parents=True)
    shutil.copy(MODELS / "text_generation_stream/1/model.py", copy)

    with pytest.raises(pb_utils.TritonModelException, match="uses the code of text_generation"):
        load(copy)


@pytest.mark.parametrize("rows", ["0", "-2", "many"])
def test_a_number_of_texts_that_makes_no_sense_is_refused(rows: str) -> None:
    config = {"parameters": {"max_concurrent_texts": {"string_value": rows}}}

    with pytest.raises((pb_utils.TritonModelException, ValueError), match=rows):
        Service({"model_name": "text_generation", "model_config": json.dumps(config)})
