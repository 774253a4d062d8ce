"""What the C++ source of an AOTInductor package says of its inputs, and when a package needs a process."""

from __future__ import annotations

import io
import json
import zipfile

import pytest
import tritonpy_backend_pytorch as backend
from tritonpy.plugin import Backend, Model
from tritonpy_backend_pytorch.package_source import PackageInput, read_package_inputs
from tritonpy_sdk import ModelRepository

# Written as PyTorch 2.13 writes it, less what is not read.
SOURCE = """
    inputs_info_[0].name = "arg2_1";
    inputs_info_[1].name = "arg3_1";
    inputs_info_[2].name = "arg4_1";
    outputs_info_[0].name = "output0";
    int32_t arg2_1_expected_dtype = aoti_torch_dtype_float32();
    if (arg2_1_size[0] < 2) {
    if (arg2_1_size[0] > 64) {
    if (arg2_1_size[1] < 13) {
    if (1 != arg2_1_stride[1]) {
    int32_t arg3_1_expected_dtype = aoti_torch_dtype_bfloat16();
    if (arg3_1_size[0] < 16) {
    if (3 != arg3_1_size[1]) {
    if (3 != arg3_1_stride[0]) {
    if (1 != arg3_1_stride[1]) {
    int32_t arg4_1_expected_dtype = aoti_torch_dtype_int64();
    assert_size_stride(arg2_1, {s17, 1L + 4L*s83}, {1L + 4L*s83, 1L}, "input");
    assert_size_stride(buf1, {s77, 4L}, {4L, 1L}, "torch.ops.aten.convolution.default");
"""


def test_types_sizes_and_bounds_are_those_of_the_checks():
    assert read_package_inputs(SOURCE) == (
        PackageInput("float32", ("s17", "4*s83 + 1"), ((0, 64), (13, -1)), ("4*s83 + 1", "1")),
        # An input that the code does not use has no shape there, and is checked all the same.
        PackageInput("bfloat16", ("?arg3_1_0", "3"), ((0, -1), (0, -1)), ("3", "1")),
        PackageInput("int64", (), (), ()),
    )


@pytest.mark.parametrize("text", ["", SOURCE.replace("int32_t arg4_1_expected", "")])
def test_a_source_that_does_not_tell_all_inputs_tells_none(text):
    assert read_package_inputs(text) is None


FOLDER = "net/data/aotinductor/model/"
LIBRARY, TEXT = f"{FOLDER}c1.wrapper.so", f"{FOLDER}c1.wrapper.cpp"
METADATA = f"{FOLDER}c1.wrapper_metadata.json"


@pytest.mark.parametrize(
    ("files", "execution"),
    [
        ({LIBRARY: "", TEXT: SOURCE}, None),
        ({LIBRARY: "", TEXT: "", "net/models/model.json": "{}"}, None),
        ({LIBRARY: "", TEXT: ""}, "process"),
        ({LIBRARY: ""}, "process"),
        # Operators that are called through PyTorch, weights and kernels that lie beside the library.
        ({LIBRARY: "", TEXT: SOURCE, f"{FOLDER}c1.wrapper.json": "{}"}, "process"),
        ({LIBRARY: "", TEXT: SOURCE, f"{FOLDER}weights.blob": ""}, "process"),
        ({LIBRARY: "", TEXT: SOURCE, METADATA: {"AOTI_DEVICE_KEY": "cuda"}}, "process"),
        # The program runs where the package cannot.
        ({LIBRARY: "", "net/models/model.json": "{}", METADATA: {"AOTI_MACHINE": "riscv128"}}, None),
    ],
)
def test_a_package_needs_a_process_where_its_library_cannot_be_called_alone(
    tmp_path, monkeypatch, files, execution
):
    monkeypatch.setattr(backend, "gives_handles", lambda: True)

    assert backend.model_execution(package(tmp_path, files)) == execution


def test_a_package_needs_a_process_where_pytorch_gives_no_handles(tmp_path, monkeypatch):
    monkeypatch.setattr(backend, "gives_handles", lambda: False)

    assert backend.model_execution(package(tmp_path, {LIBRARY: "", TEXT: SOURCE})) == "process"


def package(folder, files):
    """A model whose file holds these."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("net/archive_format", "pt2")
        for name, content in files.items():
            archive.writestr(name, content if isinstance(content, str) else json.dumps(content))
    ModelRepository(folder).model("net", {"backend": "pytorch"}, {"model.pt2": buffer.getvalue()})
    return Model("net", 1, {"name": "net"}, folder / "net", Backend("pytorch"))
