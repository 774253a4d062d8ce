"""Answers with what it has seen before its first request; calls another model when it must not."""

import json
import os
import sys

import numpy as np
import triton_python_backend_utils as pb_utils


def call():
    """What comes of calling another model."""
    try:
        request = pb_utils.InferenceRequest(
            model_name="add",
            requested_output_names=["SUM"],
            inputs=[pb_utils.Tensor(name, np.zeros((1, 2), np.float32)) for name in "AB"],
        )
        response = request.exec()
    except Exception as exc:
        return [type(exc).__name__, str(exc)]
    error = response.error()
    return "answered" if error is None else error.message()


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        pb_utils.Logger.log_info(f"called in auto_complete_config: {json.dumps(call())}")
        return config

    def initialize(self, args):
        self._args = args
        self._called = call()
        self._family = pb_utils.MetricFamily(
            name="early_requests", description="Requests seen.", kind=pb_utils.MetricFamily.COUNTER
        )
        self._count = self._family.Metric(labels={"model": args["model_name"]})
        pb_utils.Logger.log_info("early is initialized")

    def execute(self, requests):
        self._count.increment(len(requests))
        seen = {
            "count": self._count.value(),
            "args": self._args,
            "called": self._called,
            "module": __name__,
            "file": __file__,
            "directory": pb_utils.get_model_dir(),
            "path": sys.path,
            "working_directory": os.getcwd(),
        }
        output = pb_utils.Tensor("SEEN", np.array([json.dumps(seen)], object))
        return [pb_utils.InferenceResponse([output]) for _ in requests]

    def finalize(self):
        pb_utils.Logger.log_info(f"called in finalize: {json.dumps(call())}")
        if "fail_at_end" in json.loads(self._args["model_config"])["parameters"]:
            raise pb_utils.TritonModelException("cannot end")
