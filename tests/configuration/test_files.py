"""Which file configures a model of a server, and files that cannot."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy.errors import InvalidArg, TritonError
from tritonpy.server import Server

ServerFactory = Callable[..., Server]
JsonValue = Any  # Any: JSON

FORMS = {
    "config.pbtxt": 'backend: "identity" metric_tags { key: "from" value: "@" }',
    "config.json": '{"backend": "identity", "metric_tags": {"from": "@"}}',
    "config.yaml": "backend: identity\nmetric_tags: {from: '@'}\n",
    "config.yml": "backend: identity\nmetric_tags: {from: '@'}\n",
}
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The directory of a model that the identity backend executes, without a configuration."""
    (tmp_path / "models/m/1").mkdir(parents=True)
    return tmp_path / "models/m"


def call(server: Server, path: str, body: JsonValue = None) -> tuple[int, JsonValue]:
    url = f"http://127.0.0.1:{server.http_port}/v2/{path}"
    data = None if body is None else json.dumps(body).encode()
    try:
        with _OPENER.open(urllib.request.Request(url, data), timeout=30) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def load(server: Server, **parameters: str) -> tuple[int, JsonValue]:
    return call(server, "repository/models/m/load", {"parameters": parameters})


def origin(server: Server) -> str:
    """What the configuration that is served says of itself."""
    tags: dict[str, str] = call(server, "models/m/config")[1]["metric_tags"]
    return tags["from"]


@pytest.mark.parametrize("name", FORMS)
def test_a_model_is_configured_in_any_form(serve: ServerFactory, model: Path, name: str) -> None:
    (model / name).write_text(FORMS[name].replace("@", name))

    server = serve(model.parent)

    assert origin(server) == name


def test_two_configurations_side_by_side_are_refused_with_both_names(
    serve: ServerFactory, model: Path
) -> None:
    for name in ("config.pbtxt", "config.yaml"):
        (model / name).write_text(FORMS[name])
    server = serve(model.parent, model_control_mode="explicit")

    status, answer = load(server)

    assert status == 500
    assert answer["error"].startswith("failed to load 'm', failed to poll from model repository: ")
    assert f"{model} has config.pbtxt and config.yaml: expected one of them" in answer["error"]
    (model / "config.yaml").unlink()
    assert load(server)[0] == 200


def _link_to_nowhere(path: Path) -> None:
    path.symlink_to("nowhere")


def _link_to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [_link_to_nowhere, _link_to_device, os.mkfifo, os.mkdir])
@pytest.mark.parametrize("ending", ["pbtxt", "json"])
def test_what_is_called_like_a_configuration_and_cannot_be_read_fails_the_load(
    serve: ServerFactory, model: Path, make: Callable[[Path], None], ending: str
) -> None:
    (model / "config.pbtxt").write_text(FORMS["config.pbtxt"])
    server = serve(model.parent, model_control_mode="explicit")
    load(server)
    (model / "config.pbtxt").unlink()
    make(model / f"config.{ending}")

    status, answer = load(server)

    assert status == 500
    assert f"failed to open text file for read {model}/config.{ending}: " in answer["error"]
    assert origin(server) == "@"


def test_a_load_tells_that_the_own_configuration_of_a_model_cannot_be_read(
    serve: ServerFactory, model: Path
) -> None:
    (model / "config.pbtxt").write_text("nonsense {")
    server = serve(model.parent, model_control_mode="explicit")
    assert load(server, config=FORMS["config.json"].replace("@", "sent"))[0] == 200

    status, answer = load(server)

    assert (status, origin(server)) == (500, "sent")
    assert answer["error"].startswith("failed to load 'm', failed to poll from model repository: ")


def test_the_metadata_of_one_version_names_that_version(serve: ServerFactory, model: Path) -> None:
    (model / "10").mkdir()
    (model / "config.pbtxt").write_text(FORMS["config.pbtxt"] + "version_policy { all {} }")
    server = serve(model.parent)

    named = [
        call(server, f"models/m{version}")[1]["versions"] for version in ("", "/versions/1", "/versions/10")
    ]

    assert named == [["1", "10"], ["1"], ["10"]]


@pytest.mark.parametrize(("chosen", "expected"), [("", "usual"), ("gpu", "named"), ("cpu", "usual")])
@pytest.mark.parametrize("ending", ["pbtxt", "json", "yaml"])
def test_a_configuration_is_chosen_by_name(
    serve: ServerFactory, model: Path, chosen: str, expected: str, ending: str
) -> None:
    (model / "configs").mkdir()
    (model / "config.pbtxt").write_text(FORMS["config.pbtxt"].replace("@", "usual"))
    (model / f"configs/gpu.{ending}").write_text(FORMS[f"config.{ending}"].replace("@", "named"))

    server = serve(model.parent, model_config_name=chosen)

    assert origin(server) == expected


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", ".hidden", "a/b", "x\0"])
def test_a_name_that_could_lead_out_of_the_model_is_refused(
    serve: ServerFactory, model: Path, name: str
) -> None:
    (model / "outside.pbtxt").write_text(FORMS["config.pbtxt"])

    with pytest.raises(InvalidArg, match=r"is no name of a configuration: .*\(--model-config-name\)"):
        serve(model.parent, model_config_name=name)


def test_ten_megabytes_of_configuration_are_refused_at_once(serve: ServerFactory, model: Path) -> None:
    server = serve(model.parent, model_control_mode="explicit")
    for name in ("config.pbtxt", "config.json", "config.yaml"):
        path = model / name
        path.write_bytes(FORMS[name].encode() + b" " * 10_000_000)
        status, answer = load(server)
        path.unlink()

        assert status == 500
        assert f"{name}: it has more than 1048576 bytes" in answer["error"]
    status, answer = load(server, config='{"backend": "identity"' + " " * 10_000_000 + "}")

    assert status == 500
    assert "has 10000023 bytes, expected at most 1048576 (--max-model-config-bytes)" in answer["error"]


def test_the_limit_can_be_raised(serve: ServerFactory, model: Path) -> None:
    (model / "config.json").write_text(FORMS["config.json"] + " " * 3_000_000)

    server = serve(model.parent, max_model_config_byte_size=4_000_000)

    assert origin(server) == "@"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "config.pbtxt",
            'backend: "identity"\nbatch: 3',
            "failed to read text proto from @: line 2, column 1: ",
        ),
        (
            "config.json",
            '{"backend": "identity",\n "batch": 3}',
            "failed to read JSON from @: line 2, column 2: ",
        ),
        ("config.yaml", "backend: identity\nbatch: 3", "failed to read YAML from @: line 2, column 1: "),
    ],
)
def test_whoever_loads_a_model_is_told_file_line_and_column(
    serve: ServerFactory, model: Path, name: str, text: str, said: str
) -> None:
    (model / name).write_text(text)
    server = serve(model.parent, model_control_mode="explicit")

    _, answer = load(server)

    assert said.replace("@", str(model / name)) in answer["error"]


def test_without_auto_complete_a_model_needs_a_configuration(serve: ServerFactory, model: Path) -> None:
    with pytest.raises(TritonError, match="failed to load all models"):
        serve(model.parent, auto_complete_config=False)
    server = serve(model.parent, auto_complete_config=False, exit_on_error=False)

    [entry] = call(server, "repository/index", {})[1]

    assert "version" not in entry
    status, _ = call(server, "models/m/ready")
    assert status == 400
