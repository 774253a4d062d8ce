"""From a root and what is around it to a store."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from tritonpy.plugin import InvalidArg, TritonError

from tritonpy_store_cloud.cache import ModelCache
from tritonpy_store_cloud.client import open_client, require_obstore
from tritonpy_store_cloud.credentials import Credentials, find_credentials
from tritonpy_store_cloud.location import Location, read_location
from tritonpy_store_cloud.refusal import read_refusal
from tritonpy_store_cloud.remote import RemoteStore

_log = logging.getLogger("tritonpy.repository")

_MOUNT_VARIABLES = {
    "s3": "TRITON_AWS_MOUNT_DIRECTORY",
    "gs": "TRITON_GCS_MOUNT_DIRECTORY",
    "as": "TRITON_AZURE_MOUNT_DIRECTORY",
}


def open_store(root: str, environ: Mapping[str, str] | None = None, *, timeout_s: float = 60) -> RemoteStore:
    """Open the store of a repository; asks nothing of it yet.

    Args:
        root: `s3://`, `gs://` or `as://` with what belongs behind it.
        environ: where credentials and other settings are; None for the environment of this process.
        timeout_s: how long one call to an object store may take, with its retries.

    Raises:
        InvalidArg: the root or its credentials are not of the form they must have; shows no secret.
        Unsupported: obstore cannot be imported.
    """
    environ = os.environ if environ is None else environ
    location = read_location(root)
    require_obstore(root)
    credentials = find_credentials(location, environ)
    variable = _MOUNT_VARIABLES[location.kind]
    return RemoteStore(
        location,
        partial(
            open_client, location, credentials, _renewed(location, credentials, environ), environ, timeout_s
        ),
        partial(
            read_refusal,
            location=location,
            source=credentials.source,
            secrets=credentials.secrets,
            timeout_s=timeout_s,
        ),
        ModelCache(_mount_directory(variable, environ)),
        mount_variable=variable,
    )


def _renewed(
    location: Location, credentials: Credentials, environ: Mapping[str, str]
) -> Callable[[], Credentials]:
    latest = credentials

    def renew() -> Credentials:
        nonlocal latest
        try:
            found = find_credentials(location, environ)
        except TritonError as error:
            _log.warning("credentials cannot be read again, the last ones are used: %s", error)
            return latest
        # A store cannot go over to another kind of credentials while it is open.
        if bool(found.secret) == bool(latest.secret) and bool(found.sas_token) == bool(latest.sas_token):
            latest = found
        return latest

    return renew


def _mount_directory(variable: str, environ: Mapping[str, str]) -> Path:
    given = environ.get(variable, "")
    directory = Path(given or tempfile.gettempdir())
    if not directory.is_dir() or not os.access(directory, os.W_OK):
        raise InvalidArg(
            f"models cannot be copied to '{directory}': expected an existing directory that may be written "
            f"to ({variable})"
        )
    return directory.absolute()
