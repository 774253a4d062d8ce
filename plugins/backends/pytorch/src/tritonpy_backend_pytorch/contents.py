"""The kind of a model file, found by one look at its content; PyTorch is not needed for it."""

from __future__ import annotations

import json
import struct
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tritonpy.plugin import InvalidArg

Metadata = Mapping[str, str]

_HEAD_SIZE = 64
_LONGEST_HEADER = 100 * 1024 * 1024  # what safetensors itself takes
_AOTI = "data/aotinductor/"
_LIBRARIES = (".so", ".pyd", ".dll")
_NO_CALL_NEEDS = (".cpp", "_metadata.json", "_linker_flags.json", "_compile_flags.json")

# Files that people put in the place of a model, by how they begin.
_BEGINNINGS: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself; `git lfs pull` fetches that"),
    (b"PK\x03\x04", "an archive whose end is missing, as after a download or a copy that was cut off"),
    (b"\x89HDF", "an HDF5 file, as Keras writes"),
    (b"GGUF", "a GGUF file, as llama.cpp reads"),
    (b"\x1f\x8b", "compressed by gzip"),
    (b"\x7fELF", "a shared object"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x08", "a file like those of ONNX, which backend 'onnxruntime' serves"),
)
LOADABLE = (
    "TorchScript, an exported program (torch.export.save), an AOTInductor package, or weights (a state dict "
    "or safetensors) beside a model.py"
)
"""What loads, in words for errors."""


class Kind(StrEnum):
    """One kind of model file, as errors and logs call it."""

    TORCHSCRIPT = "TorchScript"
    ARCHIVE = "PT2 archive"
    PICKLE = "pickle"
    SAFETENSORS = "safetensors"
    SOURCE = "Python source"


@dataclass(frozen=True, slots=True)
class PackageFiles:
    """One AOTInductor package in an archive.

    Attributes:
        metadata: of its library.
        library: the library's name in the archive; "" where other files belong to it, such as weights or
            kernels of a GPU, so that only PyTorch's loader can put them together.
        source: the name of the C++ source that it was compiled from; "" if the archive has none.
    """

    metadata: Metadata
    library: str = ""
    source: str = ""

    @property
    def device(self) -> str:
        """The kind of device that it was compiled for, such as `cpu`; "" where it does not say."""
        return self.metadata.get("AOTI_DEVICE_KEY", "")

    @property
    def is_called_directly(self) -> bool:
        """Its library can be called without PyTorch's loader; see `Library`."""
        return bool(self.library) and self.device in ("", "cpu")


@dataclass(frozen=True, slots=True)
class Contents:
    """What is in a model file.

    Attributes:
        kind: of the file.
        exported: names of the exported programs in a PT2 archive.
        compiled: the AOTInductor packages in it by name.
    """

    kind: Kind
    exported: tuple[str, ...] = ()
    compiled: Mapping[str, PackageFiles] = field(default_factory=dict)

    @property
    def package_name(self) -> str:
        """The package that is served; "" if there is none."""
        return "model" if "model" in self.compiled else next(iter(self.compiled), "")


def read_contents(path: Path) -> Contents:
    """Find out what a file is.

    Raises:
        InvalidArg: nothing that loads; says what it is and what would load.
    """
    if zipfile.is_zipfile(path):
        try:
            with zipfile.ZipFile(path) as archive:
                return _read_archive(path, archive)
        except (zipfile.BadZipFile, ValueError) as exc:  # or its metadata are no JSON
            raise _unfit(path, f"a damaged archive ({exc})") from exc
    with path.open("rb") as file:
        head = file.read(_HEAD_SIZE)
    if path.suffix == ".py":
        return Contents(Kind.SOURCE)
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        return Contents(Kind.PICKLE)
    if _is_safetensors(head, path.stat().st_size):
        return Contents(Kind.SAFETENSORS)
    raise _unfit(path, _describe(head))


def _read_archive(path: Path, archive: zipfile.ZipFile) -> Contents:
    names = [name.partition("/")[2] for name in archive.namelist()]  # without the folder that all lie in
    if "archive_format" in names:
        compiled = dict(_read_compiled(archive, names))
        exported = tuple(
            name.removeprefix("models/").removesuffix(".json")
            for name in names
            if name.startswith("models/") and name.endswith(".json")
        )
        if not (exported or compiled):
            raise _unfit(path, "a PT2 archive without any model")
        return Contents(Kind.ARCHIVE, exported, compiled)
    if "constants.pkl" in names and any(name.startswith("code/") for name in names):
        return Contents(Kind.TORCHSCRIPT)
    if "data.pkl" in names:
        return Contents(Kind.PICKLE)
    raise _unfit(path, _describe_archive(archive.namelist()))


def _read_compiled(archive: zipfile.ZipFile, names: Sequence[str]) -> Iterator[tuple[str, PackageFiles]]:
    """The AOTInductor packages of an archive by name."""
    files: defaultdict[str, list[int]] = defaultdict(list)
    for index, name in enumerate(names):
        if name.startswith(_AOTI) and "/" in (rest := name.removeprefix(_AOTI)):
            files[rest.rpartition("/")[0]].append(index)
    members = archive.infolist()
    for model, indices in files.items():
        metadata: Metadata = {}
        libraries, sources, is_whole = [], [], True
        for index in indices:
            full_name = members[index].filename
            if names[index].endswith("wrapper_metadata.json"):
                metadata = json.loads(archive.read(members[index]))
            elif names[index].endswith(".wrapper.cpp"):
                sources.append(full_name)
            elif names[index].endswith(_LIBRARIES):
                libraries.append(full_name)
            elif not names[index].endswith(_NO_CALL_NEEDS):
                is_whole = False
        library = libraries[0] if is_whole and len(libraries) == 1 else ""
        yield model, PackageFiles(metadata, library, sources[0] if len(sources) == 1 else "")


def _is_safetensors(head: bytes, file_size: int) -> bool:
    if len(head) < 9 or head[8:9] != b"{":
        return False
    size: int = struct.unpack_from("<Q", head)[0]
    return 2 <= size <= min(_LONGEST_HEADER, file_size - 8)


def _describe(head: bytes) -> str:
    if not head:
        return "empty"
    if head[4:8] in (b"ET12", b"ET13"):
        return "an ExecuTorch program"
    for beginning, what in _BEGINNINGS:
        if head.startswith(beginning):
            return what
    return f"of no kind that is known here (it begins with {head[:8]!r})"


def _describe_archive(names: Sequence[str]) -> str:
    if "MAR-INF/MANIFEST.json" in names:
        return (
            "an archive of TorchServe, which holds a model file and a handler; take the model file out of it"
        )
    if any(name.endswith("bytecode.pkl") for name in names):
        return "a TorchScript file for mobile devices only; save it with `torch.jit.save`"
    if names and all(name.endswith(".npy") for name in names):
        return "a NumPy archive"
    shown = ", ".join(names[:3])
    return f"a ZIP archive of no kind that is known here (it holds {shown or 'nothing'})"


def _unfit(path: Path, what: str) -> InvalidArg:
    return InvalidArg(f"'{path}' is {what}; expected {LOADABLE}")
