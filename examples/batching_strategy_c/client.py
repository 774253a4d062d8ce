"""Send one request for each number of bytes, all at once and in this order.

python client.py 16 32 48 16 16 16 80 96
"""

from __future__ import annotations

import argparse
import queue
from typing import Any

import numpy as np
import tritonclient.grpc as triton


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bytes", type=int, nargs="+")
    parser.add_argument("--grpc-url", default="localhost:8001")
    options = parser.parse_args()
    answers: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()

    with triton.InferenceServerClient(options.grpc_url) as client:
        # A stream keeps them in order, so that the batches are always the same.
        client.start_stream(lambda result, error: answers.put((result, error)))
        for number in options.bytes:
            tensor = triton.InferInput("INPUT0", [1, number // 4], "FP32")
            tensor.set_data_from_numpy(np.zeros((1, number // 4), np.float32))
            client.async_stream_infer("volumes", [tensor])
        for _ in options.bytes:
            _, error = answers.get(timeout=30)
            if error is not None:
                raise SystemExit(f"a request failed: {error}")
    print(f"{len(options.bytes)} requests were answered")


if __name__ == "__main__":
    main()
