"""Files of initial states, in the model's directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonpy.errors import Internal, InvalidArg
from tritonpy.model.initial_states import read_states


def config(file: str) -> dict[str, Any]:
    initial = {"name": "start", "data_type": "TYPE_INT32", "dims": [2], "data_file": file}
    state = {"input_name": "IN", "output_name": "OUT", "data_type": "TYPE_INT32", "dims": [-1]}
    return {
        "name": "m",
        "max_batch_size": 2,
        "sequence_batching": {"state": [{**state, "initial_state": [initial]}]},
    }


def write(directory: Path, name: str, *values: int) -> None:
    path = directory / "initial_state" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(np.array(values, np.int32).tobytes())


def test_a_model_without_states_has_none(tmp_path: Path) -> None:
    assert read_states({"name": "m"}, tmp_path) is None
    assert read_states({"name": "m", "sequence_batching": {}}, tmp_path) is None


@pytest.mark.parametrize("name", ["start", "below/start"])
def test_a_state_begins_with_what_is_in_its_file(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, 7, -8)

    states = read_states(config(name), tmp_path)

    assert states is not None
    assert states.fresh().tensor("IN").numpy().tolist() == [[7, -8]]


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        Internal, match=r"failed to open text file for read .*/initial_state/start: No such file"
    ):
        read_states(config("start"), tmp_path)


@pytest.mark.parametrize("name", ["", "..", "../start", "/etc/hostname", "a\0b"])
def test_a_file_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path, "start", 7, -8)
    (tmp_path / "start").write_bytes(bytes(8))

    with pytest.raises(InvalidArg, match="initial_state setting expects 'data_file' to name a file below"):
        read_states(config(name), tmp_path)


def test_a_file_that_is_too_small_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "start", 7)

    with pytest.raises(
        InvalidArg, match="expects 8 bytes, but the data provided from start only has 4 bytes"
    ):
        read_states(config("start"), tmp_path)
