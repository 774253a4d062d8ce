"""Parameters of the agent in a configuration: `MD5:<path>` and `SHA256:<path>` with their checksums."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tritonpy.plugin import InvalidArg

EVERY_FILE = "EVERY_FILE_LISTED"
"""The parameter that refuses files without a checksum."""

ALGORITHMS = {"MD5": 32, "SHA256": 64}
"""How many hexadecimal digits a checksum has."""

_SPELLINGS = {"MD5": "MD5", "SHA256": "SHA256", "SHA-256": "SHA256"}


@dataclass(frozen=True, slots=True)
class Checksum:
    """The checksum that a file has to have.

    Attributes:
        algorithm: one of `ALGORITHMS`.
        path: of the file, relative to the model's directory, without `.` and `..`.
        digest: hexadecimal, in lower case.
    """

    algorithm: str
    path: str
    digest: str


@dataclass(frozen=True, slots=True)
class Parameters:
    """All parameters of one model.

    Attributes:
        checksums: sorted by path.
        is_every_file_listed: files without a checksum are refused.
    """

    checksums: Sequence[Checksum]
    is_every_file_listed: bool


def read_parameters(model_name: str, parameters: Mapping[str, str]) -> Parameters:
    """Read the parameters of a model.

    Raises:
        InvalidArg: one is not understood, or there is no checksum among them; says what was expected.
    """
    checksums = [_read(model_name, key, value) for key, value in parameters.items() if key != EVERY_FILE]
    if not checksums:
        raise InvalidArg(
            f"model '{model_name}': repository agent 'checksum' has nothing to check; expected a parameter "
            f'such as {{ key: "SHA256:1/model.onnx" value: "<64 hexadecimal digits>" }}'
        )
    every_file = parameters.get(EVERY_FILE, "false").lower()
    if every_file not in ("true", "false"):
        raise _misfit(model_name, EVERY_FILE, f"got '{parameters[EVERY_FILE]}', expected 'true' or 'false'")
    return Parameters(sorted(checksums, key=lambda checksum: checksum.path), every_file == "true")


def _read(model_name: str, key: str, value: str) -> Checksum:
    spelling, colon, path = key.partition(":")
    algorithm = _SPELLINGS.get(spelling.upper())
    if algorithm is None or not colon:
        raise _misfit(
            model_name,
            key,
            f"expected 'MD5:<path>', 'SHA256:<path>' or '{EVERY_FILE}', with a path relative to the model's "
            f"directory",
        )
    digits = ALGORITHMS[algorithm]
    if not re.fullmatch(f"[0-9A-Fa-f]{{{digits}}}", value):
        raise _misfit(
            model_name, key, f"got '{value}', expected the {digits} hexadecimal digits of its checksum"
        )
    return Checksum(algorithm, _inside(model_name, key, path), value.lower())


def _inside(model_name: str, key: str, path: str) -> str:
    normalized = posixpath.normpath(path)
    if not path or normalized == "." or "\0" in path:
        raise _misfit(model_name, key, "expected the path of a file after the colon")
    if normalized.startswith(("/", "../")) or normalized == "..":
        raise _misfit(model_name, key, "the path leads out of the model's directory")
    return normalized


def _misfit(model_name: str, key: str, text: str) -> InvalidArg:
    return InvalidArg(f"model '{model_name}': parameter '{key}' of repository agent 'checksum': {text}")
