"""What older Tritons served and nothing serves any more, with what to do about such a model."""

from __future__ import annotations

_CAFFE2 = (
    "Caffe2 models are served neither here nor by current versions of Triton; convert the model to ONNX and "
    "serve it with backend 'onnxruntime'"
)
_CUSTOM = (
    "custom backends of TensorRT Inference Server (libcustom.so) are loaded neither here nor by Triton 2; "
    "make a backend of it: docs/how-to/write-a-backend.md, or a Python model"
)
_ADVICE = {"caffe2_netdef": _CAFFE2, "caffe2": _CAFFE2, "custom": _CUSTOM}
_FILES = {"model.netdef": _CAFFE2, "init_model.netdef": _CAFFE2, "libcustom.so": _CUSTOM}


def advice_on(name: str) -> str:
    """What to do about a model of this platform or backend; "" for all but those that are retired."""
    return _ADVICE.get(name, "")


def advice_on_file(filename: str) -> str:
    """What to do about a model whose file is called so; "" for all but those that are retired."""
    return _FILES.get(filename, "")
