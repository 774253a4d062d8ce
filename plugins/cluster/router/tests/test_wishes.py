"""Several routers with one desired state: a file that is compared before it is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tritonpy.errors import TritonError, Unavailable
from tritonpy_router.membership import FileMembership
from tritonpy_router.wishes import Wanted, WishFile
from tritonpy_sdk.testing import until

from .conftest import ECHO, asked, place_of

Make = Callable[..., Any]


def test_what_one_has_kept_another_reads(tmp_path: Path) -> None:
    one, other = WishFile(tmp_path / "state"), WishFile(tmp_path / "state")
    assert other.read() == {}

    one.keep("m", Wanted("load", b"body", 5))
    one.keep("n", Wanted("unload", b"", 6))

    assert other.read() == {"m": Wanted("load", b"body", 5), "n": Wanted("unload", b"", 6)}
    assert json.loads((tmp_path / "state").read_text())["revision"] == 6


def test_of_two_wishes_the_later_stays_whoever_writes_last(tmp_path: Path) -> None:
    file = WishFile(tmp_path / "state")
    file.keep("m", Wanted("unload", b"", 8))

    found = WishFile(tmp_path / "state").keep("m", Wanted("load", b"late", 7))

    assert found == file.read() == {"m": Wanted("unload", b"", 8)}


def test_bodies_that_nobody_wants_any_more_are_deleted(tmp_path: Path) -> None:
    file = WishFile(tmp_path / "state")
    for revision in range(3):
        file.keep("m", Wanted("load", b"body %d" % revision, revision + 1))
    file.keep("n", Wanted("load", b"body 2", 9))

    assert len(list((tmp_path / "state.bodies").iterdir())) == 1
    assert file.read()["n"].body == b"body 2"


def test_many_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    def keep(number: int) -> None:
        WishFile(tmp_path / "state").keep(f"m{number}", Wanted("load", b"%d" % number, number + 1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(keep, range(24)))

    found = WishFile(tmp_path / "state").read()
    assert found == {f"m{number}": Wanted("load", b"%d" % number, number + 1) for number in range(24)}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"models":{"m":{"action":"fly","revision":1,"body":""}}}', "\xff"]
)
def test_a_file_of_something_else_is_not_overwritten(text: str, tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(text.encode("latin-1"))

    with pytest.raises(Unavailable, match=r"--state-file .*state' is not understood"):
        WishFile(tmp_path / "state").keep("m", Wanted("load", b"", 1))

    assert (tmp_path / "state").read_bytes() == text.encode("latin-1")


def test_a_body_that_is_gone_is_named(tmp_path: Path) -> None:
    WishFile(tmp_path / "state").keep("m", Wanted("load", b"body", 1))
    for body in (tmp_path / "state.bodies").iterdir():
        body.unlink()

    with pytest.raises(Unavailable, match="names bodies of requests that are not in"):
        WishFile(tmp_path / "state").read()


def test_a_lock_that_is_not_given_up_is_an_error(tmp_path: Path) -> None:
    holding = WishFile(tmp_path / "state")
    with holding._locked(), pytest.raises(TritonError, match="has been locked by others for 0 s"):
        WishFile(tmp_path / "state", lock_s=0).keep("m", Wanted("load", b"", 1))


def load_body(size: int) -> bytes:
    return json.dumps({"parameters": {"config": json.dumps({**ECHO, "max_batch_size": size})}}).encode()


def max_batch_size(server: Any) -> Any:
    status, _, body = asked(f"127.0.0.1:{server.http_port}", "/v2/models/echo/config")
    return json.loads(body)["max_batch_size"] if status == 200 else None


def test_two_routers_agree_and_one_that_is_started_anew_brings_joiners_to_it(
    make_server: Make, make_router: Make, tmp_path: Path
) -> None:
    state, members = tmp_path / "state", tmp_path / "members"
    first = make_server("echo")
    one = make_router(first, state_file=state)
    other = make_router(first, state_file=state)

    loads = [asked(each.http, "/v2/repository/models/echo/load", load_body(size)) for each, size in
             ((one, 3), (other, 5))]  # fmt: skip
    until(lambda: one.call(lambda: one.router.control.revision == other.router.control.revision))
    one.stop()
    other.stop()
    joining = make_server("seq")
    place = place_of("new", joining)
    members.write_text(f"new=127.0.0.1:{place.http_port}:{place.grpc_port}")
    make_router(membership=FileMembership(members, 0.02, print), ready=1, state_file=state)

    assert [status for status, *_ in loads] == [200, 200]
    assert (max_batch_size(first), max_batch_size(joining)) == (5, 5)


def test_what_cannot_be_shared_is_told_though_the_replicas_have_done_it(
    make_server: Make, make_router: Make, tmp_path: Path
) -> None:
    server = make_server("echo")
    router = make_router(server, state_file=tmp_path / "state")
    (tmp_path / "state.lock").mkdir()

    status, _, answer = asked(router.http, "/v2/repository/models/echo/load", load_body(3))

    assert status == 503
    assert b"the replicas have done it (load of model 'echo'), but other routers will not know" in answer
    assert max_batch_size(server) == 3


def test_a_router_does_not_start_with_a_file_that_it_does_not_understand(
    make_router: Make, tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("something else")

    with pytest.raises(Unavailable, match="is not understood"):
        make_router(state_file=tmp_path / "state", ready=0)


def test_a_later_wish_that_was_met_sooner_is_not_undone() -> None:
    from tritonpy_router.control import Control

    control = Control(None, None, 1.0)  # type: ignore[arg-type]
    control._keep("m", Wanted("unload", b"", 9))
    control._keep("m", Wanted("load", b"", 8))
    control._keep("n", Wanted("load", b"", 7))

    assert control.wanted == {"m": Wanted("unload", b"", 9), "n": Wanted("load", b"", 7)}
    assert (control.revision, control._change_count) == (9, 2)
