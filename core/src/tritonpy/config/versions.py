"""Which of a model's versions are served."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tritonpy.config.schema import ModelConfig

_log = logging.getLogger("tritonpy.config")


def select_versions(config: ModelConfig, available: Sequence[int]) -> list[int]:
    """The versions that the configuration's policy chooses from those that have a directory, ascending."""
    policy = config.version_policy
    choice = policy.WhichOneof("policy_choice")
    ordered = sorted(available)
    if choice == "all":
        return ordered
    if choice == "specific":
        for missing in sorted(set(policy.specific.versions) - set(ordered)):
            _log.warning("version %d of model '%s' is specified, but not found", missing, config.name)
        return [version for version in ordered if version in policy.specific.versions]
    return ordered[-max(1, policy.latest.num_versions) :]
