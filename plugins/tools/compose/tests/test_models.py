"""What models need is told by their configurations and files, with the reason."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from tritonpy.errors import InvalidArg, NotFound
from tritonpy_compose.catalog import Catalog
from tritonpy_compose.models import Need, Needs, find_needs
from tritonpy_compose.plan import make_plan

CATALOG = Catalog()


def strategy(value: str) -> str:
    return (
        f'backend: "identity" max_batch_size: 2 dynamic_batching {{}} parameters {{ '
        f'key: "TRITON_BATCH_STRATEGY_PATH" value {{ string_value: "{value}" }} }}'
    )


def environment(path: str) -> str:
    return f'backend: "python" parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{path}" }} }}'


def read(tmp_path: Path, models: Mapping[str, Mapping[str, str]]) -> Needs:
    """Write models, each as the texts of its files, and read them."""
    for model, files in models.items():
        for name, text in files.items():
            path = tmp_path / "models" / model / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return find_needs([tmp_path / "models"], tmp_path / "backends", CATALOG)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"1/model.onnx": ""}, [("backends", "onnxruntime", "1/model.onnx")]),
        ({"1/model.pt2": ""}, [("backends", "pytorch", "1/model.pt2")]),
        ({"1/model.tflite": ""}, [("backends", "litert", "1/model.tflite")]),
        ({"1/model.py": ""}, [("backends", "python", "1/model.py")]),
        (
            {"config.pbtxt": 'platform: "onnxruntime_onnx"', "1/net.onnx": ""},
            [("backends", "onnxruntime", 'platform: "onnxruntime_onnx"')],
        ),
        ({"config.pbtxt": 'backend: "square"'}, [("backends", "square", 'backend: "square"')]),
        (
            {"config.pbtxt": 'backend: "acme"', "1/libtriton_acme.so": ""},
            [("loaders", "abi", 'backend: "acme" is libtriton_acme.so')],
        ),
        (
            {"config.pbtxt": strategy("volume")},
            [
                ("backends", "identity", 'backend: "identity"'),
                ("batching", "volume", "TRITON_BATCH_STRATEGY_PATH volume"),
            ],
        ),
        (
            {"config.pbtxt": strategy("./tokens.so")},
            [
                ("backends", "identity", 'backend: "identity"'),
                ("loaders", "abi", "TRITON_BATCH_STRATEGY_PATH ./tokens.so"),
            ],
        ),
        (
            {"config.pbtxt": strategy("./tokens.py")},
            [("backends", "identity", 'backend: "identity"')],
        ),
        (
            {"config.pbtxt": 'backend: "identity"', "1/batchstrategy.so": ""},
            [("backends", "identity", 'backend: "identity"'), ("loaders", "abi", "batchstrategy.so")],
        ),
        (
            {"config.pbtxt": 'backend: "identity" model_repository_agents { agents { name: "checksum" } }'},
            [
                ("backends", "identity", 'backend: "identity"'),
                ("repo_agents", "checksum", "model_repository_agents"),
            ],
        ),
        (
            {"config.pbtxt": 'backend: "identity" response_cache { enable: true }'},
            [("backends", "identity", 'backend: "identity"'), ("caches", "", "response_cache")],
        ),
    ],
)
def test_a_model_needs_what_its_files_say(
    tmp_path: Path, files: Mapping[str, str], expected: list[tuple[str, str, str]]
) -> None:
    (tmp_path / "models/m/1").mkdir(parents=True)

    needs = read(tmp_path, {"m": files})

    assert needs.plugins == [Need(kind, name, f"model 'm': {reason}") for kind, name, reason in expected]
    assert not needs.notes


def test_a_backend_of_python_in_the_backend_directory_needs_the_python_backend(tmp_path: Path) -> None:
    (tmp_path / "backends/greeter").mkdir(parents=True)
    (tmp_path / "backends/greeter/model.py").touch()

    needs = read(tmp_path, {"m": {"config.pbtxt": 'backend: "greeter"', "1/settings.json": ""}})

    reason = "model 'm': backend: \"greeter\" is greeter/model.py"
    assert needs.plugins == [Need("backends", "python", reason)]


def test_an_ensemble_needs_its_steps_only_and_a_missing_one_is_noted(tmp_path: Path) -> None:
    tensors = (
        'input { name: "X" data_type: TYPE_FP32 dims: 1 } output { name: "Y" data_type: TYPE_FP32 dims: 1 }'
    )
    step = 'step { model_name: "gone" model_version: -1 input_map { key: "X" value: "X" } '
    step += 'output_map { key: "Y" value: "Y" } }'
    config = f'platform: "ensemble" {tensors} ensemble_scheduling {{ {step} }}'
    (tmp_path / "models/all/1").mkdir(parents=True)

    needs = read(tmp_path, {"all": {"config.pbtxt": config}})

    assert not needs.plugins
    assert needs.notes == ["ensemble 'all' has a step 'gone', which is in no repository given"]


def test_packages_and_environments_of_python_models(tmp_path: Path) -> None:
    needs = read(
        tmp_path,
        {
            "a": {"1/model.py": "", "requirements.txt": "scipy"},
            "b": {"1/model.py": "", "config.pbtxt": environment("/envs/b"), "requirements.txt": "scipy"},
            "c": {"1/model.py": "", "config.pbtxt": environment("$$TRITON_MODEL_DIRECTORY/e.tar.gz")},
        },
    )

    assert needs.requirement_files == [tmp_path / "models/a/requirements.txt"]
    assert needs.notes == ["model 'b' runs in /envs/b (EXECUTION_ENV_PATH), which the image does not bring"]
    assert needs.unpacks


def test_what_is_wrong_with_models_is_said_of_all_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidArg) as error:
        read(
            tmp_path,
            {
                "a": {"config.pbtxt": 'backend: "onnxruntme"'},
                "b": {"config.pbtxt": "max_batch: 1"},
                "c": {"readme.txt": ""},
            },
        )

    first, second, third = error.value.message.splitlines()
    assert first.startswith("model 'a': no backend is called 'onnxruntme'; did you mean 'onnxruntime'?")
    assert re.match(r"model 'b': failed to read text proto .*max_batch", second)
    assert third.startswith("model 'c': Invalid model name: Could not determine backend")


def test_what_is_no_repository_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/1/model.py").touch()
    (tmp_path / "m/config.pbtxt").touch()

    with pytest.raises(InvalidArg, match="gone': no such file or directory"):
        find_needs([tmp_path / "gone"], tmp_path, CATALOG)
    with pytest.raises(InvalidArg, match="m' is no model repository: expected a directory of models"):
        find_needs([tmp_path / "m"], tmp_path, CATALOG)


def test_a_plan_has_each_plugin_once_with_its_reasons() -> None:
    needs = [Need("backends", "onnxruntime", f"model '{name}'") for name in "abc"]
    needs.append(Need("caches", "", "model 'a'"))

    plan = make_plan(needs, CATALOG)

    assert [(each.kind, each.name, each.distribution, each.why) for each in plan] == [
        ("backends", "onnxruntime", "tritonpy-backend-onnxruntime", "model 'a'; model 'b'; and 1 more"),
        ("caches", "local", "tritonpy", "model 'a'"),
    ]
    named = make_plan([*needs, Need("caches", "redis", "asked for")], CATALOG)
    assert [each.name for each in named if each.kind == "caches"] == ["redis"]


def test_names_that_are_no_plugins_are_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidArg, match=r"no batching strategy is called 'volum'; did you mean 'volume'\?"):
        make_plan([Need("batching", "volum", "model 'm'")], CATALOG)
    with pytest.raises(InvalidArg, match="'paint' is no kind of plugin; expected one of backends, "):
        make_plan([Need("paint", "red", "asked for")], CATALOG)
    with pytest.raises(NotFound, match="Caffe2 models are served neither here"):
        CATALOG.distribution("backends", "caffe2")
