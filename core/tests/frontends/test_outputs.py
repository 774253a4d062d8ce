from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.errors import Internal, InvalidArg
from tritonpy.frontends.outputs import (
    MOST_ANSWERED,
    MOST_CLASSES,
    Classified,
    OutputClasses,
    Placed,
    of_model,
    top_classes,
    treat,
)
from tritonpy.shared_memory.registry import SharedMemoryRegions
from tritonpy.tensor import Tensor

OUTPUTS = [
    Tensor.from_numpy("A", np.array([1, 3, 2], np.int32)),
    Tensor.from_numpy("B", np.array([1, 2], np.uint8)),
    Tensor.from_numpy("C", np.array([b"abc", b""], object)),
]


@pytest.fixture
def regions(shared_file: Any) -> SharedMemoryRegions:
    regions = SharedMemoryRegions(is_allowed=True)
    regions.register_system("r", shared_file(64).key, 0, 64)
    return regions


def test_each_output_is_treated_as_wanted_and_the_others_stay_as_they_are(
    regions: SharedMemoryRegions,
) -> None:
    target = regions.slice("r", 32, 8)

    outputs, placed = treat(OUTPUTS, {"A": Classified(1, OutputClasses()), "C": Placed(target)})

    assert [tensor.name for tensor in outputs] == ["A", "B", "C"]
    assert outputs[0].numpy().tolist() == [b"3:1"]
    assert outputs[1:] == OUTPUTS[1:]
    assert placed == {"C"}
    assert bytes(target.host_view()[:11]) == b"\x03\0\0\0abc\0\0\0\0"


@pytest.mark.parametrize(("max_batch_size", "has_batch"), [(0, False), (4, True)])
def test_classes_are_those_of_the_model_that_answers(
    regions: SharedMemoryRegions, max_batch_size: int, has_batch: bool
) -> None:
    model = SimpleNamespace(max_batch_size=max_batch_size, labels={"A": (b"cat", b"dog")})
    placed = Placed(regions.slice("r", 4))

    treatments = of_model({"A": Classified(1), "B": Classified(2), "C": placed}, model)  # type: ignore[arg-type]

    assert treatments == {
        "A": Classified(1, OutputClasses((b"cat", b"dog"), has_batch)),
        "B": Classified(2, OutputClasses((), has_batch)),
        "C": placed,
    }


def test_an_output_that_the_model_did_not_make_is_not_missed(regions: SharedMemoryRegions) -> None:
    outputs, placed = treat(
        OUTPUTS[1:2], {"A": Classified(1, OutputClasses()), "Z": Placed(regions.slice("r", 1))}
    )

    assert outputs == OUTPUTS[1:2]
    assert placed == frozenset()


def test_an_output_that_does_not_fit_is_refused(regions: SharedMemoryRegions) -> None:
    with pytest.raises(Internal, match=r"for output 'A' \(11 bytes\) should be at least 12 bytes to hold"):
        treat(OUTPUTS, {"A": Placed(regions.slice("r", 11))})


PLAIN = OutputClasses()


def classify(
    elements: Any, count: int, classes: OutputClasses = PLAIN, datatype: str | None = None
) -> list[Any]:
    result = top_classes(Tensor.from_numpy("OUTPUT0", np.asarray(elements), datatype), count, classes)
    assert (result.name, result.datatype) == ("OUTPUT0", "BYTES")
    return _decoded(result.numpy().tolist())


def _decoded(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else [_decoded(element) for element in value]


def fp32(*elements: float) -> Any:
    return np.array(elements, np.float32)


def test_the_largest_come_first_with_six_decimals() -> None:
    assert classify(fp32(1, 3, 2), 2) == ["3.000000:1", "2.000000:2"]
    assert classify(fp32(1 / 3, 16777217, 0.1), 9) == ["16777216.000000:1", "0.333333:0", "0.100000:2"]


def test_labels_stand_behind_the_index_where_there_are_any() -> None:
    classes = OutputClasses((b"cat", b"", b"d\xc3\xb6g"))

    assert classify(fp32(1, 2, 3, 4), 4, classes) == [
        "4.000000:3",
        "3.000000:2:dög",
        "2.000000:1",
        "1.000000:0:cat",
    ]


def test_each_row_of_a_batch_has_its_own() -> None:
    batch = np.array([[1, 2, 3], [6, 5, 4]], np.float32)

    assert classify(batch, 2, OutputClasses((), has_batch=True)) == [
        ["3.000000:2", "2.000000:1"],
        ["6.000000:0", "5.000000:1"],
    ]
    assert classify(batch, 2) == ["6.000000:3", "5.000000:4"]


def test_all_dimensions_but_the_batch_count_as_one() -> None:
    batch = np.arange(12, dtype=np.int32).reshape(2, 2, 3)

    assert classify(batch, 2, OutputClasses((), has_batch=True)) == [["5:5", "4:4"], ["11:5", "10:4"]]


@pytest.mark.parametrize(
    ("datatype", "elements", "expected"),
    [
        (np.uint8, [0, 255, 7], ["255:1", "7:2", "0:0"]),
        (np.uint16, [0, 65535, 7], ["65535:1", "7:2", "0:0"]),
        (np.uint32, [0, 2**32 - 1, 7], ["4294967295:1", "7:2", "0:0"]),
        (np.uint64, [2**63, 2**64 - 1, 5], ["18446744073709551615:1", "9223372036854775808:0", "5:2"]),
        (np.int8, [-128, 127, 0], ["127:1", "0:2", "-128:0"]),
        (np.int16, [-(2**15), 2**15 - 1, 0], ["32767:1", "0:2", "-32768:0"]),
        (np.int32, [-(2**31), 2**31 - 1, 0], ["2147483647:1", "0:2", "-2147483648:0"]),
        (
            np.int64,
            [-(2**63), 2**63 - 1, 0],
            ["9223372036854775807:1", "0:2", "-9223372036854775808:0"],
        ),
        (np.float32, [-1, np.inf, 1e-9], ["inf:1", "0.000000:2", "-1.000000:0"]),
        (np.float64, [-1e-300, 2 / 3 * 1e7, -np.inf], ["6666666.666667:1", "-0.000000:0", "-inf:2"]),
    ],
)
def test_every_kind_of_number_is_put_in_order(
    datatype: Any, elements: list[Any], expected: list[str]
) -> None:
    assert classify(np.array(elements, datatype), 3) == expected


@pytest.mark.parametrize(
    ("datatype", "array"),
    [
        ("BOOL", np.array([True])),
        ("FP16", np.array([1], np.float16)),
        ("BF16", np.array([1], np.uint16)),
        ("BYTES", np.array([b"x"], object)),
    ],
)
def test_what_triton_does_not_classify_is_refused(datatype: str, array: Any) -> None:
    with pytest.raises(
        InvalidArg, match=f"class result not available for output due to unsupported type '{datatype}'"
    ):
        classify(array, 1, datatype=datatype)


def test_equal_elements_keep_their_order() -> None:
    assert classify(np.array([7] * 40, np.int32), 5) == ["7:0", "7:1", "7:2", "7:3", "7:4"]
    assert classify(fp32(1, 3, 3, 1, 3, 2), 6) == [
        "3.000000:1",
        "3.000000:2",
        "3.000000:4",
        "2.000000:5",
        "1.000000:0",
        "1.000000:3",
    ]
    assert classify(fp32(0.0, -0.0, 0.0), 2) == ["0.000000:0", "-0.000000:1"]


def test_what_is_no_number_comes_last() -> None:
    elements = fp32(np.nan, 1, np.nan, 3)

    assert classify(elements, 4) == ["3.000000:3", "1.000000:1", "nan:0", "nan:2"]
    assert classify(elements, 3) == ["3.000000:3", "1.000000:1", "nan:0"]
    assert classify(elements, 1) == ["3.000000:3"]


@pytest.mark.parametrize("shape", [(0,), (0, 3)])
def test_an_empty_output_has_no_classes(shape: tuple[int, ...]) -> None:
    assert classify(np.empty(shape, np.float32), 2) == []


def test_an_empty_batch_keeps_its_shape() -> None:
    empty = Tensor.from_numpy("OUTPUT0", np.empty((2, 0), np.float32))
    none = Tensor.from_numpy("OUTPUT0", np.empty((0, 4), np.float32))
    classes = OutputClasses((), has_batch=True)

    assert top_classes(empty, 3, classes).shape == (2, 0)
    assert top_classes(none, 3, classes).shape == (0, 0)


@pytest.mark.parametrize(("rows", "count"), [(1, MOST_ANSWERED + 1), (200, 1000)])
def test_more_classes_than_can_be_written_at_once_are_refused(rows: int, count: int) -> None:
    tensor = Tensor.from_numpy("scores", np.zeros((rows, count), np.float32))

    with pytest.raises(InvalidArg, match=f": {rows * count} classes are wanted, expected at most 131072"):
        top_classes(tensor, count, OutputClasses(has_batch=True))

    assert top_classes(tensor, 5, OutputClasses(has_batch=True)).shape == (rows, 5)


def test_an_output_with_too_many_elements_is_refused() -> None:
    with pytest.raises(InvalidArg, match=f"has {MOST_CLASSES + 1} elements, expected at most {MOST_CLASSES}"):
        classify(np.empty(MOST_CLASSES + 1, np.uint8), 1)
    assert classify(np.zeros(MOST_CLASSES, np.uint8), 1) == ["0:0"]


NUMBERS = st.one_of(
    st.lists(st.floats(width=32), max_size=40).map(lambda values: np.array(values, np.float32)),
    st.lists(st.integers(-3, 3), max_size=40).map(lambda values: np.array(values, np.int8)),
    st.lists(st.integers(2**64 - 3, 2**64 - 1), max_size=40).map(lambda values: np.array(values, np.uint64)),
)


@given(NUMBERS, st.integers(1, 50))
def test_the_result_is_that_of_a_stable_sort(elements: Any, count: int) -> None:
    values: Sequence[Any] = elements.tolist()
    order = sorted(range(len(values)), key=lambda index: (values[index] != values[index], -values[index]))
    nan_last = [i for i in order if values[i] == values[i]] + [
        i for i in range(len(values)) if values[i] != values[i]
    ]

    found = [int(entry.split(":")[1]) for entry in classify(elements, count)]

    assert found == nan_last[:count]
