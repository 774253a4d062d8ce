from __future__ import annotations

from typing import cast

import pytest
from tritonpy.errors import InvalidArg, NotFound
from tritonpy.lifecycle.registry import ModelRegistry
from tritonpy.model.model import LoadedModel
from tritonpy.repository.layout import ModelKey

HERE, THERE = ModelKey("m", "/here"), ModelKey("m", "/there")
AMBIGUOUS = (
    "There are 2 identifiers of model 'm' in global map, model namespace must be provided to resolve "
) + "ambiguity."


class Loaded:
    """As much of a loaded version as the registry looks at."""

    name = "m"
    is_ready = True

    def __init__(self, version: int) -> None:
        self.version = version
        self.version_text = str(version)


def loaded(version: int = 1) -> LoadedModel:
    return cast(LoadedModel, Loaded(version))


def test_a_name_of_one_repository_is_enough() -> None:
    registry = ModelRegistry()
    model = loaded()

    registry.record(HERE).switch([model])

    assert registry.find("m") is model
    assert registry.find("m", "1") is model
    assert registry.ambiguity_of("m") == ""


@pytest.mark.parametrize("version", ["", "1", "7"])
def test_a_name_that_two_models_have_says_neither(version: str) -> None:
    registry = ModelRegistry()
    registry.record(HERE).switch([loaded()])
    registry.record(THERE).switch([loaded()])

    with pytest.raises(InvalidArg) as error:
        registry.find("m", version)

    assert str(error.value) == AMBIGUOUS
    assert len(registry.loaded_as("m")) == 2


def test_a_name_is_claimed_by_a_load_that_is_under_way_and_by_one_that_failed() -> None:
    registry = ModelRegistry()
    model = loaded()
    registry.record(HERE).switch([model])

    registry.record(THERE).note_loading(1)
    assert registry.ambiguity_of("m") == AMBIGUOUS
    registry.record(THERE).note_failed(1, "boom")
    with pytest.raises(InvalidArg, match="There are 2 identifiers"):
        registry.find("m")

    registry.record(THERE).switch([])
    assert registry.find("m") is model


def test_the_name_is_the_others_when_one_of_two_is_unloaded() -> None:
    registry = ModelRegistry()
    here, there = loaded(), loaded(2)
    registry.record(HERE).switch([here])
    registry.record(THERE).switch([there])

    registry.record(HERE).switch([])

    assert registry.find("m") is there
    registry.record(THERE).switch([])
    with pytest.raises(NotFound, match="'m' has no available versions"):
        registry.find("m")


def test_a_model_that_was_refused_unread_is_unknown_but_one_without_versions_has_none() -> None:
    registry = ModelRegistry()
    registry.record(ModelKey("unread")).refuse("no such field")
    registry.record(ModelKey("empty")).refuse("no version", lacks_versions=True)

    with pytest.raises(NotFound, match=r"^Request for unknown model: 'unread' is not found$"):
        registry.find("unread")
    with pytest.raises(NotFound, match=r"^Request for unknown model: 'empty' has no available versions$"):
        registry.find("empty")


def test_every_loaded_version_is_listed_with_its_namespace() -> None:
    registry = ModelRegistry()
    registry.record(THERE).switch([loaded()])
    registry.record(HERE).switch([loaded(1), loaded(2)])

    assert [(key.namespace, model.version) for key, model in registry.all_keyed()] == [
        ("/here", 1),
        ("/here", 2),
        ("/there", 1),
    ]
