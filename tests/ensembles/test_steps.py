"""Ensembles of Python models over HTTP and gRPC, on our server and on a real one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonpy_sdk.repository import ModelRepository

from ..servers import OURS_AND_REAL
from .conftest import Side, starting
from .models import COUNT, EVEN, RAISE, SILENT, SUM, step, tensor, write_ensemble, write_model

SEQUENCE = {"sequence_id": 0, "sequence_start": False, "sequence_end": False}
BATCHED = {"inputs": [tensor("X", [2])], "outputs": [tensor("Y", [2])]}


@pytest.fixture(scope="module", params=OURS_AND_REAL)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(kind)


@pytest.fixture(scope="module")
def side(kind: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[Side]:
    models = ModelRepository(folder / "models")
    for number, name in ((1, "one"), (10, "ten"), (100, "hundred")):
        write_model(models, name, number=number)
    for name in ("tells", "tells_too"):
        write_model(models, name, journal=str(folder / "journal"))
    write_model(models, "raises", RAISE)
    write_model(models, "silent", SILENT)
    write_model(models, "sum", SUM, inputs=[tensor("A"), tensor("B", optional=True)])
    write_model(models, "both", SUM, inputs=[tensor("A"), tensor("B")])
    write_model(models, "count", COUNT, decoupled=True)
    write_model(models, "even", EVEN, decoupled=True)
    write_model(models, "batches", max_batch_size=4, **BATCHED)
    write_model(models, "flat", **BATCHED)
    labelled = tensor("Y", [3], "TYPE_FP32", label_filename="labels.txt")
    write_model(models, "scores", inputs=[tensor("X", [3], "TYPE_FP32")], outputs=[labelled])
    models.model("scores", model_files={"labels.txt": "cat\ndog\nowl\n"})

    write_ensemble(
        models,
        "line",
        [
            step("hundred", {"X": "U"}, {"Y": "OUT"}),
            step("one", {"X": "IN"}, {"Y": "T"}),
            step("ten", {"X": "T"}, {"Y": "U"}),
        ],
    )
    branches = [step("one", {"X": "IN"}, {"Y": "OUT"}), step("ten", {"X": "IN"}, {"Y": "OUT2"})]
    write_ensemble(models, "branches", branches, outputs=[tensor("OUT"), tensor("OUT2")])
    write_ensemble(
        models,
        "nested",
        [
            step("line", {"IN": "IN"}, {"OUT": "T"}),
            step("branches", {"IN": "T"}, {"OUT": "L", "OUT2": "R"}),
            step("both", {"A": "L", "B": "R"}, {"Y": "OUT"}),
        ],
    )
    write_ensemble(
        models,
        "telling",
        [step("tells", {"X": "IN"}, {"Y": "T"}), step("tells_too", {"X": "T"}, {"Y": "OUT"})],
    )
    maybe = [tensor("IN"), tensor("IN2", optional=True)]
    for model in ("sum", "both"):
        steps = [step(model, {"A": "IN", "B": "IN2"}, {"Y": "OUT"})]
        write_ensemble(models, f"{model}_of_one_or_two", steps, inputs=maybe)
    write_ensemble(models, "raising", [step("raises", {"X": "IN"}, {"Y": "OUT"})])
    write_ensemble(models, "raising_inside", [step("raising", {"IN": "IN"}, {"OUT": "OUT"})])
    write_ensemble(models, "silence", [step("silent", {"X": "IN"}, {"Y": "OUT"})])
    pair = {"inputs": [tensor("IN", [2])], "outputs": [tensor("OUT", [2])]}
    for name, model, size in (("batch_to_flat", "flat", 4), ("flat_to_batch", "batches", 0)):
        write_ensemble(models, name, [step(model, {"X": "IN"}, {"Y": "OUT"})], max_batch_size=size, **pair)
    for name, model, size in (("reshapes", "flat", 0), ("reshapes_batches", "batches", 4)):
        write_ensemble(
            models,
            name,
            [step(model, {"X": "IN"}, {"Y": "OUT"})],
            inputs=[tensor("IN", [1, 2], reshape={"shape": [2]})],
            outputs=[tensor("OUT", [2, 1], reshape={"shape": [2]})],
            max_batch_size=size,
        )
    write_ensemble(
        models,
        "labels",
        [step("scores", {"X": "IN"}, {"Y": "OUT"})],
        inputs=[tensor("IN", [3], "TYPE_FP32")],
        outputs=[tensor("OUT", [3], "TYPE_FP32")],
    )
    write_ensemble(
        models,
        "counting",
        [step("count", {"X": "IN"}, {"Y": "T"}), step("ten", {"X": "T"}, {"Y": "OUT"})],
    )
    write_ensemble(
        models,
        "counting_even",
        [step("count", {"X": "IN"}, {"Y": "T"}), step("even", {"X": "T"}, {"Y": "OUT"})],
    )
    write_ensemble(
        models,
        "counting_raising",
        [step("count", {"X": "IN"}, {"Y": "T"}), step("raises", {"X": "T"}, {"Y": "OUT"})],
    )
    with starting(kind, request) as start:
        yield start(models.path)


@pytest.fixture
def journal(folder: Path) -> Path:
    path = folder / "journal"
    path.unlink(missing_ok=True)
    return path


def test_steps_follow_the_tensors_not_the_order_they_are_written_in(side: Side) -> None:
    status, document = side.infer("line", 1)

    assert status == 200
    assert document == {
        "model_name": "line",
        "model_version": "1",
        "parameters": SEQUENCE,
        "outputs": [{"name": "OUT", "datatype": "INT32", "shape": [1], "data": [112]}],
    }


def test_grpc_answers_the_same(side: Side) -> None:
    given = grpcclient.InferInput("IN", [1], "INT32")
    given.set_data_from_numpy(np.array([1], np.int32))
    with grpcclient.InferenceServerClient(f"127.0.0.1:{side.grpc_port}") as client:
        result = client.infer("line", [given], request_id="q")

    assert result.as_numpy("OUT").tolist() == [112]
    parameters = result.get_response().parameters
    assert {name: parameters[name].WhichOneof("parameter_choice") for name in parameters} == {
        "sequence_id": "int64_param",
        "sequence_start": "bool_param",
        "sequence_end": "bool_param",
    }


def test_branches_and_ensembles_inside_ensembles(side: Side) -> None:
    assert side.outputs("branches", 1) == {"OUT": ([1], [2]), "OUT2": ([1], [11])}
    assert side.out("nested", 1) == [112 + 1 + 112 + 10]


def test_a_step_that_no_requested_output_needs_is_not_run(side: Side) -> None:
    before = side.statistics("one")["inference_count"]

    outputs = side.outputs("branches", 1, outputs=[{"name": "OUT2"}])

    assert outputs == {"OUT2": ([1], [11])}
    assert side.statistics("one")["inference_count"] == before


def test_steps_are_told_what_the_request_says(side: Side, journal: Path) -> None:
    parameters = {"sequence_id": 7, "sequence_start": True, "sequence_end": True, "timeout": 5000, "k": "v"}

    status, document = side.infer("telling", 1, id="q", parameters=parameters)

    assert status == 200
    assert document["id"] == "q"
    assert document["parameters"] == {"sequence_id": 7, "sequence_start": True, "sequence_end": True}
    assert [json.loads(line) for line in journal.read_text().splitlines()] == [
        [name, "q", 7, 3, {"k": "v"}, 5000, [1]] for name in ("tells", "tells_too")
    ]


@pytest.mark.parametrize(("model", "lead"), [("reshapes", []), ("reshapes_batches", [1])])
def test_an_ensemble_reshapes_its_own_tensors(side: Side, model: str, lead: list[int]) -> None:
    outputs = side.outputs(model, {"IN": ([*lead, 1, 2], [1, 2])})

    assert outputs == {"OUT": ([*lead, 2, 1], [2, 3])}


def test_an_optional_input_may_be_left_out_where_the_model_can_do_without(side: Side) -> None:
    both = {"IN": ([1], [1]), "IN2": ([1], [2])}

    assert (side.out("sum_of_one_or_two", 1), side.out("sum_of_one_or_two", both)) == ([1], [3])
    assert side.out("both_of_one_or_two", both) == [3]
    assert side.refusal("both_of_one_or_two", 1) == (
        400,
        "in ensemble 'both_of_one_or_two', [request id: <id_unknown>] expected 2 inputs but got 1 inputs for "
        "model 'both'. Got input(s) ['A'], but missing required input(s) ['B']. Please provide all required "
        "input(s).",
    )


def test_an_error_says_in_which_ensemble_it_was(side: Side) -> None:
    status, text = side.refusal("raising_inside", 1)

    assert status == 500
    assert text.startswith(
        "in ensemble 'raising_inside', in ensemble 'raising', Failed to process the request(s) for model "
        "'raises_0"
    )
    assert "ValueError: boom" in text


def test_a_model_that_gives_no_output_leaves_the_answer_without(side: Side) -> None:
    assert side.infer("silence", 1) == (
        200,
        {"model_name": "silence", "model_version": "1", "outputs": []},
    )


@pytest.mark.parametrize(
    ("model", "shape", "status"),
    [
        ("batch_to_flat", [1, 2], 200),
        ("batch_to_flat", [2, 2], 400),
        ("flat_to_batch", [2], 200),
    ],
)
def test_a_batch_dimension_is_given_and_taken_where_models_differ(
    side: Side, model: str, shape: list[int], status: int
) -> None:
    data = list(range(int(np.prod(shape))))

    answered, document = side.infer(model, {"IN": (shape, data)})

    assert answered == status, document
    if status == 200:
        output = document["outputs"][0]
        assert (output["shape"], output["data"]) == (shape, [value + 1 for value in data])


def test_labels_are_those_of_the_model_that_makes_the_output(side: Side) -> None:
    wanted = [{"name": "OUT", "parameters": {"classification": 2}}]

    assert side.out("labels", {"IN": ([3], [1, 3, 2], "FP32")}, outputs=wanted) == [
        "4.000000:1:dog",
        "3.000000:2:owl",
    ]


def test_configuration_and_metadata(side: Side) -> None:
    _, config = side.call("models/line/config")
    _, metadata = side.call("models/line")

    assert metadata["platform"] == config["platform"] == "ensemble"
    assert (config["instance_group"], config["default_model_filename"]) == ([], "")
    assert config["model_transaction_policy"] == {"decoupled": False}
    assert "optimization" not in config
    assert side.call("models/counting/config")[1]["model_transaction_policy"] == {"decoupled": True}


def test_a_request_to_the_inside_of_an_ensemble_is_refused(side: Side) -> None:
    status, document = side.infer("line", 1, outputs=[{"name": "T"}])

    assert (status, document["error"]) == (400, "unexpected inference output 'T' for model 'line'")


def test_an_ensemble_counts_requests_once_and_the_work_of_its_steps(side: Side) -> None:
    before, steps_before = side.statistics("branches"), side.statistics("one")
    for _ in range(3):
        side.infer("branches", 1)
    after, steps = side.statistics("branches"), side.statistics("one")

    for field in ("inference_count", "execution_count"):
        assert after[field] - before[field] == steps[field] - steps_before[field] == 3
    for phase in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
        assert after["inference_stats"][phase]["count"] - before["inference_stats"][phase]["count"] == 3
    assert [batch["batch_size"] for batch in after["batch_stats"]] == [1]
    assert after["response_stats"] == {}


def test_compute_times_are_the_sums_over_the_steps(side: Side) -> None:
    def compute(model: str) -> int:
        return int(side.statistics(model)["inference_stats"]["compute_infer"]["ns"])

    models = ("line", "one", "ten", "hundred")
    before = {model: compute(model) for model in models}
    side.infer("line", 1)
    took = {model: compute(model) - before[model] for model in models}

    assert took["line"] == took["one"] + took["ten"] + took["hundred"]


def test_a_failure_counts_as_other(side: Side) -> None:
    before = side.failures("raising").get("OTHER", 0)

    side.infer("raising", 1)

    # The real server counts each of them twice.
    assert side.failures("raising") == {"OTHER": before + (1 if side.is_ours else 2)}


def test_each_response_of_a_decoupled_step_is_carried_on(side: Side) -> None:
    responses = side.stream("counting", 3)

    assert [outputs for outputs, _ in responses] == [{"OUT": [10]}, {"OUT": [11]}, {"OUT": [12]}]
    assert all(set(parameters) == set(SEQUENCE) for _, parameters in responses)
    assert side.stream("counting", 0) == []


def test_a_decoupled_step_may_answer_nothing(side: Side) -> None:
    assert [outputs["OUT"] for outputs, _ in side.stream("counting_even", 4)] == [[100], [102]]


def test_a_failure_behind_a_decoupled_step_ends_the_stream(side: Side) -> None:
    responses = side.stream("counting_raising", 3)

    assert len(responses) == 1
    assert responses[0].startswith("in ensemble 'counting_raising', Failed to process the request(s) for")


def test_a_decoupled_ensemble_wants_a_stream(side: Side) -> None:
    status, document = side.infer("counting", 1)

    assert status == 501
    assert document["error"] == "HTTP end point doesn't support models with decoupled transaction policy"
