"""Continue a text and answer with the whole of it."""

from __future__ import annotations

import triton_python_backend_utils as pb_utils
from textgen.sampling import Sampling
from textgen.serving import Service, send_error, text_response
from textgen.tokenizer import Tokenizer

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """The class that Triton looks for in a Python model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer and the network, and start to generate."""
        self._service = Service(args)

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> None:
        """Take requests on; each is answered by its listener when its text is complete.

        Returning at once lets the server hand over the next request, so that requests which wait for their
        texts at the same time share the network's work.
        """
        for request in requests:
            self._service.begin(request, WholeText)

    def finalize(self) -> None:
        """Stop generating."""
        self._service.close()


class WholeText:
    """Collects the tokens of one text; the listener of its request."""

    def __init__(
        self, sender: pb_utils.InferenceResponseSender, tokenizer: Tokenizer, prompt: str, sampling: Sampling
    ) -> None:
        self._sender = sender
        self._tokenizer = tokenizer
        self._begin = prompt if sampling.return_full_text else ""
        self._tokens: list[int] = []

    def is_cancelled(self) -> bool:
        """Whether the client has hung up."""
        return self._sender.is_cancelled()

    def on_token(self, token: int) -> None:
        """Keep it."""
        self._tokens.append(token)

    def on_end(self, is_cancelled: bool) -> None:
        """Answer."""
        if is_cancelled:
            count = len(self._tokens)
            pb_utils.Logger.log_info(f"text_generation: stopped after {count} tokens, the client is gone")
            error = pb_utils.TritonError("request was cancelled", pb_utils.TritonError.CANCELLED)
            send_error(self._sender, error)
            return
        text = self._begin + self._tokenizer.decode(self._tokens)
        self._sender.send(text_response(text), flags=FINAL)

    def on_error(self, error: Exception) -> None:
        """Answer with what went wrong."""
        text = f"model 'text_generation': {type(error).__name__}: {error}"
        send_error(self._sender, pb_utils.TritonError(text, pb_utils.TritonError.INTERNAL))
