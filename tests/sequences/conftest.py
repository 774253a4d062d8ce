"""The same models on our server and on a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from tritonpy_sdk.repository import ModelRepository

from ..servers import OURS_AND_REAL, serving
from .stage import CONTROLS, ITERATIVE, Model, add, control

Stage = Callable[[str], Model]

SHORT_DELAY = {"max_queue_delay_microseconds": 500_000}
LONG_DELAY = {"max_queue_delay_microseconds": 60_000_000}  # longer than anybody waits
MODELS: dict[str, dict[str, Any]] = {
    "places": {"direct": {}},
    "two": {"direct": {}, "instances": 2},
    "again": {"direct": {}},
    "refusals": {"direct": {}},
    "idle": {"direct": {}, "max_sequence_idle_microseconds": 5_000_000},
    "backlog": {"direct": {}, "max_batch_size": 1},
    "expiring": {"direct": {}, "max_batch_size": 1},
    "utilized": {"direct": {"minimum_slot_utilization": 0.5, **SHORT_DELAY}},
    "utilized_together": {"direct": {"minimum_slot_utilization": 0.5, **LONG_DELAY}},
    "shapes": {"direct": {}},
    "unbatched": {"direct": {}, "max_batch_size": 0},
    "oldest": {"oldest": {"max_candidate_sequences": 3}},
    "preferred": {"oldest": {"preferred_batch_size": [2], **SHORT_DELAY}},
    "preferred_together": {"oldest": {"preferred_batch_size": [2], **LONG_DELAY}},
    "uncontrolled": {"direct": {}, "control_input": []},
    **{
        f"type_{datatype.lower()}": {
            "direct": {},
            "control_input": [*CONTROLS[:3], control("CORRID", "CORRID", data_type=f"TYPE_{datatype}")],
        }
        for datatype in ("INT64", "UINT32", "INT32")
    },
    "steps": {"source": ITERATIVE, "iterative_sequence": True, "direct": {}},
    "steps_oldest": {"source": ITERATIVE, "iterative_sequence": True, "oldest": {}},
    "steps_unbatched": {"source": ITERATIVE, "iterative_sequence": True, "max_batch_size": 0},
    "text": {"oldest": {}, "control_input": [control("CORRID", "CORRID", data_type="TYPE_STRING")]},
    "pairs": {
        "direct": {},
        "control_input": [
            control("START", "START", fp32_false_true=[-1.5, 2.5]),
            control("END", "END", bool_false_true=[True, False]),
            control("READY", "READY", int32_false_true=[0, 9]),
        ],
    },
}


@pytest.fixture(scope="session", params=OURS_AND_REAL)
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A model by its name, on our server or on a real one."""
    root = tmp_path_factory.mktemp(request.param)
    models = ModelRepository(root / "models")
    for name, settings in MODELS.items():
        add(models, root, name, **settings)
    with ExitStack() as stack:
        # Sequences that a test leaves open would be waited for.
        options = {"exit_timeout_s": 0.1, "allow_grpc": False}
        served = stack.enter_context(serving(request.param, request, models.path, **options))
        ports = (served["http"], served["metrics"])
        pool = stack.enter_context(ThreadPoolExecutor(32))
        try:
            yield lambda name: Model(name, ports, root / name, pool)
        finally:
            for name in MODELS:  # whoever still waits is answered
                (root / name / "gate").touch()


@pytest.fixture
def is_real(request: pytest.FixtureRequest) -> bool:
    """Whether the test runs on the real server."""
    parameters: dict[str, str] = request.node.callspec.params
    return parameters["stage"] == "real"
