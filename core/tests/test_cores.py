"""Cores that may be used: the affinity, and the quota of a control group below it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tritonpy import cores
from tritonpy.cores import usable_core_count


def give_quota(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Let a file stand in for that of the control group."""
    file = folder / "cpu.max"
    file.write_text(text)
    monkeypatch.setattr(cores, "_QUOTA", file)


@pytest.mark.parametrize(
    ("quota", "share"),
    [("max 100000", None), ("", None), ("100000 100000", 1), ("50000 100000", 1), ("10000000 100000", None)],
)
def test_a_quota_counts_where_it_is_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, share: int | None
) -> None:
    give_quota(tmp_path, monkeypatch, quota)

    assert usable_core_count() == (share or len(os.sched_getaffinity(0)))


def test_a_part_of_a_core_counts_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    give_quota(tmp_path, monkeypatch, "150000 100000")

    assert usable_core_count() == 2


def test_without_a_control_group_the_affinity_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "_QUOTA", tmp_path / "nothing")

    assert usable_core_count() == len(os.sched_getaffinity(0))
