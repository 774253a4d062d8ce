"""Continue a text and answer with a piece of it for every token."""

from __future__ import annotations

import codecs
import sys
from pathlib import Path

import triton_python_backend_utils as pb_utils

# The code and the checkpoint are those of the model `text_generation`, beside this one in the repository. Not
# links, which a checkout on Windows does not make; not a third folder, which would be taken for a model.
SHARED = Path(__file__).resolve().parents[2] / "text_generation" / "1"
if not (SHARED / "textgen").is_dir():
    raise pb_utils.TritonModelException(
        f"text_generation_stream uses the code of text_generation in the same repository: {SHARED} has none"
    )
sys.path.append(str(SHARED))

from textgen.sampling import Sampling  # noqa: E402
from textgen.serving import Service, send_error, text_response  # noqa: E402
from textgen.tokenizer import Tokenizer  # noqa: E402

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """The class that Triton looks for in a Python model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer and the network, and start to generate."""
        self._service = Service(args)

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> None:
        """Take requests on; the responses follow from the generator's thread."""
        for request in requests:
            self._service.begin(request, Pieces)

    def finalize(self) -> None:
        """Stop generating."""
        self._service.close()


class Pieces:
    """Sends the tokens of one text as they come; the listener of its request."""

    def __init__(
        self, sender: pb_utils.InferenceResponseSender, tokenizer: Tokenizer, prompt: str, sampling: Sampling
    ) -> None:
        self._sender = sender
        self._tokenizer = tokenizer
        # A token may hold only a part of a character: its response is empty, and the next one has it whole.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._count = 0

    def is_cancelled(self) -> bool:
        """Whether the client has hung up."""
        return self._sender.is_cancelled()

    def on_token(self, token: int) -> None:
        """Send its text."""
        self._count += 1
        self._sender.send(text_response(self._decoder.decode(self._tokenizer.token_bytes(token))))

    def on_end(self, is_cancelled: bool) -> None:
        """Say that nothing follows."""
        if is_cancelled:
            pb_utils.Logger.log_info(
                f"text_generation_stream: stopped after {self._count} tokens, the client is gone"
            )
        elif rest := self._decoder.decode(b"", final=True):
            self._sender.send(text_response(rest))
        self._sender.send(flags=FINAL)

    def on_error(self, error: Exception) -> None:
        """Answer with what went wrong."""
        text = f"model 'text_generation_stream': {type(error).__name__}: {error}"
        send_error(self._sender, pb_utils.TritonError(text, pb_utils.TritonError.INTERNAL))
