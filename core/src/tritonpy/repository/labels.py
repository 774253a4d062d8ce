"""Label files: what the elements of a model's outputs stand for, one line for each index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tritonpy.config.named_files import label_path, read_named_file
from tritonpy.handles import JsonObject

Labels = Mapping[str, Sequence[bytes]]
"""By output; only those with a label file."""


def read_labels(config: JsonObject, directory: Path) -> Labels:
    """Read the label files that a configuration names.

    Args:
        config: of the model.
        directory: of the model; names of label files are relative to it.

    Raises:
        Internal: one cannot be read; the code is Triton's.
    """
    labels = {}
    for output in config.get("output", ()):
        if output.get("label_filename"):
            lines = read_named_file(label_path(directory, output["label_filename"])).split(b"\n")
            if not lines[-1]:  # the last line has its end, too
                lines.pop()
            labels[output["name"]] = lines
    return labels
