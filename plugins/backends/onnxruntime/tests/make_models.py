"""The source of the models in `tests/models`; `python make_models.py` writes them anew."""

from __future__ import annotations

from pathlib import Path

from onnx import ModelProto, parser
from tritonpy_sdk import ModelRepository

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'

MODELS = {
    # A batch dimension, one of any size, two outputs, no configuration.
    "affine": "net (float[N,K] X) => (float[N,K] DOUBLED, float[N,1] SUM) "
    "{ DOUBLED = Add(X, X) axes = Constant<value = int64[1] {1}>() SUM = ReduceSum(X, axes) }",
    # No batch dimension, a scalar output.
    "fixed": "net (float[2,3] X, int32[2,3] Y) => (float Z) "
    "{ F = Cast<to = 1>(Y) P = Mul(X, F) Z = ReduceSum<keepdims = 0>(P) }",
    "strings": "net (string[N,2] TEXT, int64[N] I) => (string[N,2] SAME, int64[N] J) "
    "{ SAME = Identity(TEXT) J = Add(I, I) }",
    "bfloat16": "net (bfloat16[N,3] X, bool[N,2] B) => (bfloat16[N,3] Y, bool[N,2] NOT_B) "
    "{ Y = Identity(X) NOT_B = Not(B) }",
    "half": "net (float16[N,3] X, uint8[N,3] U) => (float16[N,3] Y, uint8[N,3] V) "
    "{ Y = Neg(X) V = Identity(U) }",
    # Dims that differ from the model's, and a batch limit of its own.
    "reshaped": "net (double[N,2,2] X) => (double[N,4] Y) { S = Constant<value = int64[2] {-1, 4}>() "
    "Y = Reshape(X, S) }",
}

CONFIGS: dict[str, dict[str, object]] = {
    "reshaped": {
        "max_batch_size": 8,
        "input": [{"name": "X", "data_type": "TYPE_FP64", "dims": [4], "reshape": {"shape": [2, 2]}}],
        "output": [{"name": "Y", "data_type": "TYPE_FP64", "dims": [2, 2], "reshape": {"shape": [4]}}],
        "instance_group": [{"kind": "KIND_CPU", "count": 1}],
    }
}


def parse(text: str) -> ModelProto:
    return parser.parse_model(HEADER + text)


def main() -> None:
    repository = ModelRepository(Path(__file__).parent / "models")
    for name, text in MODELS.items():
        repository.onnx(name, parse(text).SerializeToString(), CONFIGS.get(name))


if __name__ == "__main__":
    main()
