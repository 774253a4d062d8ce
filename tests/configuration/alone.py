"""What ours makes of a model's configuration, without a server and without a worker."""

from __future__ import annotations

from pathlib import Path

from tritonpy.config.versions import select_versions
from tritonpy.errors import NotFound, TritonError
from tritonpy.lifecycle.loading.backend_files import find_backend_files
from tritonpy.lifecycle.loading.loader import LoaderSettings
from tritonpy.lifecycle.resolved_config import proposed_config, read_config, settled_config
from tritonpy.model.backend import BoundBackend
from tritonpy.plugin_manager import PluginManager
from tritonpy.repository.layout import read_model, require_versions

from .asking import Verdict


def judge(directory: Path, backends: PluginManager, *, is_strict: bool = False) -> Verdict:
    """Read, complete and check a model's configuration as a load does, its backend completing nothing."""
    model = read_model(directory)
    try:
        config = read_config(model, is_strict=is_strict)
    except TritonError as error:
        return _refused("poll", error, directory)
    try:
        versions = select_versions(config, model.versions)
        require_versions(model, versions)
    except TritonError as error:
        return Verdict(0, "", "load", error.message, "", [], None)
    try:
        settings = LoaderSettings()
        find_backend_files(config, Path(settings.backend_directory), backends.names())
        attributes = BoundBackend(config.backend, backends, {}).attributes
        shown = settled_config(proposed_config(config, attributes), attributes, directory)
    except (NotFound, TritonError) as error:
        return _refused("load", error, directory)
    return Verdict(0, "", "", "", "", [], shown)


def _refused(stage: str, error: TritonError, directory: Path) -> Verdict:
    reason = error.described().replace(str(directory.parent), "<models>")
    return Verdict(0, "", stage, reason, "", [], None)
