"""What a file is, by one look into it; none of these files is read by PyTorch."""

from __future__ import annotations

import io
import json
import struct
import zipfile

import pytest
from tritonpy.plugin import InvalidArg
from tritonpy_backend_pytorch.contents import Kind, read_contents


def archive(*names, root="net/", **contents):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in names:
            file.writestr(root + name, contents.get(name, ""))
    return buffer.getvalue()


SAFETENSORS = struct.pack("<Q", 2) + b"{}"
METADATA = json.dumps({"AOTI_PLATFORM": "linux", "AOTI_CPU_ISA": "AVX2"})


@pytest.fixture
def look(tmp_path):
    def at(content, name="model.pt"):
        path = tmp_path / name
        path.write_bytes(content)
        return read_contents(path)

    return at


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (archive("data.pkl", "code/__torch__.py", "constants.pkl"), Kind.TORCHSCRIPT),
        (archive("data.pkl", "byteorder", "data/0"), Kind.PICKLE),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", Kind.PICKLE),
        (SAFETENSORS, Kind.SAFETENSORS),
    ],
    ids=["torchscript", "zipped pickle", "old pickle", "safetensors"],
)
@pytest.mark.parametrize("name", ["model.pt", "model.pt2", "weights.bin"])
def test_the_content_counts_and_not_the_name(look, content, kind, name):
    assert look(content, name).kind is kind


def test_an_archive_tells_its_programs_and_packages(look):
    found = look(
        archive(
            "archive_format",
            "models/model.json",
            "models/small.json",
            "data/aotinductor/model/abc.wrapper.so",
            "data/aotinductor/model/abc.wrapper_metadata.json",
            **{"data/aotinductor/model/abc.wrapper_metadata.json": METADATA},
        )
    )

    assert found.kind is Kind.ARCHIVE
    assert found.exported == ("model", "small")
    assert {name: files.metadata for name, files in found.compiled.items()} == {"model": json.loads(METADATA)}


def test_python_source_is_known_by_its_suffix(look):
    assert look(b"import torch\n", "model.py").kind is Kind.SOURCE


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        (b"\x08\x08\x12\x07pytorch", "backend 'onnxruntime' serves"),
        (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
        (b"GGUF\x03\x00\x00\x00", "a GGUF file"),
        (b"\x1f\x8b\x08", "compressed by gzip"),
        (b"\x7fELF\x02", "a shared object"),
        (b"\x30\x00\x00\x00ET12", "an ExecuTorch program"),
        (b"PK\x03\x04\x00\x00\x08\x08net/data.pkl", "an archive whose end is missing"),
        (archive("archive_format", "data/aotinductor/model/a.wrapper_metadata.json"), "a damaged archive"),
        (b"hello world", "of no kind that is known here (it begins with b'hello wo')"),
        (archive("MAR-INF/MANIFEST.json", "model.pt", root=""), "an archive of TorchServe"),
        (archive("bytecode.pkl", "version"), "for mobile devices only"),
        (archive("a.npy", root=""), "a NumPy archive"),
        (archive("archive_format"), "a PT2 archive without any model"),
        (archive("readme.txt"), "(it holds net/readme.txt)"),
        (archive(), "(it holds nothing)"),
    ],
)
def test_anything_else_is_refused_by_what_it_is_and_what_would_load(look, content, what):
    with pytest.raises(InvalidArg) as refused:
        look(content)

    assert what in refused.value.message
    assert "expected TorchScript, an exported program" in refused.value.message


def test_a_header_longer_than_the_file_is_no_safetensors(look):
    with pytest.raises(InvalidArg):
        look(struct.pack("<Q", 50) + b"{}")
