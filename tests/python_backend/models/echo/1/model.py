"""Answers each input under the matching output name; or makes the output that MAKE names, of any array."""

import numpy as np
import triton_python_backend_utils as pb_utils

SQUARE = np.arange(6, dtype=np.float32).reshape(2, 3)
MAKERS = {
    "bytes objects": lambda: ("BYTES_OUT", np.array([b"a", b"bc"], object)),
    "str objects": lambda: ("BYTES_OUT", np.array(["a", "\u00e9"], object)),
    "number objects": lambda: ("BYTES_OUT", np.array([1, 2.5, None], object)),
    "mixed objects": lambda: ("BYTES_OUT", np.array([b"a", "b", 3], object)),
    "byte strings": lambda: ("BYTES_OUT", np.array([b"a", b"bc"])),
    "byte strings with a final zero": lambda: ("BYTES_OUT", np.array([b"a\0", b"\0b"])),
    "str array": lambda: ("BYTES_OUT", np.array(["a", "bc"])),
    "empty strings": lambda: ("BYTES_OUT", np.array([b"", b""], object)),
    "no strings": lambda: ("BYTES_OUT", np.array([], object)),
    "strings in two dimensions": lambda: ("BYTES_OUT", np.array([[b"a"], [b"b"]], object)),
    "strings in Fortran order": lambda: (
        "BYTES_OUT",
        np.array([[b"a", b"b"], [b"c", b"d"]], object, order="F"),
    ),
    "every second string": lambda: ("BYTES_OUT", np.array([b"a", b"b", b"c"], object)[::2]),
    "not UTF-8": lambda: ("BYTES_OUT", np.array([b"\xff\xfe"], object)),
    "a long string": lambda: ("BYTES_OUT", np.array([b"x" * 100_000], object)),
    "floats": lambda: ("FP32_OUT", SQUARE),
    "no floats": lambda: ("FP32_OUT", np.zeros(0, np.float32)),
    "no rows": lambda: ("FP32_OUT", np.zeros((0, 3), np.float32)),
    "a scalar": lambda: ("FP32_OUT", np.array(3, np.float32)),
    "transposed": lambda: ("FP32_OUT", SQUARE.T),
    "Fortran order": lambda: ("FP32_OUT", np.asfortranarray(SQUARE)),
    "every second column": lambda: ("FP32_OUT", SQUARE[:, ::2]),
    "reversed": lambda: ("FP32_OUT", SQUARE[::-1]),
    "broadcast": lambda: ("FP32_OUT", np.broadcast_to(np.float32(2), (2, 2))),
    "read-only": lambda: ("FP32_OUT", np.frombuffer(np.float32([1, 2]).tobytes(), np.float32)),
    "infinite": lambda: ("FP32_OUT", np.array([np.inf, -np.inf, np.nan], np.float32)),
    "doubles": lambda: ("FP32_OUT", np.zeros(2)),
    "big-endian": lambda: ("FP32_OUT", np.array([1, 2], ">f4")),
    "matrix": lambda: ("FP32_OUT", np.matrix([[1, 2]], dtype=np.float32)),
    "flags": lambda: ("BOOL_OUT", np.array([True, False])),
    "integers for BF16": lambda: ("BF16_OUT", np.array([0x3F80], np.uint16)),
    "complex": lambda: ("FP32_OUT", np.zeros(2, np.complex64)),
    "times": lambda: ("FP32_OUT", np.zeros(2, "datetime64[s]")),
    "records": lambda: ("FP32_OUT", np.zeros(2, [("a", "f4")])),
    "a list": lambda: ("FP32_OUT", [1.0, 2.0]),
    "None": lambda: ("FP32_OUT", None),
    "no name": lambda: ("", SQUARE),
    "a number for a name": lambda: (3, SQUARE),
}


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        make = pb_utils.get_input_tensor_by_name(request, "MAKE")
        if make is None:
            return pb_utils.InferenceResponse([self._echo(tensor) for tensor in request.inputs()])
        try:
            name, array = MAKERS[make.as_numpy()[0].decode()]()
            return pb_utils.InferenceResponse([pb_utils.Tensor(name, array)])
        except Exception as exc:
            error = pb_utils.TritonError(f"{type(exc).__name__}: {exc}")
            return pb_utils.InferenceResponse(error=error)

    def _echo(self, tensor):
        name = tensor.name().replace("_IN", "_OUT")
        if tensor.name() == "BF16_IN":  # numpy has no type for it
            return pb_utils.Tensor.from_dlpack(name, tensor)
        return pb_utils.Tensor(name, tensor.as_numpy())
