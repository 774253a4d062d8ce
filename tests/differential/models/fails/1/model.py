import triton_python_backend_utils as pb_utils

CODES = ["UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS"]
CODES.append("CANCELLED")


class TritonPythonModel:
    """Fails in the way that its input asks for: below 100 an error of that code, above it something worse."""

    def execute(self, requests):
        kind = int(requests[0].inputs()[0].as_numpy()[0])
        if kind < len(CODES):
            error = pb_utils.TritonError(f"this is {CODES[kind]}", getattr(pb_utils.TritonError, CODES[kind]))
            return [pb_utils.InferenceResponse(error=error) for _ in requests]
        if kind == 100:
            raise ValueError("boom")
        if kind == 101:
            return []
        if kind == 102:
            return ["nonsense"]
        if kind == 103:
            return [pb_utils.InferenceResponse(error=pb_utils.TritonError("no code")) for _ in requests]
        if kind == 104:
            error = pb_utils.TritonError('with "quotes", a \n line and \u00fc')
            return [pb_utils.InferenceResponse(error=error) for _ in requests]
        if kind == 105:
            error = pb_utils.TritonError("")
            return [pb_utils.InferenceResponse(error=error) for _ in requests]
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", request.inputs()[0].as_numpy())])
            for request in requests
        ]
