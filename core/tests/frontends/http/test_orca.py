"""The header with the load of a language model."""

from __future__ import annotations

import pytest
from tritonpy.frontends.http.orca import Series, load_header


def series(**values: float) -> Series:
    return [
        ((("kv_cache_block_type", kind), ("model", "llm"), ("version", "1")), value)
        for kind, value in values.items()
    ]


def test_json() -> None:
    header = load_header(b"json", series(tokens_per=64, used=25, max=100))

    assert header == (
        b"endpoint-load-metrics: JSON "
        b'{"named_metrics":{"kv_cache_utilization":0.25,"max_token_capacity":6400}}\r\n'
    )


def test_text() -> None:
    header = load_header(b"text", series(tokens_per=64, used=1, max=3))

    assert header == (
        b"endpoint-load-metrics: TEXT named_metrics.kv_cache_utilization=0.333333, "
        b"named_metrics.max_token_capacity=192\r\n"
    )


def test_a_cache_without_blocks_is_not_used() -> None:
    header = load_header(b"text", series(tokens_per=64, used=0, max=0))

    assert header is not None
    assert b"kv_cache_utilization=0.000000" in header


@pytest.mark.parametrize("wanted", [b"", b"JSON", b"xml", b"\xff"])
def test_another_format_gives_no_header(wanted: bytes) -> None:
    assert load_header(wanted, series(tokens_per=64, used=1, max=3)) is None


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"used": 1.0, "max": 3.0},
        {"tokens_per": 64.0, "used": -1.0, "max": 3.0},
        {"tokens_per": 64.0, "used": 1.0, "max": float("inf")},
        {"tokens_per": 64.0, "used": float("nan"), "max": 3.0},
    ],
    ids=str,
)
def test_without_the_numbers_there_is_no_header(values: dict[str, float]) -> None:
    assert load_header(b"json", series(**values)) is None
