from __future__ import annotations

from typing import Any

from tritonpy.errors import Unavailable
from tritonpy.lifecycle.following.changes import ChangeDetector, Changes, ReadErrors
from tritonpy.repository.key import ModelKey
from tritonpy.repository.repositories import FoundModel, Look

A, B = ModelKey("a"), ModelKey("b")


class Place:
    """Stands for a store, of which only the root is looked at."""

    def __init__(self, root: str) -> None:
        self.root = root


def look(
    *, refused: dict[str, str] | None = None, unread: tuple[str, ...] = (), root: str = "/r", **models: Any
) -> Look:
    """A look in which each model has one file that was changed at this time; a pair names the root, too."""
    found = {}
    for name, where in models.items():
        place, time = where if isinstance(where, tuple) else (root, where)
        files = frozenset({("1/model.py", time, 5)})
        found[ModelKey(name)] = FoundModel(ModelKey(name), Place(place), files)  # type: ignore[arg-type]
    return Look(found, refused or {}, {root: Unavailable("no network") for root in unread})


def told(
    changed: tuple[ModelKey, ...] = (),
    gone: tuple[ModelKey, ...] = (),
    refused: dict[ModelKey, str] | None = None,
) -> Changes:
    return Changes(changed, gone, refused or {})


def test_a_change_counts_when_it_has_come_to_rest() -> None:
    detector = ChangeDetector(look(a=1, b=1))

    assert detector.changes(look(a=1, b=1)) == told()
    assert detector.changes(look(a=2, b=1)) == told()  # perhaps not yet all of it
    assert detector.changes(look(a=3, b=1)) == told()  # indeed
    assert detector.changes(look(a=3, b=1)) == told((A,))
    assert detector.changes(look(a=3, b=1)) == told()


def test_a_change_that_is_taken_back_before_it_rests_is_none() -> None:
    detector = ChangeDetector(look(a=1))

    assert detector.changes(look(a=2)) == told()
    assert detector.changes(look(a=1)) == told()
    assert detector.changes(look(a=1)) == told()


def test_models_come_to_rest_each_for_itself() -> None:
    detector = ChangeDetector(look(a=1, b=1))

    assert detector.changes(look(a=2, b=1)) == told()
    assert detector.changes(look(a=2, b=2)) == told((A,))
    assert detector.changes(look(a=2, b=2)) == told((B,))


def test_a_new_model_is_a_change_also_one_that_comes_back() -> None:
    detector = ChangeDetector(look(a=1))

    assert detector.changes(look(a=1, b=1)) == told()
    assert detector.changes(look(a=1, b=1)) == told((B,))
    assert detector.changes(look(a=1)) == told()
    assert detector.changes(look(a=1)) == told(gone=(B,))
    assert detector.changes(look(a=1)) == told()
    assert detector.changes(look(a=1, b=1)) == told()
    assert detector.changes(look(a=1, b=1)) == told((B,))


def test_a_directory_that_is_exchanged_for_another_one_is_never_gone() -> None:
    detector = ChangeDetector(look(a=1))

    assert detector.changes(look()) == told()
    assert detector.changes(look(a=2)) == told()
    assert detector.changes(look(a=2)) == told((A,))


def test_a_model_that_moves_to_another_repository_has_changed_though_its_files_have_not() -> None:
    detector = ChangeDetector(look(a=("/r", 1)))

    assert detector.changes(look(a=("/s", 1))) == told()
    assert detector.changes(look(a=("/s", 1))) == told((A,))


def test_nothing_is_told_of_models_whose_repository_cannot_be_read() -> None:
    detector = ChangeDetector(look(a=1, b=("/s", 1)))

    for _ in range(3):
        assert detector.changes(look(b=("/s", 1), unread=("/r",))) == told()
    assert detector.changes(look(b=("/s", 2), unread=("/r",))) == told()
    assert detector.changes(look(b=("/s", 2), unread=("/r",))) == told((B,))
    assert detector.changes(look(a=1, b=("/s", 2))) == told()


def test_the_like_of_a_model_in_another_repository_does_not_take_its_place_while_its_own_is_unread() -> None:
    detector = ChangeDetector(look(a=("/r", 1)))

    for _ in range(3):
        assert detector.changes(look(a=("/s", 7), unread=("/r",))) == told()
    assert detector.changes(look(a=("/r", 1))) == told()


def test_a_name_that_is_taken_twice_counts_when_two_looks_agree_and_so_does_its_end() -> None:
    detector = ChangeDetector(look(a=1))
    twice = look(refused={"a": "is not unique"})

    assert detector.changes(twice) == told()
    assert detector.changes(twice) == told(refused={A: "is not unique"})
    assert detector.changes(twice) == told()
    for _ in range(3):  # whichever of the two repositories cannot be read
        assert detector.changes(look(a=("/s", 1), unread=("/r",))) == told()
    assert detector.changes(look(a=("/s", 1))) == told()
    assert detector.changes(look(a=("/s", 1))) == told((A,))


def test_a_name_that_was_taken_twice_at_the_start_is_known() -> None:
    detector = ChangeDetector(look(refused={"a": "is not unique"}))

    assert detector.changes(look(refused={"a": "is not unique"})) == told()
    assert detector.changes(look(a=1)) == told()
    assert detector.changes(look(a=1)) == told((A,))


def test_what_shall_be_told_again_is_told_at_the_next_look() -> None:
    detector = ChangeDetector(look(a=1))
    detector.changes(look(a=2))
    detector.changes(look(a=2))

    detector.tell_again(A)

    assert detector.changes(look(a=2)) == told((A,))
    assert detector.changes(look(a=2)) == told()


def test_what_shall_be_told_again_may_be_gone_instead_or_be_in_a_repository_that_cannot_be_read() -> None:
    detector = ChangeDetector(look(a=1, b=1))
    for key in (A, B):
        detector.tell_again(key)

    assert detector.changes(look(unread=("/r",))) == told()
    assert detector.changes(look(a=1)) == told()
    assert detector.changes(look(a=1)) == told((A,), gone=(B,))
    detector.tell_again(B)  # what was tried for it has failed only now
    assert detector.changes(look(a=1)) == told()


def test_a_repository_that_cannot_be_read_is_news_once() -> None:
    errors = ReadErrors()

    assert list(errors.news(look())) == []
    assert list(errors.news(look(unread=("/r",)))) == [("/r", "no network")]
    assert list(errors.news(look(unread=("/r", "/s")))) == [("/s", "no network")]
    assert list(errors.news(look(unread=("/r", "/s")))) == []
    assert list(errors.news(look(unread=("/r",)))) == [("/s", "")]
    assert list(errors.news(look())) == [("/r", "")]
