"""What the models `text_generation` and `text_generation_stream` have in common."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils

from .generator import Generator, Listener
from .network import GPT2
from .sampling import Sampling
from .threads import use_one_thread
from .tokenizer import Tokenizer

CHECKPOINT = Path(__file__).resolve().parent.parent / "checkpoint"

# In quotes: Triton does not name the type of its senders.
MakeListener = Callable[["pb_utils.InferenceResponseSender", Tokenizer, str, Sampling], Listener]
"""Makes a request's listener from its sender, the tokenizer, the prompt and the request's settings."""


class Service:
    """Reads requests, and continues their texts in a thread of its own.

    Args:
        args: what Triton hands to `initialize`. The parameter `max_concurrent_texts` of the configuration
            says how many texts to work on at once.
        checkpoint: folder with the tokenizer, the network and the defaults, as Hugging Face saves them.
    """

    def __init__(self, args: dict[str, str], checkpoint: Path = CHECKPOINT) -> None:
        parameters = json.loads(args["model_config"]).get("parameters", {})
        rows = int(parameters.get("max_concurrent_texts", {}).get("string_value", 16))
        if rows < 1:
            raise pb_utils.TritonModelException(
                f"parameter max_concurrent_texts: got {rows}, expected 1 or more"
            )
        settings = json.loads((checkpoint / "generation_config.json").read_bytes())
        ends = settings["eos_token_id"]  # one token, a list, or null: nothing ends a text
        use_one_thread()
        self._name = args["model_name"]
        self._defaults = Sampling.from_pretrained(checkpoint)
        self._tokenizer = Tokenizer.from_pretrained(checkpoint)
        network = GPT2.from_pretrained(checkpoint)
        # No token is longer: what has more bytes is refused before time goes into cutting it up.
        self._most_bytes = network.context * self._tokenizer.longest
        end_tokens = frozenset(ends if isinstance(ends, list) else [] if ends is None else [ends])
        self._generator = Generator(network, end_tokens, settings["bos_token_id"], rows)
        self._thread = threading.Thread(target=self._generator.run, name="generator", daemon=True)
        self._thread.start()

    def begin(self, request: pb_utils.InferenceRequest, make_listener: MakeListener) -> None:
        """Have the text of `request` continued; a request that cannot be is answered with what is wrong."""
        sender = request.get_response_sender()
        try:
            prompt = self._prompt(request)
            sampling = self._defaults.changed(json.loads(request.parameters()))
            listener = make_listener(sender, self._tokenizer, prompt, sampling)
            self._generator.submit(self._tokenizer.encode(prompt), sampling, listener)
        except ValueError as error:
            text = f"model '{self._name}': {error}"
            send_error(sender, pb_utils.TritonError(text, pb_utils.TritonError.INVALID_ARG))

    def close(self) -> None:
        """Stop the thread; the server has had all its answers by now."""
        self._generator.close()
        self._thread.join()

    def _prompt(self, request: pb_utils.InferenceRequest) -> str:
        tensor = pb_utils.get_input_tensor_by_name(request, "text_input")
        assert tensor is not None  # the server refuses a request without it
        data: bytes = tensor.as_numpy()[0]
        if len(data) > self._most_bytes:
            raise ValueError(
                f"input 'text_input': got {len(data)} bytes, expected at most {self._most_bytes}"
            )
        try:
            text: str = data.decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"input 'text_input': expected a text in UTF-8, got bytes that are not: {error}"
            ) from None
        return text


def text_response(text: str) -> pb_utils.InferenceResponse:
    """Return a response with `text` as its output."""
    return pb_utils.InferenceResponse([pb_utils.Tensor("text_output", np.array([text.encode()], np.object_))])


def send_error(sender: pb_utils.InferenceResponseSender, error: pb_utils.TritonError) -> None:
    """Answer with an error and nothing more."""
    response = pb_utils.InferenceResponse(error=error)
    sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
