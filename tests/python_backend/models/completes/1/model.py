"""Has no config.pbtxt: all it needs is said here."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        pb_utils.Logger.log_info(f"to be completed: {json.dumps(config.as_dict())}")
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [2]})
        config.add_input({"name": "Y", "data_type": "TYPE_FP32", "dims": [-1], "optional": True})
        config.add_output({"name": "OUT", "data_type": "TYPE_STRING", "dims": [1]})
        config.set_max_batch_size(8)
        config.set_dynamic_batching()
        return config

    def initialize(self, args):
        self._config = args["model_config"]

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[self._config]], object))])
            for _ in requests
        ]
