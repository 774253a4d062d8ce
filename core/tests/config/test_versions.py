"""Which versions a policy serves; every case was tried on a real server."""

from __future__ import annotations

import pytest
from tritonpy.config.load import parse_config
from tritonpy.config.versions import missing_versions, select_versions


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        ("", [11]),
        ("version_policy { latest {} }", []),
        ("version_policy { latest { num_versions: 1 } }", [11]),
        ("version_policy { latest { num_versions: 2 } }", [5, 11]),
        ("version_policy { latest { num_versions: 99 } }", [0, 3, 5, 11]),
        ("version_policy { all {} }", [0, 3, 5, 11]),
        ("version_policy {}", [0, 3, 5, 11]),
        ("version_policy { specific { versions: [5, 0] } }", [0, 5]),
        ("version_policy { specific { versions: [7] } }", []),
        ("version_policy { specific {} }", []),
    ],
)
def test_a_policy_selects_its_versions_in_ascending_order(policy: str, served: list[int]) -> None:
    config = parse_config(policy, "config.pbtxt")

    assert select_versions(config, [5, 11, 0, 3]) == served


def test_a_model_without_version_directories_serves_nothing() -> None:
    assert select_versions(parse_config("", "config.pbtxt"), []) == []


def test_versions_that_are_named_but_absent_are_told() -> None:
    config = parse_config("version_policy { specific { versions: [9, 1, 7] } }", "config.pbtxt")

    assert missing_versions(config, [1, 2]) == [7, 9]
    assert missing_versions(parse_config("", "config.pbtxt"), [1]) == []
