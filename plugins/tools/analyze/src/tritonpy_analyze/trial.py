"""What a trial needs: somebody who sets a configuration up, and somebody who measures it under load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from tritonpy.errors import Unavailable

from tritonpy_analyze.measurement import Window
from tritonpy_analyze.space import Choice, Value

Progress = Callable[[str], None]
"""Is told what goes on, in the place of what it was told before."""


class NothingAnswered(Unavailable):
    """Nothing was answered, nor failed, in the time of a window."""


class Target(Protocol):
    """Models that are ready in a configuration."""

    def measure(self, load: Mapping[str, Value], seconds: float) -> Window:
        """Put load on the models for so long.

        Args:
            load: the values of `LOAD_SETTINGS` that the point has.
            seconds: the length of the window.

        Raises:
            NothingAnswered: the window was too short for an answer.
            TritonError: nothing could be asked.
        """
        ...


class Launcher(Protocol):
    """Makes models ready in a configuration, each time apart from the time before."""

    def open(self, choice: Choice) -> AbstractContextManager[Target]:
        """Make them ready; what it has set up is taken down at the end.

        Args:
            choice: values by `MODEL.SETTING`, without those of the load.

        Raises:
            TritonError: the configuration cannot be served; says why.
        """
        ...
