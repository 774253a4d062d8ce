"""The start of a server whose store takes its time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
from tritonpy.options import ServerOptions
from tritonpy.plugin import InvalidArg, Store, StoreOptions, hookimpl
from tritonpy.repository.stores.local import LocalStore
from tritonpy.server import Server


def test_a_store_is_opened_beside_the_loop(tmp_path: Path) -> None:
    places = []

    @hookimpl
    def store_open(root: str, options: StoreOptions) -> Store:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        places.append(root)
        return LocalStore(str(tmp_path))

    options = ServerOptions(("xyz://place",), allow_http=False, allow_grpc=False, allow_metrics=False)
    with Server(options, plugins={"stores": {"xyz": SimpleNamespace(store_open=store_open)}}, discover=False):
        assert places == ["xyz://place"]


def test_a_store_that_opened_is_closed_when_another_one_does_not_open(tmp_path: Path) -> None:
    closed = []

    class Closing(LocalStore):
        def close(self) -> None:
            closed.append(self.root)

    @hookimpl
    def store_open(root: str, options: StoreOptions) -> Store:
        if root == "xyz://b":
            raise InvalidArg("no place is called b")
        return Closing(str(tmp_path))

    options = ServerOptions(("xyz://a", "xyz://b"), allow_http=False, allow_grpc=False, allow_metrics=False)
    server = Server(
        options, plugins={"stores": {"xyz": SimpleNamespace(store_open=store_open)}}, discover=False
    )
    with pytest.raises(InvalidArg, match="no place is called b"):
        server.start()
    assert closed == [str(tmp_path)]
