from __future__ import annotations

from pathlib import Path

import pytest
from tritonpy.errors import InvalidArg, NotFound
from tritonpy.lifecycle.loading.backend_files import BackendFiles, find_backend_files
from tritonpy.lifecycle.loading.loader import LoaderSettings
from tritonpy.protos import ModelConfig


@pytest.fixture
def backends(tmp_path: Path) -> Path:
    for name in ("mine", "identity"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.py").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "model.py").touch()
    return tmp_path


def find(backends: Path, name: str, runtime: str = "", installed: tuple[str, ...] = ("identity", "python")):
    config = ModelConfig(name="net", backend=name, runtime=runtime)
    return find_backend_files(config, backends, installed, (backends / "net/1", backends / "net"))


@pytest.mark.parametrize("runtime", ["", "model.py"])
def test_a_model_py_in_the_backend_directory_is_a_backend(backends, runtime):
    assert find(backends, "mine", runtime) == BackendFiles("model.py", "python", backends / "mine")


@pytest.mark.parametrize("name", ["empty", "nosuch", "", ".", "..", "mine/../mine", "../x", "x" * 300])
def test_anything_else_is_not_found_and_the_error_says_where_it_was_looked_for(backends, name):
    with pytest.raises(NotFound) as refused:
        find(backends, name)

    missing = f"no installed plugin of kind 'backends' is called '{name}'; installed: identity, python"
    searched = f"; no libtriton_{name}.so in '{backends}/net/1' '{backends}/net' '{backends / name}'"
    assert refused.value.message == missing + (searched if name in ("empty", "nosuch") else "")


def test_the_missing_plugin_of_a_backend_of_this_project_is_told_how_to_install(backends):
    with pytest.raises(NotFound) as refused:
        find(backends, "onnxruntime")

    assert refused.value.message.endswith("; to install it: pip install tritonpy-backend-onnxruntime")


def test_an_installed_plugin_wins_over_a_file_unless_the_configuration_asks_for_the_file(backends):
    assert find(backends, "identity") is None
    assert find(backends, "identity", "model.py") == BackendFiles("model.py", "python", backends / "identity")


def test_the_plugin_for_pytorch_does_what_the_file_of_that_backend_does(backends):
    assert find(backends, "pytorch", "model.py", ("pytorch", "python")) is None

    with pytest.raises(InvalidArg, match="unable to find Python backend based backend library"):
        find(backends, "pytorch", "model.py")


def test_the_runtime_of_a_compiled_backend_is_not_a_file_of_ours(backends):
    with pytest.raises(NotFound, match=r"no libtriton_mine\.so in"):
        find(backends, "mine", "libtriton_mine.so")


@pytest.mark.parametrize("name", ["mine", "identity"])
def test_a_runtime_that_nothing_here_can_run_is_refused_in_triton_s_words(backends, name):
    with pytest.raises(InvalidArg) as refused:
        find(backends, name, "libtriton_other.so")

    assert refused.value.message == (
        f"unable to find backend library 'libtriton_other.so' for model 'net', searched: "
        f"'{backends}/net/1' '{backends}/net' '{backends}/{name}'"
    )


@pytest.mark.parametrize("runtime", ["../mine/model.py", "/lib/libc.so.6", "a/../../libtriton_x.so"])
def test_a_file_outside_of_the_directory_is_refused(backends, runtime):
    with pytest.raises(InvalidArg) as refused:
        find(backends, "mine", runtime)

    assert refused.value.message == f"backend library name '{runtime}' escapes backend directory"


@pytest.mark.parametrize("name", ["empty", "nosuch", "python", ".."])
def test_a_file_that_is_asked_for_and_missing_is_named_in_triton_s_words(backends, name):
    with pytest.raises(InvalidArg) as refused:
        find(backends, name, "model.py")

    assert refused.value.message == (
        f"unable to find Python backend based backend library 'model.py' for model 'net', "
        f"searched: '{backends}/{name}/model.py'"
    )


@pytest.mark.parametrize("place", ["nosuch", "net", "net/1"])
@pytest.mark.parametrize("runtime", ["", "libtriton_nosuch.so", "libtriton_other.so", "lib/odd", "a/../odd"])
def test_a_library_compiled_for_triton_is_found_where_triton_looks(backends, place, runtime):
    library = backends / place / (runtime or "libtriton_nosuch.so")
    library.parent.mkdir(parents=True, exist_ok=True)
    library.touch()

    assert find(backends, "nosuch", runtime) == BackendFiles(
        runtime or "libtriton_nosuch.so", "", backends / "nosuch", library
    )


@pytest.mark.parametrize("runtime", ["libtriton_identity.so", "libtriton_other.so"])
def test_an_installed_plugin_wins_over_a_library_unless_the_configuration_asks_for_the_library(
    backends, runtime
):
    library = backends / "identity" / runtime
    library.touch()

    assert find(backends, "identity") is None
    found = find(backends, "identity", runtime)
    assert found is not None
    assert found.library == library


def test_a_plugin_that_is_disabled_does_not_win_over_a_library(backends):
    library = backends / "identity/libtriton_identity.so"
    library.touch()

    config = ModelConfig(name="net", backend="identity")
    found = find_backend_files(config, backends, ("identity",), disabled=("identity",))

    assert found is not None
    assert found.library == library


def test_a_runtime_with_the_name_of_a_plugin_s_library_is_the_plugin_where_there_is_no_such_file(backends):
    assert find(backends, "identity", "libtriton_identity.so") is None


@pytest.mark.parametrize(("name", "framework"), [("tensorrt", "TensorRT"), ("vllm", "vLLM")])
def test_a_backend_of_triton_that_has_no_counterpart_is_told_from_a_spelling_mistake(
    backends, name, framework
):
    with pytest.raises(NotFound) as refused:
        find(backends, name)

    assert refused.value.message.startswith(
        f"no installed plugin of kind 'backends' is called '{name}': Triton's {framework} backend has no "
        f"counterpart here yet; "
    )


def test_without_the_backend_that_runs_it_the_error_says_what_to_install(backends):
    with pytest.raises(NotFound, match="not installed: pip install tritonpy-backend-python"):
        find(backends, "mine", installed=())


def test_a_backend_that_another_runs_has_the_settings_of_both_and_its_own_win():
    settings = LoaderSettings(
        backend_config=(
            ("", "a", "all"),
            ("mine", "c", "mine"),
            ("python", "a", "python"),
            ("python", "c", "python"),
            ("", "b", "all"),
            ("other", "d", "other"),
        )
    )

    assert settings.for_backend("python", "mine") == {"a": "python", "b": "all", "c": "mine"}
    assert settings.for_backend("mine") == {"a": "all", "b": "all", "c": "mine"}
