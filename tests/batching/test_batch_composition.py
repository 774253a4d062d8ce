"""Which requests go together, on our server and on a real one: same batches, same order, same counts.

Every model is held until a number of requests wait (`TRITONSERVER_DELAY_SCHEDULER`), so what is decided
depends on the queue alone and on no clock; where there is a delay, it is longer than they take to come.
"""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, until

from ..counting import comes_to
from ..servers import OURS_AND_REAL, serving

COUNT = 8

# Writes down the numbers of each batch, in their order, and answers with them.
MODEL = """
import json
import os
import threading
import triton_python_backend_utils as pb_utils

lock = threading.Lock()

class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.journal = config["parameters"]["journal"]["string_value"]
        self.is_decoupled = config.get("model_transaction_policy", {}).get("decoupled", False)

    def execute(self, requests):
        responses, numbers = [], []
        for request in requests:
            number = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            numbers.append(int(number.reshape(-1)[0]))
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", number)]))
        with open(self.journal, "a") as journal:
            journal.write(json.dumps(numbers) + "\\n")
        if not self.is_decoupled:
            return responses
        for request, response in zip(requests, responses):
            request.get_response_sender().send(response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


@dataclass(frozen=True)
class Case:
    """A model, what it is asked, and how that is executed.

    Attributes:
        batching: its `dynamic_batching`; None for none.
        batches: the numbers of the requests, by execution.
        rows: of each request.
        widths: the second dimension of each.
        has_other: which requests carry the optional input.
        parameters: of each request.
        config: what else is in the configuration.
        merges: a real server may put prepared batches together while they wait for their turn, so how large
            its batches are is chance; their order is not.
    """

    batching: dict[str, Any] | None
    batches: list[list[int]]
    rows: list[int] = field(default_factory=lambda: [1] * COUNT)
    widths: list[int] = field(default_factory=lambda: [1] * COUNT)
    has_other: list[bool] = field(default_factory=lambda: [False] * COUNT)
    parameters: list[dict[str, Any]] = field(default_factory=lambda: [{}] * COUNT)
    config: dict[str, Any] = field(default_factory=dict)
    merges: bool = False

    @property
    def sizes(self) -> dict[int, int]:
        """Executions by their rows."""
        counts: dict[int, int] = {}
        for batch in self.batches:
            size = sum(self.rows[number] for number in batch)
            counts[size] = counts.get(size, 0) + 1
        return counts


VARIABLE = {"input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [-1]}]}
OPTIONAL = {
    "input": [
        {"name": "X", "data_type": "TYPE_INT32", "dims": [1]},
        {"name": "OTHER", "data_type": "TYPE_INT32", "dims": [1], "optional": True},
    ]
}
LEVELS = {"priority_levels": 3, "default_priority_level": 2}
DELAY = {"max_queue_delay_microseconds": 200_000}
# Where it matters that the delay is not over when the last of the requests comes.
LONG_DELAY = {"max_queue_delay_microseconds": 4_000_000}

CASES = {
    "all_that_waits": Case({}, [[0, 1, 2, 3, 4, 5, 6, 7]]),
    "at_most_the_batch_size": Case({}, [[0, 1, 2, 3, 4], [5, 6, 7]], config={"max_batch_size": 5}),
    "one_preferred_size": Case({"preferred_batch_size": [3]}, [[0, 1, 2], [3, 4, 5], [6, 7]]),
    "preferred_size_before_the_delay": Case(
        {"preferred_batch_size": [3], **LONG_DELAY}, [[0, 1, 2], [3, 4, 5], [6, 7]], merges=True
    ),
    "the_largest_preferred_size": Case({"preferred_batch_size": [2, 4]}, [[0, 1, 2, 3], [4, 5, 6, 7]]),
    "the_largest_that_can_be_had": Case({"preferred_batch_size": [3, 6]}, [[0, 1, 2, 3, 4, 5], [6, 7]]),
    "the_best_preferred_size_below": Case(
        {"preferred_batch_size": [2, 4], **LONG_DELAY},
        [[0, 1, 2, 3], [4, 5], [6, 7]],
        rows=[1, 1, 1, 1, 1, 1, 3, 1],
        merges=True,
    ),
    "beyond_the_preferred_size": Case(
        {"preferred_batch_size": [4]}, [[0], [1, 2], [3], [4], [5, 6], [7]], rows=[3, 3, 1, 3, 3, 3, 1, 3]
    ),
    "rows_not_requests": Case({}, [[0, 1], [2, 3], [4, 5], [6, 7]], rows=[3] * COUNT),
    "a_full_batch_of_one": Case({}, [[0], [1], [2, 3, 4, 5, 6, 7]], rows=[8, 8, 1, 1, 1, 1, 1, 1]),
    "no_skipping": Case({}, [[0], [1], [2], [3], [4], [5], [6], [7]], rows=[5, 4] * 4),
    "equal_shapes": Case(
        {}, [[0, 1], [2], [3], [4, 5, 6], [7]], widths=[1, 1, 2, 1, 2, 2, 2, 1], config=VARIABLE
    ),
    "equal_shapes_with_a_delay": Case(
        DELAY, [[0, 1], [2], [3], [4, 5, 6], [7]], widths=[1, 1, 2, 1, 2, 2, 2, 1], config=VARIABLE
    ),
    "ragged": Case(
        {},
        [[0, 1, 2, 3, 4, 5, 6, 7]],
        widths=[1, 1, 2, 1, 2, 2, 2, 1],
        config={"input": [{**VARIABLE["input"][0], "allow_ragged_batch": True}]},
    ),
    "equal_sets_of_inputs": Case(
        {},
        [[0], [1, 2], [3, 4], [5], [6, 7]],
        has_other=[False, True, True, False, False, True, False, False],
        config=OPTIONAL,
    ),
    "without_a_batch_dimension": Case(
        {}, [[number] for number in range(COUNT)], config={"max_batch_size": 0}
    ),
    "without_a_batcher": Case(None, [[number] for number in range(COUNT)]),
    "levels_in_one_batch": Case(
        LEVELS,
        [[2, 5, 1, 3], [7, 0, 4, 6]],
        parameters=[{"priority": level} for level in (3, 2, 1, 0, 3, 1, 3, 99)],
        config={"max_batch_size": 4},
    ),
    "levels_and_preferred_sizes": Case(
        {**LEVELS, "preferred_batch_size": [3], **LONG_DELAY},
        [[2, 5, 1], [3, 7, 0], [4, 6]],
        parameters=[{"priority": level} for level in (3, 2, 1, 0, 3, 1, 3, 99)],
        merges=True,
    ),
    "levels_and_shapes": Case(
        LEVELS,
        [[2, 5], [1, 3, 7, 0], [4], [6]],
        widths=[1, 1, 2, 1, 2, 2, 1, 1],
        parameters=[{"priority": level} for level in (3, 2, 1, 0, 3, 1, 3, 99)],
        config=VARIABLE,
    ),
    "kept_in_order": Case(
        {"preserve_ordering": True}, [[0, 1, 2, 3], [4, 5, 6, 7]], config={"max_batch_size": 4}
    ),
    "decoupled": Case(
        {},
        [[0, 1, 2, 3], [4, 5, 6, 7]],
        config={"max_batch_size": 4, "model_transaction_policy": {"decoupled": True}},
    ),
}


class Servers:
    """One server and what its models have noted."""

    def __init__(self, ports: Mapping[str, int], folder: Path, *, is_real: bool) -> None:
        self.is_real = is_real
        self._http, self._metrics = ports["http"], ports["metrics"]
        self._folder = folder

    def begin(self, pool: ThreadPoolExecutor) -> None:
        """Ask what takes as long as a delay, all at once and beside the tests."""
        self._begun = {
            name: pool.submit(self._ask, name, case)
            for name, case in CASES.items()
            if case.batching and LONG_DELAY.items() <= case.batching.items()
        }

    def ask(self, name: str) -> list[int]:
        """Send the requests of a case, unless that has begun; the statuses of the answers."""
        return self._begun[name].result() if name in self._begun else self._ask(name, CASES[name])

    def _ask(self, name: str, case: Case) -> list[int]:
        """Send the requests so that they wait in the order of their numbers; the statuses of the answers."""
        with ThreadPoolExecutor(COUNT) as pool:
            answers = []
            for number in range(COUNT):
                answers.append(pool.submit(self._infer, name, case, number))
                if case.batching is None:
                    answers[-1].result(DEADLINE_S)
                elif number < COUNT - 1:
                    self._until(lambda number=number: self._pending(name) == number + 1)
            return [answer.result(DEADLINE_S) for answer in answers]

    def batches(self, name: str) -> list[list[int]]:
        return [json.loads(line) for line in (self._folder / name).read_text().splitlines()]

    def statistics(self, name: str) -> tuple[int, int, int, int, dict[int, int]]:
        """Requests that succeeded and failed, inferences, executions, and executions by their rows."""
        url = f"http://127.0.0.1:{self._http}/v2/models/{name}/stats"
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            stats = json.load(answer)["model_stats"][0]
        counted = stats["inference_stats"]
        sizes = {row["batch_size"]: row["compute_infer"]["count"] for row in stats.get("batch_stats", ())}
        return (
            counted["success"]["count"],
            counted["fail"]["count"],
            stats["inference_count"],
            stats["execution_count"],
            sizes,
        )

    def _infer(self, name: str, case: Case, number: int) -> int:
        lead = [] if case.config.get("max_batch_size") == 0 else [case.rows[number]]
        shape = [*lead, case.widths[number]]
        count = case.rows[number] * case.widths[number]
        inputs = [{"name": "X", "datatype": "INT32", "shape": shape, "data": [number] * count}]
        if case.has_other[number]:
            inputs.append({"name": "OTHER", "datatype": "INT32", "shape": shape, "data": [number] * count})
        body: dict[str, Any] = {"inputs": inputs, "parameters": case.parameters[number]}
        path = "infer"
        if "model_transaction_policy" in case.config:
            path, body = "generate", {"X": [number], **case.parameters[number]}
        connection = http.client.HTTPConnection("127.0.0.1", self._http, timeout=DEADLINE_S)
        try:
            connection.request("POST", f"/v2/models/{name}/{path}", json.dumps(body))
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()

    def _pending(self, name: str) -> int:
        try:
            url = f"http://127.0.0.1:{self._metrics}/metrics"
            with urllib.request.urlopen(url, timeout=DEADLINE_S) as page:
                text = page.read().decode()
        except (ConnectionError, urllib.error.URLError):  # a real server may not take a connection just then
            return -1
        found = re.search(rf'nv_inference_pending_request_count{{model="{name}",.*}} (\d+)', text)
        return int(found[1]) if found else 0

    def _until(self, condition: Callable[[], bool]) -> None:
        until(condition)


@pytest.fixture(scope="module", params=OURS_AND_REAL)
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp(request.param)
    models = ModelRepository(folder / "models")
    for name, case in CASES.items():
        config: dict[str, Any] = {
            "backend": "python",
            "max_batch_size": 8,
            "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [1]}],
            "output": [{"name": "Y", "data_type": "TYPE_INT32", "dims": [-1]}],
            "instance_group": [{"kind": "KIND_CPU", "count": 1}],
            "parameters": {"journal": {"string_value": str(folder / name)}},
            **case.config,
        }
        if case.batching is not None:
            config["dynamic_batching"] = case.batching
        models.python(name, MODEL, config)
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("TRITONSERVER_DELAY_SCHEDULER", str(COUNT))
        ports = stack.enter_context(serving(request.param, request, models.path, allow_grpc=False))
        servers = Servers(ports, folder, is_real=request.param == "real")
        servers.begin(stack.enter_context(ThreadPoolExecutor()))
        yield servers


@pytest.mark.parametrize("name", CASES)
def test_batches_are_those_of_triton(servers: Servers, name: str) -> None:
    case = CASES[name]

    statuses = servers.ask(name)

    assert statuses == [200] * COUNT
    if case.merges and servers.is_real:
        assert list(chain(*servers.batches(name))) == list(chain(*case.batches))
        return
    assert servers.batches(name) == case.batches
    counts = (COUNT, 0, sum(case.rows), len(case.batches), case.sizes)
    assert comes_to(lambda: servers.statistics(name), counts) == counts
