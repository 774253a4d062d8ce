"""Azurite, Microsoft's emulator of Azure's storage: fetched from npm when first needed."""

from __future__ import annotations

import base64
import email.utils
import hashlib
import hmac
import re
import subprocess
import urllib.request

from ..fetched import CACHE, from_npm

PACKAGE = "azurite@3.37.0"

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""What every Azurite has, as its manual says."""

_VERSION = "2021-08-06"


class Azurite:
    """Its blob service, which keeps everything in its memory.

    Attributes:
        endpoint: the URL of its account.
    """

    def __init__(self) -> None:
        program = from_npm(CACHE / "azurite", PACKAGE) / "azurite/dist/src/blob/main.js"
        self._process = subprocess.Popen(
            ["node", str(program), "--blobHost", "127.0.0.1", "--blobPort", "0", "--skipApiVersionCheck",
             "--inMemoryPersistence"],
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if match := re.search(r"listens on http://127\.0\.0\.1:(\d+)", line):
                self.endpoint = f"http://127.0.0.1:{match[1]}/{ACCOUNT}"
                return
        raise RuntimeError(f"{PACKAGE} did not start")

    def make_container(self, name: str) -> None:
        """Make a container; obstore cannot, so the request is signed here."""
        date = email.utils.formatdate(usegmt=True)
        lines = ["PUT", *[""] * 11, f"x-ms-date:{date}", f"x-ms-version:{_VERSION}"]
        text = "\n".join([*lines, f"/{ACCOUNT}/{ACCOUNT}/{name}", "restype:container"])
        digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
        request = urllib.request.Request(
            f"{self.endpoint}/{name}?restype=container",
            method="PUT",
            headers={
                "x-ms-date": date,
                "x-ms-version": _VERSION,
                "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
                "Content-Length": "0",
            },
        )
        urllib.request.urlopen(request).close()

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
