"""The response cache `xyz`: a directory with so many files, each for the last entry that fell to it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tritonpy.plugin import Cache, InvalidArg, hookimpl, parse_whole

DIGEST_SIZE = hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True)
class Files:
    """The directory. A file holds the digest of a key, and behind it that key's entry.

    Attributes:
        directory: where the files are.
        count: how many there are at most; a key whose file another key has takes it over.
    """

    directory: Path
    count: int

    def read(self, key: str) -> bytes | None:
        digest, path = self._place(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        return content[DIGEST_SIZE:] if content.startswith(digest) else None

    def write(self, key: str, entry: bytes) -> None:
        digest, path = self._place(key)
        descriptor, part = tempfile.mkstemp(dir=self.directory, prefix=".")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.writelines((digest, entry))
            os.replace(part, path)  # who reads at this moment sees the old entry or the new one, and no half
        except BaseException:
            os.unlink(part)
            raise

    def _place(self, key: str) -> tuple[bytes, Path]:
        digest = hashlib.sha256(key.encode()).digest()
        return digest, self.directory / str(int.from_bytes(digest) % self.count)


@hookimpl
def cache_initialize(cache: Cache) -> None:
    if "path" not in cache.settings or cache.settings.keys() - {"path", "files"}:
        raise InvalidArg(
            f"cache '{cache.name}': expected --cache-config {cache.name},path=DIRECTORY and perhaps "
            f"--cache-config {cache.name},files=NUMBER, got {dict(cache.settings)}"
        )
    count = parse_whole(cache.settings.get("files", "10000"), f"--cache-config {cache.name},files", least=1)
    directory = Path(cache.settings["path"])
    directory.mkdir(parents=True, exist_ok=True)
    cache.state = Files(directory, count)
    cache.is_shared = True  # entries outlive the server


# On threads: the server's loop, on which hooks are called, must not wait for a disk.
@hookimpl
async def cache_lookup(cache: Cache, key: str) -> bytes | None:
    entry: bytes | None = await asyncio.to_thread(cache.state.read, key)
    return entry


@hookimpl
async def cache_insert(cache: Cache, key: str, entry: bytes) -> None:
    await asyncio.to_thread(cache.state.write, key, entry)
