from __future__ import annotations

import hashlib

from tritonpy_sdk.testing import RepoAgentConformance

WEIGHTS = hashlib.sha256(bytes(range(256))).hexdigest()


class TestChecksum(
    RepoAgentConformance,
    agent="checksum",
    parameters={"SHA256:1/weights": WEIGHTS, "EVERY_FILE_LISTED": "true"},
    wrong_parameters=[
        {},
        {"SHA256:1/weights": "many"},
        {"SHA256:1/weights": "0" * 64},
        {"SHA512:1/weights": WEIGHTS},
        {"SHA256:../other/1/weights": WEIGHTS},
    ],
): ...
