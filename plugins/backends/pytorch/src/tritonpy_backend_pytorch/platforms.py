"""Whether an AOTInductor package can run on this machine; asked before its library is opened.

A library that was compiled for another processor ends the process with an illegal instruction, when it is
called.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

_FLAGS: dict[str, tuple[str, ...]] = {
    "AVX2": ("avx2", "fma"),
    "AVX512": ("avx512f", "avx512dq", "avx512vl", "avx512bw"),
    "AVX512_VNNI": ("avx512_vnni",),
    "AVX512_BF16": ("avx512_bf16",),
    "AMX_TILE": ("amx_tile",),
    "AMX_FP16": ("amx_fp16",),
    "NEON": ("asimd",),
    "SVE256": ("sve",),
}
"""What Linux calls the instructions that PyTorch names."""


def unfit_reason(metadata: Mapping[str, str], flags: Collection[str] | None = None) -> str:
    """Why a package cannot run here; "" if it can, as far as its metadata say.

    Args:
        metadata: of the package's library.
        flags: of the processor, as Linux calls them; None looks them up.
    """
    system, machine = metadata.get("AOTI_PLATFORM", ""), metadata.get("AOTI_MACHINE", "")
    if system and system != sys.platform:
        return f"it was compiled for {system}, this is {sys.platform}"
    if machine and machine != platform.machine():
        return f"it was compiled for {machine}, this is {platform.machine()}"
    if flags is None:
        flags = cpu_flags()
    if not flags:  # a system that does not tell
        return ""
    for name in metadata.get("AOTI_CPU_ISA", "").split():
        missing = [flag for flag in _FLAGS.get(name, ()) if flag not in flags]
        if missing:
            return f"it was compiled for processors with {name}, and this one lacks {', '.join(missing)}"
    return ""


def cpu_flags(path: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Instructions that this machine's processor has; none where the system does not tell."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()
