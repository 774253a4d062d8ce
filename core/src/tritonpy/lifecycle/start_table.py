"""The tables that the log shows at the start."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from tritonpy.completion import DEFAULT_MAX_BATCH_SIZE, DEFAULT_MAX_BATCH_SIZE_KEY
from tritonpy.handles import JsonObject
from tritonpy.options import ServerOptions
from tritonpy.version import __version__

CUDA_MEMORY_POOL_BYTE_SIZE = 67_108_864
"""The memory that Triton takes of each GPU by default."""


def backends_table(
    backends: Iterable[tuple[str, str, Mapping[str, str]]], options: ServerOptions | None = None
) -> str:
    """Name, file and settings of each backend, one line each.

    Args:
        backends: as `ModelLoader.backends_in_use` tells them.
        options: of the server; what they say to every backend is shown, too.
    """
    common = common_backend_settings(options) if options is not None else {}
    rows = [("Backend", "Path", "Config")]
    for name, path, settings in backends:
        shown = dict(sorted({**common, **settings}.items()))
        rows.append((name, path, json.dumps({"cmdline": shown}, separators=(",", ":"))))
    return format_table(rows)


def common_backend_settings(options: ServerOptions) -> dict[str, str]:
    """Settings of every backend unless `--backend-config` says otherwise, under Triton's names."""
    return {
        "auto-complete-config": "true" if options.auto_complete_config else "false",
        "backend-directory": options.backend_directory,
        DEFAULT_MAX_BATCH_SIZE_KEY: str(DEFAULT_MAX_BATCH_SIZE),
        "min-compute-capability": f"{options.min_compute_capability:f}",
    }


def models_table(index: Sequence[JsonObject]) -> str:
    """Model, version and status of every entry of the repository index, one line each.

    Args:
        index: as the repository index shows it.
    """
    rows = [("Model", "Version", "Status")]
    for entry in index:
        state, reason = entry["state"], entry.get("reason", "")
        rows.append((entry["name"], entry.get("version", "-"), f"{state}: {reason}" if reason else state))
    return format_table(rows)


def options_table(options: ServerOptions, extensions: Sequence[str], gpus: Sequence[int] = ()) -> str:
    """The server's options, under the names that Triton's table has and in its order.

    Args:
        options: of the server.
        extensions: of the protocol.
        gpus: the devices that are used; where nothing is said of their pools, Triton's default is shown.
    """
    pools = dict.fromkeys(gpus, CUDA_MEMORY_POOL_BYTE_SIZE) | dict(options.cuda_memory_pool_byte_sizes)
    rows = [
        ("Option", "Value"),
        ("server_id", options.server_id),
        ("server_version", __version__),
        ("server_extensions", " ".join(extensions)),
        *((f"model_repository_path[{n}]", path) for n, path in enumerate(options.model_repositories)),
        ("model_control_mode", f"MODE_{options.model_control_mode.upper()}"),
        *((f"startup_models_{n}", name) for n, name in enumerate(options.load_models)),
        ("strict_model_config", str(int(not options.auto_complete_config))),
        ("model_config_name", options.model_config_name),
        ("rate_limit", "OFF" if options.rate_limit == "off" else "EXEC_COUNT"),
        *(
            (f"rate_limit_resource[{n}]", f'{{"name":"{name}", "count":{count} "device":{_device(device)}}}')
            for n, (name, count, device) in enumerate(options.rate_limit_resources)
        ),
        ("pinned_memory_pool_byte_size", str(options.pinned_memory_pool_byte_size)),
        *((f"cuda_memory_pool_byte_size{{{id}}}", str(size)) for id, size in sorted(pools.items())),
        ("min_supported_compute_capability", f"{options.min_compute_capability:.1f}"),
        ("strict_readiness", str(int(options.strict_readiness))),
        ("exit_timeout", f"{options.exit_timeout_s:g}"),
        ("cache_enabled", str(int(bool(options.cache_config)))),
    ]
    return format_table(rows)


def _device(device: int | None) -> int:
    """A device as Triton's table shows it: -1 is each of them."""
    return -1 if device is None else device


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Draw rows of cells, the first one as the heading; cells may have several lines."""
    cells = [[str(cell).splitlines() or [""] for cell in row] for row in rows]
    widths = [max(len(line) for row in cells for line in row[column]) for column in range(len(rows[0]))]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    lines = [rule]
    for row in cells:
        for height in range(max(map(len, row))):
            texts = [cell[height] if height < len(cell) else "" for cell in row]
            lines.append(
                "| " + " | ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True)) + " |"
            )
        if row is cells[0]:
            lines.append(rule)
    lines.append(rule)
    return "\n".join(lines)
