import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        raise pb_utils.TritonModelException("cannot complete")

    def execute(self, requests):
        return None
