"""A program of its own that binds functions: ADDRESS TOKEN-FILE NAME [CA-FILE]."""

import os
import ssl
import sys
import threading
import time
from pathlib import Path

import numpy as np
from tritonpy_sdk import DynamicBatcher, ModelConfig, RemoteServer, Request, Tensor, batch

ADDRESS, TOKEN, NAME, *CA = sys.argv[1:]
CONFIG = ModelConfig(max_batch_size=4, batcher=DynamicBatcher(), instances=2)


@batch
def double(x: np.ndarray) -> dict[str, np.ndarray]:
    return {"y": x * 2, "pid": np.full((len(x), 1), os.getpid(), np.int64)}


def slow(requests: list[Request]) -> list[dict[str, np.ndarray]]:
    time.sleep(float(requests[0].parameters.get("seconds", 3600)))
    return [{"y": request["x"]} for request in requests]


def vector(name: str) -> Tensor:
    return Tensor((-1,), np.float32, name)


def tell(remote: RemoteServer) -> None:
    """Print that it is bound, when it serves: a signal before that ends it at once."""
    while not remote.is_running:
        time.sleep(0.005)
    print("bound", flush=True)


def main() -> None:
    tls = ssl.create_default_context(cafile=CA[0]) if CA else None
    remote = RemoteServer(ADDRESS, token=Path(TOKEN).read_text(), tls=tls, most_retry_s=0.5)
    pid = Tensor((1,), np.int64, "pid")
    remote.bind(NAME, double, [vector("x")], [vector("y"), pid], config=CONFIG)
    remote.bind(f"{NAME}_slow", slow, [vector("x")], [vector("y")], config=CONFIG)
    threading.Thread(target=tell, args=(remote,), daemon=True).start()
    remote.serve()
    print("over", flush=True)


if __name__ == "__main__":
    main()
