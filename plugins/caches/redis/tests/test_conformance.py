from __future__ import annotations

from collections.abc import Iterator

import pytest
from tritonpy_sdk.testing import CacheConformance

from .resp_server import RespServer

NOWHERE = {"host": "127.0.0.1", "port": "1"}


class TestRedis(
    CacheConformance,
    cache="redis",
    wrong_settings=[
        {},
        NOWHERE | {"port": "many"},
        NOWHERE | {"db": "-1"},
        NOWHERE | {"ttl": "0"},
        NOWHERE | {"hosts": "a"},
        NOWHERE,
    ],
    lost_settings=NOWHERE | {"required": "false"},
):
    @pytest.fixture(autouse=True)
    def served(self) -> Iterator[None]:
        server = RespServer()
        self.settings = {"host": "127.0.0.1", "port": str(server.port)}
        yield
        server.stop()
