"""The wheels of tritonpy-abi: for releases, from a machine without a compiler, and from the source archive.

They are installed beside core into environments of their own, where a model whose strategy is a shared object
is served, or the error says what is missing.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from tritonpy_sdk.testing.shared_objects import compile_shared_object, find_compiler

from .clean_environment import ROOT, Environment, Server, clean_variables, make_wheels, run

pytestmark = [
    pytest.mark.toolchain,
    pytest.mark.timeout(600),  # the first one waits until the library is compiled
    pytest.mark.skipif(find_compiler(".cc") is None, reason="there is no C++ compiler"),
]

ABI = ROOT / "plugins/abi"
LIBRARY = "tritonpy_abi/lib/libtritonserver.so"
# A strategy without memory: a batch takes requests until their elements are more than eight.
STRATEGY = Path(__file__).with_name("eight_elements.c")
CONFIG = """
backend: "identity"
max_batch_size: 64
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }
dynamic_batching { }
"""


@pytest.fixture(scope="module")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Core, and tritonpy-abi as it is released."""
    directory = tmp_path_factory.mktemp("wheelhouse")
    make_wheels(directory, ROOT / "core")
    run(sys.executable, ABI / "manylinux.py", "--output", directory)
    return directory


@pytest.fixture(scope="module")
def released(wheelhouse: Path) -> Path:
    [wheel] = wheelhouse.glob("tritonpy_abi-*")
    return wheel


@pytest.fixture(scope="module")
def without_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is made on a machine without a compiler."""
    directory = tmp_path_factory.mktemp("pure")
    make_wheels(directory, ABI, PATH=str(tmp_path_factory.mktemp("empty")))
    [wheel] = directory.glob("*.whl")
    return wheel


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A repository of one model, `m`, with a strategy that was compiled elsewhere."""
    model = tmp_path / "models" / "m"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(CONFIG)
    compile_shared_object(STRATEGY, model / "batchstrategy.so")
    return model.parent


def bare_path(environment: Environment) -> str:
    """A PATH on which there is nothing but the environment's own programs."""
    return str(environment.python.parent)


def library_of(wheel: Path, directory: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(LIBRARY, directory))


def test_the_released_wheel_fits_every_python_and_names_its_glibc(released: Path) -> None:
    name = rf"tritonpy_abi-[\d.]+-py3-none-(manylinux_2_\d+_{platform.machine()}\.?)+\.whl"

    assert re.fullmatch(name, released.name)
    with zipfile.ZipFile(released) as archive:
        [metadata] = [file for file in archive.namelist() if file.endswith(".dist-info/WHEEL")]
        lines = archive.read(metadata).decode().splitlines()
    assert "Root-Is-Purelib: false" in lines
    assert {line for line in lines if line.startswith("Tag: ")} == {
        f"Tag: py3-none-{tag}" for tag in released.stem.rpartition("-")[2].split(".")
    }


def test_the_released_library_keeps_its_name_and_exports_triton_s(released: Path, tmp_path: Path) -> None:
    with library_of(released, tmp_path).open("rb") as file:
        elf = ELFFile(file)
        dynamic = next(section for section in elf.iter_sections() if isinstance(section, DynamicSection))
        tags = list(dynamic.iter_tags())
        symbols = elf.get_section_by_name(".dynsym")
        assert isinstance(symbols, SymbolTableSection)
        defined = {symbol.name for symbol in symbols.iter_symbols() if symbol["st_shndx"] != "SHN_UNDEF"}

    assert [tag.soname for tag in tags if tag.entry.d_tag == "DT_SONAME"] == ["libtritonserver.so"]
    assert not [tag for tag in tags if tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH")]
    # The libraries of the system, not copies: exceptions of shared objects pass through them.
    needed = {tag.needed.partition(".so")[0] for tag in tags if tag.entry.d_tag == "DT_NEEDED"}
    assert "libstdc++" in needed
    assert needed <= {"libstdc++", "libgcc_s", "libc", "libm", "libdl", "libpthread", "ld-linux-x86-64"}
    exports = set((ABI / "src/tritonpy_abi/csrc/exports.txt").read_text().split())
    ours = {name for name in defined - exports if name.startswith("TRITONPY_")}
    assert ours
    assert defined - ours == exports


def test_the_released_wheel_knows_nothing_of_the_machine_it_was_made_on(released: Path) -> None:
    with zipfile.ZipFile(released) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}

    for path in (str(ROOT), str(Path.home()), "/tmp/", str(Path(sys.executable).parent)):
        assert [name for name, content in contents.items() if path.encode() in content] == []
    assert not [name for name in contents if Path(name).name.startswith(".")]


def test_the_same_sources_make_the_same_library_anywhere(released: Path, tmp_path: Path) -> None:
    # Through the source archive, unpacked elsewhere: it holds the headers, and builds alone.
    build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path / "made")
    run(*build, "--sdist", ABI)
    [archive] = (tmp_path / "made").glob("*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(tmp_path / "elsewhere", filter="data")
    [unpacked] = (tmp_path / "elsewhere").iterdir()

    run(*build, "--wheel", unpacked, TRITONPY_ABI_REQUIRED="1")

    [wheel] = (tmp_path / "made").glob("*.whl")
    assert f"-py3-none-linux_{platform.machine()}.whl" in wheel.name
    one, two = library_of(wheel, tmp_path / "one"), library_of(released, tmp_path / "two")
    assert one.read_bytes() == two.read_bytes()
    assert not list(unpacked.rglob("*.so"))


def test_the_released_wheel_serves_where_there_is_no_compiler(
    wheelhouse: Path, models: Path, tmp_path: Path
) -> None:
    environment = Environment(tmp_path / "venv", "tritonpy", "tritonpy-abi")
    environment.install(wheelhouse, "tritonpy-abi", PATH=bare_path(environment))
    arguments = ("--model-repository", str(models))
    server = Server(environment, *arguments, PATH=bare_path(environment), TRITONSERVER_DELAY_SCHEDULER="6")

    batches = ask_six(server)

    assert server.stop() == 0
    assert batches == {2: 3}


def test_without_a_compiler_it_installs_and_the_error_names_the_command_that_mends_it(
    wheelhouse: Path, without_library: Path, models: Path, tmp_path: Path
) -> None:
    assert without_library.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(without_library) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".so")]
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for wheel in (without_library, *wheelhouse.glob("tritonpy-*")):
        shutil.copy(wheel, wheels)
    environment = Environment(tmp_path / "venv", "tritonpy", "tritonpy-abi")
    environment.install(wheels, "tritonpy-abi", PATH=bare_path(environment))
    arguments = ("--model-repository", str(models), "--exit-on-error=false")

    server = Server(environment, *arguments, PATH=bare_path(environment))
    _, [model] = server.ask("/v2/repository/index", {})
    assert server.stop() == 0
    command = f"{environment.python} -m tritonpy_abi.build"
    assert model["state"] == "UNAVAILABLE"
    assert "tritonpy-abi was installed without its library" in model["reason"]
    assert model["reason"].endswith(f"run: {command}")
    assert "tritonpy-abi was installed without its library" in server.log

    variables = clean_variables(PATH=bare_path(environment))
    refused = subprocess.run(command.split(), capture_output=True, text=True, check=False, env=variables)
    assert refused.returncode == 1
    assert refused.stderr.startswith("tritonpy-abi: found no C++ compiler")

    assert run(*command.split(), PATH=os.environ["PATH"]).strip().endswith(LIBRARY)
    server = Server(environment, *arguments, PATH=bare_path(environment), TRITONSERVER_DELAY_SCHEDULER="6")
    batches = ask_six(server)
    assert server.stop() == 0
    assert batches == {2: 3}


def ask_six(server: Server) -> dict[int, int]:
    """Send six requests of four elements, which wait for each other; the sizes of their batches."""
    x = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    with ThreadPoolExecutor(6) as clients:
        answers = list(clients.map(lambda _: server.ask("/v2/models/m/infer", {"inputs": [x]}), range(6)))
    assert [status for status, _ in answers] == [200] * 6
    [stats] = server.ask("/v2/models/m/stats")[1]["model_stats"]
    return {batch["batch_size"]: batch["compute_infer"]["count"] for batch in stats["batch_stats"]}
