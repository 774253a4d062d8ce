"""The version policy: the version directories of a model that are served."""

from __future__ import annotations

from collections.abc import Iterable

from tritonpy.protos import ModelConfig


def select_versions(config: ModelConfig, available: Iterable[int]) -> list[int]:
    """The versions that the policy of `config` picks out of the available ones, ascending.

    A policy that is missing altogether is *latest 1*; one that is there but chooses nothing means all, as in
    Triton. Versions that `specific` names and that do not exist are left out: see `missing_versions`.
    """
    versions = sorted(set(available))
    if not config.HasField("version_policy"):
        return versions[-1:]
    policy = config.version_policy
    match policy.WhichOneof("policy_choice"):
        case "latest":
            count = policy.latest.num_versions
            return versions[-count:] if count else []
        case "specific":
            wanted = set(policy.specific.versions)
            return [version for version in versions if version in wanted]
        case _:
            return versions


def missing_versions(config: ModelConfig, available: Iterable[int]) -> list[int]:
    """The versions that a `specific` policy names although they do not exist, ascending; for the log."""
    return sorted(set(config.version_policy.specific.versions) - set(available))
