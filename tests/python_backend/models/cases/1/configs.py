"""Completing configurations: what each helper refuses."""

import json

import triton_python_backend_utils as pb_utils

NAMED = {"name": "net", "max_batch_size": 0, "input": [], "output": []}


def completed(request, config, *steps):
    """Calls the helpers, `[name, argument…]` each; returns the dict, or type and text of what is raised."""
    model_config = pb_utils.ModelConfig(json.dumps({**NAMED, **config}))
    try:
        for step, *args in steps:
            getattr(model_config, step)(*args)
    except Exception as exc:
        return [type(exc).__name__, str(exc)]
    return model_config.as_dict()


def lookups(request):
    config = {
        "input": [{"name": "A", "dims": [1]}],
        "output": [{"name": "B", "dims": [2]}],
        "model_transaction_policy": {"decoupled": True},
    }
    return [
        pb_utils.get_input_config_by_name(config, "A"),
        pb_utils.get_input_config_by_name(config, "B"),
        pb_utils.get_output_config_by_name(config, "B"),
        pb_utils.get_output_config_by_name(config, "A"),
        pb_utils.using_decoupled_model_transaction_policy(config),
        pb_utils.using_decoupled_model_transaction_policy({}),
        pb_utils.get_input_config_by_name({}, "A"),
    ]
