from __future__ import annotations

import pytest
from tritonpy.devices.visible import visible_devices

A, B, C = "GPU-a1b2-1", "GPU-a1c3-2", "GPU-ffff-3"


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, [A, B, C]),
        ("0", [A]),
        ("2,0", [C, A]),
        (" 1 , 2", [B, C]),
        (B, [B]),
        ("GPU-ff,0", [C, A]),
        ("", []),
        ("-1", []),
        ("0,-1,1", [A]),
        ("0,7,1", [A]),
        ("NoDevFiles", []),
        ("0,,1", [A]),
        ("GPU-a1", []),  # of two
        ("GPU-a1c,GPU-none,0", [B]),
        ("1,1", []),
        (f"0,{A}", []),
        ("99999999999999999999", []),
        ("MIG-7f,0", ["MIG-7f"]),
        ("0,MIG-7f,1", [A, "MIG-7f"]),
    ],
)
def test_a_process_sees_the_devices_that_cuda_would_show_it(setting: str | None, expected: list[str]) -> None:
    assert visible_devices(setting, [A, B, C]) == expected


def test_a_machine_without_devices_shows_none() -> None:
    assert visible_devices(None, []) == visible_devices("0", []) == []
