"""Settings and parameters that a plugin has to refuse, with words that help the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import pytest
from tritonpy.errors import ErrorCode, TritonError

Wrong = TypeVar("Wrong", bound=str | Mapping[str, str])


def check_refusals(act: Callable[[Wrong], object], wrong: Sequence[Wrong], what: str) -> None:
    """Check that each of these is refused by an error for the user that names it.

    Args:
        act: is given each one, and has to raise.
        wrong: settings or parameters, or texts such as roots.
        what: the class argument that they come from; without any the test is skipped.

    Raises:
        AssertionError: one is taken, or refused as the plugin's own failure, or without its name.
    """
    if not wrong:
        pytest.skip(f"the suite names no {what}")
    for each in wrong:
        shown = each if isinstance(each, str) else dict(each)
        error = _error_of(act, each)
        assert error is not None, f"took {shown!r}"
        assert error.code is not ErrorCode.INTERNAL, f"refused {shown!r} by {error}"
        words = [each] if isinstance(each, str) else [word for item in each.items() for word in item]
        assert not any(words) or any(word in str(error) for word in words if word), (
            f"refused {shown!r} with a text that names none of them: {error}"
        )


def _error_of(act: Callable[[Wrong], object], wrong: Wrong) -> TritonError | None:
    try:
        act(wrong)
    except TritonError as error:
        return error
    return None
