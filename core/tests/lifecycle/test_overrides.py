"""Loads that bring a configuration, or all of a model's files."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tritonpy.errors import Internal, InvalidArg
from tritonpy_sdk.testing import until_async

ALL = "version_policy { all {} }"


def is_there(path: Path) -> bool:
    return path.exists()


def config(**fields: object) -> str:
    return json.dumps({"backend": "fake", **fields})


async def test_a_configuration_of_the_request_stands_in_for_the_file_until_the_files_change(
    harness: Any,
) -> None:
    harness.write("m")
    harness.write("m", version=2)

    await harness.manager.load("m", config(version_policy={"specific": {"versions": [1]}}))
    assert list(harness.states("m")) == ["1"]
    assert harness.served("m").is_override
    await harness.manager.load("m")
    assert harness.served("m").version == 1  # kept, because nothing has changed
    harness.write("m", "second", version=2)
    await harness.manager.load("m")

    assert harness.served("m").version == 2
    assert not harness.served("m").is_override


async def test_a_forced_load_drops_the_configuration_of_an_earlier_request(harness: Any) -> None:
    harness.write("m")
    harness.write("m", version=2)
    await harness.manager.load("m", config(version_policy={"specific": {"versions": [1]}}))

    await harness.manager.load("m", force=True)

    assert harness.served("m").version == 2


async def test_the_same_configuration_again_changes_nothing(harness: Any) -> None:
    harness.write("m")
    await harness.manager.load("m", config())

    await harness.manager.load("m", config())
    await harness.manager.load("m", config(max_batch_size=4))

    assert len(harness.loader.loaded) == 2


async def test_an_unload_forgets_the_configuration_of_the_request(harness: Any) -> None:
    harness.write("m")
    harness.write("m", version=2)
    await harness.manager.load("m", config(version_policy={"specific": {"versions": [1]}}))
    await harness.manager.unload("m")

    await harness.manager.load("m")

    assert harness.served("m").version == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Invalid config override: the configuration of model 'm' is not JSON"),
        ("{bad", "Invalid config override: the configuration of model 'm' is not JSON"),
        ("[]", "expected an object"),
        ('{"nonsense": 1}', "no field is called 'nonsense'"),
        ('{"name": "other", "backend": "fake"}', "unexpected directory name 'm' for model 'other'"),
    ],
)
async def test_a_bad_configuration_is_refused_and_the_old_one_serves(
    harness: Any, text: str, problem: str
) -> None:
    harness.write("m")
    await harness.manager.load("m")

    with pytest.raises(Internal, match="failed to poll from model repository") as error:
        await harness.manager.load("m", text)

    assert problem in str(error.value)
    assert harness.served("m").content == "first"


async def test_files_of_the_request_are_all_there_is_and_go_when_the_model_is_unloaded(harness: Any) -> None:
    harness.write("m", version=1)
    files = {"file:3/model.txt": b"sent", "file:3/deep/er.bin": b"\0", "file:note.txt": b"hello"}

    await harness.manager.load("m", config(), files)

    model = harness.served("m")
    directory: Path = model.path
    assert (model.version, model.content) == (3, "sent")
    assert (directory / "3/deep/er.bin").read_bytes() == b"\0"
    assert (directory / "note.txt").read_bytes() == b"hello"
    assert directory.name == "m"
    assert model.is_override
    model.idle.clear()
    await harness.manager.unload("m")
    await asyncio.sleep(0)
    assert model.closed_with is None  # a request is still under way
    assert is_there(directory)
    model.idle.set()
    await until_async(lambda: not directory.parent.exists())


async def test_a_plain_load_goes_back_to_the_repository(harness: Any) -> None:
    harness.write("m")
    await harness.manager.load("m", config(), {"file:1/model.txt": b"sent"})
    directory = harness.served("m").path

    await harness.manager.load("m")

    assert harness.served("m").content == "first"
    await until_async(lambda: not directory.parent.exists())


async def test_files_of_a_load_that_fails_are_removed(harness: Any) -> None:
    paths = []
    load = harness.loader.load

    async def noting_the_path(directory: Any, version: int, config: Any, **more: Any) -> Any:
        paths.append(directory.path.parent)
        return await load(directory, version, config, **more)

    harness.loader.load = noting_the_path

    with pytest.raises(InvalidArg, match="Internal: boom"):
        await harness.manager.load("m", config(), {"file:1/model.txt": b"broken"})

    assert len(paths) == 1
    assert not paths[0].exists()


async def test_files_are_removed_when_the_server_stops(harness: Any) -> None:
    await harness.manager.load("m", config(), {"file:1/model.txt": b"sent"})
    directory = harness.served("m").path

    await harness.manager.unload_all()

    assert not directory.parent.exists()


# At the start.
