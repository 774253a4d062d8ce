"""Read a configuration from its file."""

from __future__ import annotations

from pathlib import Path

from google.protobuf import text_format

from tritonpy.config.schema import ModelConfig
from tritonpy.errors import InvalidArg
from tritonpy.protos import POOL

_LARGEST_FILE = 8 * 1024 * 1024


def load_config(path: Path) -> ModelConfig:
    """Read a `config.pbtxt`.

    Raises:
        InvalidArg: it cannot be read or does not fit; names the file, the line and the column.
    """
    try:
        size = path.stat().st_size
        if size > _LARGEST_FILE:
            raise InvalidArg(f"failed to read text proto from {path}: {size} bytes are over {_LARGEST_FILE}")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidArg(f"failed to read text proto from {path}: {exc}") from exc
    return parse_config(text, str(path))


def parse_config(text: str, source: str) -> ModelConfig:
    """Read a configuration in protobuf text format; `source` is named in errors.

    Raises:
        InvalidArg: with line and column.
    """
    config = ModelConfig()
    try:
        text_format.Parse(text, config, descriptor_pool=POOL)
    except text_format.ParseError as exc:
        line, column = exc.GetLine(), exc.GetColumn()
        where = f", line {line}, column {column}" if line is not None else ""
        reason = str(exc).split(" : ", 1)[-1]
        raise InvalidArg(f"failed to read text proto from {source}{where}: {reason}") from exc
    return config
