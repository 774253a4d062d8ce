"""Controls of each type on our server and on a real one, and correlation ids that are text."""

from __future__ import annotations

import pytest

from .conftest import Stage


@pytest.mark.parametrize(
    ("datatype", "sequence", "seen"),
    [("int64", 2**63 + 5, 5 - 2**63), ("uint32", 2**40 + 7, 7), ("int32", 2**32 - 1, -1)],
)
def test_a_correlation_id_has_the_type_that_the_model_wants(
    stage: Stage, datatype: str, sequence: int, seen: int
) -> None:
    model = stage(f"type_{datatype}")
    model.ask(1, sequence, start=True, end=True)

    [(_, [row])] = model.rows
    assert (row["CORRID"], row["id"]) == (seen, sequence)


def test_the_values_for_false_and_true_are_those_of_the_configuration(stage: Stage) -> None:
    model = stage("pairs")
    model.ask(1, 1, start=True)
    model.ask(2, 1, end=True)

    assert [[row[name] for name in ("START", "END", "READY")] for _, (row,) in model.rows] == [
        [2.5, True, 9],
        [-1.5, False, 9],
    ]


def test_a_model_without_controls_knows_ids_and_flags_all_the_same(stage: Stage) -> None:
    model = stage("uncontrolled")
    assert model.ask(1, "abc", start=True) == 1
    assert model.ask(2, "abc", end=True) == 3

    assert [row for _, (row,) in model.rows] == [
        {"id": "abc", "flags": 1, "X": 1},
        {"id": "abc", "flags": 2, "X": 2},
    ]


def test_a_model_may_want_text_for_a_correlation_id(stage: Stage, is_real: bool) -> None:
    model = stage("text")
    if is_real:  # it makes a tensor that it refuses itself
        assert model.ask(1, "größe", start=True)[0] == 400
        return
    assert model.ask(1, "größe", start=True) == 1
    assert model.ask(2, "größe", end=True) == 3

    assert [row["CORRID"] for _, (row,) in model.rows] == ["größe", "größe"]
    assert model.ask(1, 5, start=True) == (
        400,
        "[request id: <id_unknown>] sequence batching control 'CORRID' data-type is 'UINT64', but model "
        "'text' expects 'BYTES'",
    )


def test_text_is_refused_where_the_model_wants_a_number(stage: Stage, is_real: bool) -> None:
    model = stage("again")
    answer = model.ask(1, "abc", start=True, end=True)
    if is_real:  # this release hands on whatever lies there; newer ones refuse
        assert answer == 1
        return
    assert answer == (
        400,
        "[request id: <id_unknown>] sequence batching control 'CORRID' data-type is 'BYTES', but model "
        "'again' expects 'UINT64'",
    )
