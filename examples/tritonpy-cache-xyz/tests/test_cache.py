"""The response cache xyz, called as a server calls it, without one."""

from __future__ import annotations

from pathlib import Path

import pytest
import tritonpy_cache_xyz
from tritonpy.plugin import InvalidArg
from tritonpy_sdk.testing import CacheConformance, open_cache

WRONG = [{"path": ""}, {"files": "0"}, {"files": "many"}, {"size": "1"}]


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    return {"path": str(tmp_path / "responses")}


def test_entries_are_there_after_a_restart(settings: dict[str, str]) -> None:
    with open_cache(tritonpy_cache_xyz, settings) as cache:
        cache.insert("key", b"entry")
        cache.insert("key", b"newer")

    with open_cache(tritonpy_cache_xyz, settings) as cache:
        assert cache.lookup_all(["key", "other"]) == [b"newer", None]


def test_there_are_no_more_files_than_it_is_told(settings: dict[str, str]) -> None:
    keys = [str(number) for number in range(50)]

    with open_cache(tritonpy_cache_xyz, {**settings, "files": "4"}) as cache:
        for key in keys:
            cache.insert(key, key.encode())
        found = cache.lookup_all(keys)

    assert len(list(Path(settings["path"]).iterdir())) == 4
    assert {entry for entry in found if entry is not None} <= {key.encode() for key in keys}
    assert all(entry in (None, key.encode()) for key, entry in zip(keys, found, strict=True))


class TestRules(CacheConformance, cache=tritonpy_cache_xyz, wrong_settings=[{}, {"size": "1"}]):
    """What all caches have in common; a test that fails says what to do."""

    @pytest.fixture(autouse=True)
    def in_a_new_directory(self, settings: dict[str, str]) -> None:
        self.settings = settings


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_settings_end_the_start(settings: dict[str, str], wrong: dict[str, str]) -> None:
    given = {key: value for key, value in {**settings, **wrong}.items() if value}

    with pytest.raises(InvalidArg, match="--cache-config "), open_cache(tritonpy_cache_xyz, given):
        pass
