"""The models `identity_py` and `identity_py_batched` as functions, bound by PyTriton's interface.

`bench.py` compares PyTriton itself with what runs its programs here, when it is given commands that run this
program (`first_answer.py` says how its environment is made):

    python benchmarks/bench.py --parts cases --model identity_py_batched --name functions --sizes 64 \
        --window-ms 300 \
        --ours-command 'python -m tritonpy_sdk.pytriton benchmarks/bound_functions.py {http} {grpc}' \
        --triton-command 'env LD_LIBRARY_PATH=/path/to/lib /path/to/venv/bin/python
            benchmarks/bound_functions.py {http} {grpc}'
"""

import sys

import numpy as np
from pytriton.decorators import batch, sample
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig, TritonSecurityConfig


@sample
def identity(INPUT0):
    return {"OUTPUT0": INPUT0}


@batch
def identity_of_batches(INPUT0):
    return {"OUTPUT0": INPUT0}


def main():
    """Serve until SIGTERM."""
    http, grpc = (int(port) for port in sys.argv[1:3])
    config = TritonConfig(
        http_address="127.0.0.1",
        http_port=http,
        grpc_address="127.0.0.1",
        grpc_port=grpc,
        allow_metrics=False,
    )
    tensors = ([Tensor((-1,), np.float32, "INPUT0")], [Tensor((-1,), np.float32, "OUTPUT0")])
    with Triton(config=config, security_config=TritonSecurityConfig(restricted_endpoints=[])) as triton:
        triton.bind("identity_py", identity, *tensors, config=ModelConfig(batching=False))
        triton.bind(
            "identity_py_batched", identity_of_batches, *tensors, config=ModelConfig(max_batch_size=64)
        )
        triton.serve()


if __name__ == "__main__":
    main()
