from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tritonpy.config.read import config_from_dict
from tritonpy.errors import InvalidArg, NotFound
from tritonpy.lifecycle.loading.backend_files import find_backend_files
from tritonpy.lifecycle.resolved_config import check_config
from tritonpy.repository.layout import read_model

CAFFE2 = "convert the model to ONNX and serve it with backend 'onnxruntime'"
CUSTOM = "make a backend of it: docs/how-to/write-a-backend.md, or a Python model"


@pytest.mark.parametrize(
    ("document", "said", "advice"),
    [
        ({"platform": "caffe2_netdef"}, "unexpected platform type 'caffe2_netdef' for m: ", CAFFE2),
        ({"platform": "custom"}, "unexpected platform type 'custom' for m: ", CUSTOM),
        ({"default_model_filename": "libcustom.so"}, "unexpected platform type '' for m: ", CUSTOM),
        ({"default_model_filename": "model.netdef"}, "unexpected platform type '' for m: ", CAFFE2),
    ],
)
def test_who_brings_a_retired_platform_is_told_what_to_do(
    tmp_path: Path, document: dict[str, Any], said: str, advice: str
) -> None:
    (tmp_path / "m/1").mkdir(parents=True)

    with pytest.raises(InvalidArg) as error:
        check_config(config_from_dict(document, "m"), read_model(tmp_path / "m"))

    assert str(error.value).startswith(said)
    assert str(error.value).endswith(advice)


@pytest.mark.parametrize(
    ("filename", "advice"), [("model.netdef", CAFFE2), ("libcustom.so", CUSTOM), ("other.bin", "")]
)
def test_who_brings_only_its_files_is_told_so_too(tmp_path: Path, filename: str, advice: str) -> None:
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/1" / filename).write_text("")

    with pytest.raises(InvalidArg, match="Could not determine backend for model 'm'") as error:
        check_config(config_from_dict({}, "m"), read_model(tmp_path / "m"))

    assert str(error.value).endswith(advice or "Expected model name of the form 'model.<backend_name>'.")


@pytest.mark.parametrize(("backend", "advice"), [("caffe2", CAFFE2), ("custom", CUSTOM)])
def test_a_retired_backend_is_refused_unless_somebody_has_made_one(
    tmp_path: Path, backend: str, advice: str
) -> None:
    config = config_from_dict({"backend": backend}, "m")

    with pytest.raises(NotFound, match=f"is called '{backend}': ") as error:
        find_backend_files(config, tmp_path, ())

    assert str(error.value).endswith(advice)
    assert find_backend_files(config, tmp_path, (backend,)) is None


@pytest.mark.parametrize("name", ["..", ".", "../other", "/etc", "a/../..", "a\0b"])
def test_the_name_of_a_backend_leads_out_of_no_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / "backends/a").mkdir(parents=True)
    for place in (tmp_path, tmp_path / "backends", tmp_path / "other"):
        place.mkdir(exist_ok=True)
        (place / "model.py").write_text("")
    config = config_from_dict({"backend": name}, "m")

    assert find_backend_files(config, tmp_path / "backends", ("python",)) is None
