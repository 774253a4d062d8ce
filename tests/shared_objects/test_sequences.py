"""Sequences in a backend in C: their controls, and states that it gives back; on ours and a real one."""

from __future__ import annotations

import itertools
import queue
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S

from ..servers import OURS_AND_REAL, serving
from .conftest import Compiled

INT32 = {"data_type": "TYPE_INT32"}
CONTROLS = [
    *(
        {"name": kind, "control": [{"kind": f"CONTROL_SEQUENCE_{kind}", "int32_false_true": [0, 1]}]}
        for kind in ("START", "READY", "END")
    ),
    {"name": "CORRID", "control": [{"kind": "CONTROL_SEQUENCE_CORRID", "data_type": "TYPE_UINT64"}]},
]
TENSORS = {
    "backend": "remembering",
    "max_batch_size": 4,
    "input": [{"name": "INPUT0", **INT32, "dims": [1]}],
    "output": [{"name": "OUTPUT0", **INT32, "dims": [-1]}],
}
INITIAL = {"name": "ten", **INT32, "dims": [1], "data_file": "ten"}
DIRECT = {"direct": {}}
OLDEST = {"oldest": {"max_candidate_sequences": 4}}
numbers = itertools.count(1000)


def adding(strategy: dict[str, Any], *, dims: int = 1, **state: Any) -> dict[str, Any]:
    """A model that adds up, beginning with 10."""
    state |= {
        "input_name": "SUM_IN",
        "output_name": "SUM_OUT",
        **INT32,
        "dims": [dims],
        "initial_state": [INITIAL],
    }
    return {**TENSORS, "sequence_batching": {**strategy, "control_input": CONTROLS, "state": [state]}}


def stepping(policy: dict[str, bool]) -> dict[str, Any]:
    """A model that has its requests executed again, and counts in a state how often."""
    return adding({"iterative_sequence": True}) | {"model_transaction_policy": policy}


MODELS: dict[str, dict[str, Any]] = {
    "direct": adding(DIRECT),
    "oldest": adding(OLDEST),
    "unbatched": adding(DIRECT) | {"max_batch_size": 0},
    "same": adding(DIRECT, use_same_buffer_for_input_output=True),
    "grows": adding(OLDEST, dims=-1),
    "stateless": {**TENSORS, "sequence_batching": {**DIRECT, "control_input": CONTROLS}},
    "plain": TENSORS,
    "steps": stepping({"decoupled": True}),
    "steps_once": stepping({"decoupled": False}),
}


@pytest.fixture(scope="module", params=OURS_AND_REAL)
def server(
    request: pytest.FixtureRequest, compiled: Compiled, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, dict[str, int]]]:
    root = tmp_path_factory.mktemp(request.param)
    (root / "backends/remembering").mkdir(parents=True)
    library = compiled("backends/remembering.c")
    shutil.copy(library, root / "backends/remembering/libtriton_remembering.so")
    models = ModelRepository(root / "models")
    here = {"TRITONPY_ISOLATION": {"string_value": "thread"}}
    for name, config in MODELS.items():
        for place, parameters in (("", {}), ("_here", here)):
            models.model(name + place, {**config, "parameters": parameters})
            states = models.path / (name + place) / "initial_state"
            states.mkdir()
            (states / "ten").write_bytes((10).to_bytes(4, "little"))
    backends = str(root / "backends")
    with serving(
        request.param, request, models.path, f"--backend-directory={backends}", backend_directory=backends
    ) as ports:
        yield request.param, ports


@pytest.fixture
def client(server: tuple[str, dict[str, int]]) -> Iterator[grpcclient.InferenceServerClient]:
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server[1]['grpc']}") as made:
        yield made


@pytest.fixture(params=["", "_here"], ids=["worker", "thread"])
def where(request: pytest.FixtureRequest) -> str:
    """What the name of a model ends with that runs there; on the real one both are the same."""
    place: str = request.param
    return place


class Sequence:
    """Requests of one sequence; each gives what the backend answers."""

    def __init__(self, client: grpcclient.InferenceServerClient, model: str) -> None:
        self.id = next(numbers)
        self._client = client
        self._model = model
        self._is_begun = False

    def ask(self, number: int, do: str = "", *, end: bool = False) -> grpcclient.InferResult:
        shape = [1] if self._model.startswith("unbatched") else [1, 1]
        given = grpcclient.InferInput("INPUT0", shape, "INT32")
        given.set_data_from_numpy(np.full(shape, number, np.int32))
        start, self._is_begun = not self._is_begun, True
        return self._client.infer(
            self._model,
            [given],
            sequence_id=self.id,
            sequence_start=start,
            sequence_end=end,
            parameters={"do": do} if do else None,
        )

    def sums(self, number: int, do: str = "", *, end: bool = False) -> list[int]:
        sums: list[int] = self.ask(number, do, end=end).as_numpy("OUTPUT0").reshape(-1).tolist()
        return sums

    def refusal(self, do: str) -> str:
        with pytest.raises(InferenceServerException) as refused:
            self.ask(100, do)
        return f"{refused.value.status()} {refused.value.message()}"


def parameter(result: grpcclient.InferResult, name: str) -> Any:
    value = result.get_response().parameters[name]
    return getattr(value, value.WhichOneof("parameter_choice"))


@pytest.mark.parametrize("model", ["direct", "oldest", "unbatched", "same", "grows"])
def test_a_sequence_remembers_what_the_backend_gave_it(
    client: grpcclient.InferenceServerClient, where: str, model: str
) -> None:
    sequence = Sequence(client, model + where)

    assert [sequence.sums(1), sequence.sums(2), sequence.sums(3, end=True)] == [[11], [13], [16]]


@pytest.mark.parametrize("model", ["direct", "oldest"])
def test_sequences_side_by_side_do_not_see_each_other(
    client: grpcclient.InferenceServerClient, where: str, model: str
) -> None:
    def run(number: int) -> list[list[int]]:
        sequence = Sequence(client, model + where)
        return [sequence.sums(number), *(sequence.sums(number) for _ in range(3)), sequence.sums(0, end=True)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(run, range(1, 9)))

    assert found == [[[10 + number * times] for times in (1, 2, 3, 4, 4)] for number in range(1, 9)]


def test_controls_are_inputs_of_the_requests(client: grpcclient.InferenceServerClient, where: str) -> None:
    sequence = Sequence(client, f"direct{where}")

    found = [parameter(sequence.ask(1, end=end), "controls") for end in (False, False, True)]

    said = f"CORRID={sequence.id} END=%d READY=1 START=%d flags=%d id={sequence.id}"
    assert found == [said % (0, 1, 1), said % (0, 0, 0), said % (1, 0, 2)]


@pytest.mark.parametrize(
    ("do", "sums"),
    [
        ("no update", [10, 11]),
        ("twice", [12, 13]),
        ("elsewhere", [12, 13]),
        ("late", [12, 13]),
    ],
)
def test_a_state_counts_when_it_is_updated(
    client: grpcclient.InferenceServerClient, where: str, do: str, sums: list[int]
) -> None:
    sequence = Sequence(client, f"direct{where}")

    assert sequence.sums(0) == [10]
    assert sequence.sums(2, do) == [12]
    assert [*sequence.sums(0), *sequence.sums(1, end=True)] == sums


def test_a_state_of_any_size_may_grow(client: grpcclient.InferenceServerClient, where: str) -> None:
    sequence = Sequence(client, f"grows{where}")

    assert [sequence.sums(1), sequence.sums(2, "grow"), sequence.sums(3, "grow", end=True)] == [
        [11],
        [13, 2],
        [16, 5, 3],
    ]


def test_the_buffer_of_a_state_begins_with_what_was_remembered_where_the_configuration_says_so(
    client: grpcclient.InferenceServerClient, where: str
) -> None:
    sequence = Sequence(client, f"same{where}")

    assert [sequence.sums(1), sequence.sums(5, "untouched"), sequence.sums(1, end=True)] == [[11], [16], [12]]


@pytest.mark.parametrize(
    ("model", "do", "refusal"),
    [
        ("direct", "wrong name", "state 'TOTAL' is not a valid state name."),
        (
            "plain",
            "stateless",
            "unable to add state 'SUM_OUT'. State configuration is missing for model '{name}'.",
        ),
        (
            "stateless",
            "stateless",
            "unable to add state 'SUM_OUT'. State configuration is missing for model '{name}'.",
        ),
    ],
)
def test_a_state_that_is_not_there_is_refused(
    client: grpcclient.InferenceServerClient, where: str, model: str, do: str, refusal: str
) -> None:
    name = model + where

    expected = "StatusCode.INVALID_ARGUMENT " + refusal.format(name=name)
    assert Sequence(client, name).refusal(do) == expected


def steps(
    client: grpcclient.InferenceServerClient, model: str, number: int
) -> list[tuple[list[int], str, bool]]:
    """Numbers, controls and the final flag of all responses to a request that is executed until `number`."""
    answers: queue.Queue[Any] = queue.Queue()
    given = grpcclient.InferInput("INPUT0", [1, 1], "INT32")
    given.set_data_from_numpy(np.full([1, 1], number, np.int32))
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer(model, [given], parameters={"do": "steps"}, enable_empty_final_response=True)
    found = []
    while not found or not found[-1][2]:
        result, error = answers.get(timeout=DEADLINE_S)
        assert error is None
        data = result.as_numpy("OUTPUT0").reshape(-1).tolist()
        found.append((data, parameter(result, "controls"), parameter(result, "triton_final_response")))
    client.stop_stream()
    return found


@pytest.mark.parametrize("number", [11, 14])
def test_a_request_is_executed_again_until_its_last_response(
    client: grpcclient.InferenceServerClient, where: str, number: int
) -> None:
    found = steps(client, f"steps{where}", number)

    assert [(data, is_final) for data, _, is_final in found] == [
        ([each], each == number) for each in range(11, number + 1)
    ]
    controls = [said.rpartition(" id=")[0] for _, said, _ in found]
    assert [said.partition(" ")[2] for said in controls] == [
        f"END=0 READY=1 START={start} flags={start}" for start in [1] + [0] * (number - 11)
    ]


def test_a_model_that_answers_once_does_so_at_its_last_step(
    client: grpcclient.InferenceServerClient, where: str
) -> None:
    def run(number: int) -> int:
        given = grpcclient.InferInput("INPUT0", [1, 1], "INT32")
        given.set_data_from_numpy(np.full([1, 1], number, np.int32))
        answer = client.infer(
            f"steps_once{where}", [given], parameters={"do": "steps once"}, client_timeout=DEADLINE_S
        )
        return int(answer.as_numpy("OUTPUT0")[0][0])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(11, 19))) == list(range(11, 19))


def test_only_iterative_sequences_are_executed_again(
    client: grpcclient.InferenceServerClient, server: tuple[str, dict[str, int]], where: str
) -> None:
    if server[0] == "real":
        pytest.skip("the real one never answers")

    assert Sequence(client, f"direct{where}").refusal("steps once") == (
        f"StatusCode.INVALID_ARGUMENT model 'direct{where}' rescheduled a request, which only a model with "
        f"'sequence_batching {{ iterative_sequence: true }}' may do"
    )


FIXED = "expected INT32 of shape [1,1], from 'data_type' and 'dims' of the state in 'sequence_batching'"


@pytest.mark.parametrize(
    ("do", "refusal"),
    [
        ("wrong datatype", f"state 'SUM_OUT' is FP32 of shape [1,1], {FIXED}"),
        ("wrong shape", f"state 'SUM_OUT' is INT32 of shape [2,1], {FIXED}"),
        ("wrong dimensions", f"state 'SUM_OUT' is INT32 of shape [1,1,1], {FIXED}"),
        (
            "no buffer",
            "state 'SUM_OUT' has no buffer to be updated from: TRITONBACKEND_StateBuffer makes one",
        ),
        ("short", "state 'SUM_OUT' has a buffer of 3 bytes, expected 4 for INT32 of shape [1,1]"),
        ("long", "state 'SUM_OUT' has a buffer of 8 bytes, expected 4 for INT32 of shape [1,1]"),
        ("fail", "the request was told to fail"),
    ],
)
def test_what_is_wrong_with_a_state_fails_its_request_and_leaves_the_one_before(
    client: grpcclient.InferenceServerClient,
    server: tuple[str, dict[str, int]],
    where: str,
    do: str,
    refusal: str,
) -> None:
    if server[0] == "real":
        pytest.skip("the real one takes any datatype, shape and size, and a state of a request that fails")
    sequence = Sequence(client, f"direct{where}")
    sequence.ask(1)

    status = "INTERNAL" if do == "fail" else "INVALID_ARGUMENT"
    assert sequence.refusal(do) == f"StatusCode.{status} {refusal}"
    assert sequence.sums(1, end=True) == [12]
