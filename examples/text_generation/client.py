"""Have a running server continue a text and print what comes, token by token.

    python examples/text_generation/client.py "How can you be"

The tokens come over a gRPC stream from the model `text_generation_stream`; Ctrl-C hangs up, and the server
stops generating. With `--http` the whole text comes at once from the model `text_generation`. It needs numpy
and `tritonclient[grpc,http]`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from queue import SimpleQueue

import numpy as np
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

SETTINGS = {"max_new_tokens": int, "temperature": float, "top_k": int, "seed": int}


def main() -> int:
    """Ask, print and return the exit status."""
    parser = argparse.ArgumentParser(description="Have a server continue a text.")
    parser.add_argument("prompt", nargs="?", default="How can you be", help="the beginning of the text")
    parser.add_argument("--http", action="store_true", help="fetch the whole text by one HTTP request")
    parser.add_argument("--url", default="localhost:8000", help="HTTP address of the server")
    parser.add_argument("--grpc-url", default="localhost:8001", help="gRPC address of the server")
    parser.add_argument("--max-new-tokens", type=int, help="end after this many tokens")
    parser.add_argument("--temperature", type=float, help="how daring; 0 always takes the likeliest token")
    parser.add_argument("--top-k", type=int, help="choose among this many tokens; 0 for all")
    parser.add_argument("--seed", type=int, help="the same number gives the same text")
    options = parser.parse_args()
    # The server knows what holds where nothing is given.
    given = {name: getattr(options, name) for name in SETTINGS}
    parameters = {name: value for name, value in given.items() if value is not None}

    try:
        if options.http:
            print(whole_text(options.url, options.prompt, parameters))
        else:
            print(options.prompt, end="", flush=True)
            for piece in pieces(options.grpc_url, options.prompt, parameters):
                print(piece, end="", flush=True)
            print()
    except KeyboardInterrupt:
        print()
    except (InferenceServerException, OSError) as error:
        print(f"{options.url if options.http else options.grpc_url}: {error}", file=sys.stderr)
        return 1
    return 0


def whole_text(url: str, prompt: str, parameters: dict[str, int | float]) -> str:
    """Return `prompt` and what the model `text_generation` adds to it."""
    with tritonclient.http.InferenceServerClient(url) as client:
        tensor = tritonclient.http.InferInput("text_input", [1], "BYTES")
        tensor.set_data_from_numpy(np.array([prompt.encode()], np.object_))
        answer = client.infer("text_generation", [tensor], parameters=parameters)
        text: bytes = answer.as_numpy("text_output")[0]
    return text.decode()


def pieces(url: str, prompt: str, parameters: dict[str, int | float]) -> Iterator[str]:
    """Yield what the model `text_generation_stream` adds to `prompt`, token by token.

    Whoever stops early hangs up, and the server stops with the text.
    """
    tensor = tritonclient.grpc.InferInput("text_input", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([prompt.encode()], np.object_))
    # What the stream's thread hears: an answer, or why there is none.
    heard: SimpleQueue[tuple[tritonclient.grpc.InferResult | None, InferenceServerException | None]] = (
        SimpleQueue()
    )
    client = tritonclient.grpc.InferenceServerClient(url)
    is_complete = False
    try:
        client.start_stream(lambda result, error: heard.put((result, error)))
        client.async_stream_infer(
            "text_generation_stream", [tensor], parameters=parameters, enable_empty_final_response=True
        )
        while not is_complete:
            result, error = heard.get()
            if error is not None:
                raise error
            assert result is not None  # or there is an error
            is_complete = result.get_response().parameters["triton_final_response"].bool_param
            text = result.as_numpy("text_output")
            if text is not None:
                yield text[0].decode()
    finally:
        client.stop_stream(cancel_requests=not is_complete)
        client.close()


if __name__ == "__main__":
    sys.exit(main())
