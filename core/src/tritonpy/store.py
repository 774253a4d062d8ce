"""A place that holds models, as the server sees it; plugins of the kind `stores` bring further ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tritonpy.fingerprint import Fingerprint


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Settings that a store is opened with.

    Attributes:
        environ: variables of the server's environment, as they are when they are read: credentials, or the
            files they lie in, and directories for copies.
        timeout_s: how long one call may take, with its retries (`--repository-timeout-secs`).
    """

    environ: Mapping[str, str]
    timeout_s: float = 60


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The files of a model on a local disk.

    Attributes:
        directory: the model's directory, called like the model.
        fingerprint: the files as they lie there; None for a store whose files stay where they are: they are
            taken to be as `look` has seen them before.
        is_temporary: the directory was made for this load, in a directory of its own. The server removes both
            when the model is gone.
    """

    directory: Path
    fingerprint: Fingerprint | None = None
    is_temporary: bool = False


class Store(Protocol):
    """One repository.

    All calls but `place_of` and `stop` may block: they are made on threads, perhaps several at once.

    Attributes:
        root: the repository as it was named on the command line; holds no secret.
    """

    root: str

    def model_names(self) -> list[str]:
        """The directories of the repository, sorted, without those that begin with a dot.

        Raises:
            Internal, InvalidArg, Unavailable: the repository does not exist, is no directory, or cannot be
                reached; names it, and says what would mend it.
        """

    def place_of(self, name: str) -> str:
        """A text that is the same for two models exactly when they are the same files: a real path, a URL."""

    def look(self, name: str) -> Fingerprint | None:
        """The files of a model as they are now; None when there is no such model.

        Raises:
            Internal, Unavailable: the repository cannot be read.
        """

    def fetch(self, name: str) -> LocalFiles:
        """Bring the files of a model to a local disk, complete and as they lie in the repository.

        What an earlier fetch gave is not changed: a model may serve from it.

        Raises:
            NotFound: there is no such model.
            Internal, Unavailable: the files cannot be read, or change all the time.
        """

    def stop(self) -> None:
        """Give up fetches that are under way and begin no more; from any thread, and does not wait."""

    def close(self) -> None:
        """Leave nothing on the disk; no model is loaded any more, and nothing is asked afterwards."""
