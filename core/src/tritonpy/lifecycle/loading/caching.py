"""The response cache in front of a model version's scheduler, where the model and the server want it."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import xxhash

from tritonpy.cache.key import KeyMaker
from tritonpy.cache.response_cache import ResponseCache
from tritonpy.config.load import CONFIG_NAMES_DIRECTORY, FORMS
from tritonpy.errors import Internal, InvalidArg
from tritonpy.fingerprint import read_fingerprint
from tritonpy.handles import JsonObject, Model
from tritonpy.model.model import LoadedModel, RequestScheduler
from tritonpy.own_thread import on_own_thread
from tritonpy.scheduler.cached import CachedScheduler
from tritonpy.scheduler.scheduler import Scheduler
from tritonpy.stats import ModelStats

_log = logging.getLogger("tritonpy.repository")

_PIECE = 1024 * 1024
_DIGEST_SIZE = 16
_CONFIG_NAMES = {f"config{suffix}" for suffix in FORMS}
_WITHOUT_INFLUENCE = ("instance_group", "version_policy", "model_warmup", "response_cache")
"""Fields of a configuration that answers do not depend on: servers that differ in them share entries."""


async def generation_of(handle: Model, cache: ResponseCache | None) -> bytes:
    """A key that differs between loads whose answers may differ; see `KeyMaker`.

    Args:
        handle: describes the version, with its settled configuration.
        cache: the server's; None for none.

    Raises:
        Internal: a file of the model cannot be read.
    """
    if cache is not None and cache.handle.is_shared:
        try:
            return await on_own_thread(partial(content_digest, handle), "model digest")
        except OSError as exc:
            raise Internal(
                f"model '{handle.name}': a file cannot be read, which keys of a shared cache depend on: {exc}"
            ) from exc
    # Answers of an earlier load are never given: the model may depend on more than its files.
    return os.urandom(_DIGEST_SIZE)


def generation_of_ensemble(handle: Model, steps: Iterable[LoadedModel]) -> bytes:
    """The same for an ensemble, which is its configuration and its models."""
    digest = hashlib.blake2b(_influence(handle), digest_size=_DIGEST_SIZE)
    for step in steps:
        digest.update(step.generation)
    return digest.digest()


def with_cache(
    scheduler: RequestScheduler,
    handle: Model,
    stats: ModelStats,
    cache: ResponseCache | None,
    generation: bytes,
) -> RequestScheduler:
    """The scheduler behind the cache, or as it is.

    Args:
        scheduler: of a version that is being loaded.
        handle: describes the version, with its settled configuration.
        stats: of the version.
        cache: the server's; None for none.
        generation: of this load.
    """
    if not handle.config.get("response_cache", {}).get("enable", False):
        return scheduler
    stats.is_cached = True  # as in Triton also without a cache
    if cache is None:
        _log.warning(
            "model '%s' wants its responses cached, but the server has no cache: see --cache-config",
            handle.name,
        )
        return scheduler
    keys = KeyMaker(handle.name, str(handle.version), generation)
    order = scheduler.give_up_order() if isinstance(scheduler, Scheduler) else None
    return CachedScheduler(scheduler, cache, keys, stats, order=order)


def check_cached_steps(handle: Model, steps: Iterable[LoadedModel]) -> None:
    """Refuse to cache an ensemble whose models could not be cached either.

    Raises:
        InvalidArg: in Triton's words for such a model.
    """
    if not handle.config.get("response_cache", {}).get("enable", False):
        return
    cause = ""
    for step in steps:
        if step.is_decoupled:
            cause = "'decoupled' transaction policy"
        elif "sequence_batching" in step.config:
            cause = "sequence batching scheduler"
        if cause:
            raise InvalidArg(
                f"Response Cache does not currently support model {handle.name} with {cause} (of its step "
                f"'{step.name}'). Please disable the response cache."
            )
        check_cached_steps(handle, step.steps)


def content_digest(handle: Model) -> bytes:
    """A digest of everything that a version of a model is made of, the same on all servers; blocking.

    That is its configuration, but for what has no influence on answers, and the files of its directory, but
    for other versions, configurations, and what `read_fingerprint` leaves out; and the libraries of operators
    that plugins name for it.

    Raises:
        OSError: a file cannot be read.
    """
    digest = hashlib.blake2b(_influence(handle), digest_size=_DIGEST_SIZE)
    for path, _, byte_size in sorted(read_fingerprint(handle.directory)):
        file = handle.directory / path
        if byte_size >= 0 and _belongs(path, handle.version) and file.is_file():  # a pipe would never end
            digest.update(f"{path}\0{byte_size}\0".encode(errors="surrogateescape"))
            digest.update(_file_digest(file))
    for library in handle.plugin_op_libraries:
        digest.update(_file_digest(library.path))
    return digest.digest()


def _influence(handle: Model) -> bytes:
    """The part of a configuration that answers depend on."""
    config: JsonObject = {
        field: value for field, value in handle.config.items() if field not in _WITHOUT_INFLUENCE
    }
    return json.dumps(config, sort_keys=True).encode()


def _belongs(path: str, version: int) -> bool:
    first, _, rest = path.partition("/")
    if rest:
        return first != CONFIG_NAMES_DIRECTORY and not (first.isdecimal() and int(first) != version)
    return first not in _CONFIG_NAMES


def _file_digest(path: Path) -> bytes:
    # Quick, because a model may have gigabytes; an attacker gains nothing by two files of one digest.
    hasher = xxhash.xxh3_128()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            hasher.update(piece)
    return hasher.digest()
