from __future__ import annotations

from tritonpy.lifecycle.start_table import options_table
from tritonpy.options import ServerOptions


def rows(options: ServerOptions, gpus: list[int] | None = None) -> list[tuple[str, str]]:
    lines = options_table(options, ["statistics", "logging"], gpus or []).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    return [(name, value) for name, value in cells]


def test_the_rows_are_those_of_tritons_table_in_its_order() -> None:
    options = ServerOptions(
        ("/a", "/b"),
        server_id="here",
        model_control_mode="explicit",
        load_models=("m", "n"),
        auto_complete_config=False,
        model_config_name="abc",
        pinned_memory_pool_byte_size=0,
        cuda_memory_pool_byte_sizes=((1, 5), (0, 7)),
        min_compute_capability=7.5,
        strict_readiness=False,
        exit_timeout_s=3,
    )

    shown = [(name, value) for name, value in rows(options) if name != "server_version"]

    assert shown == [
        ("Option", "Value"),
        ("server_id", "here"),
        ("server_extensions", "statistics logging"),
        ("model_repository_path[0]", "/a"),
        ("model_repository_path[1]", "/b"),
        ("model_control_mode", "MODE_EXPLICIT"),
        ("startup_models_0", "m"),
        ("startup_models_1", "n"),
        ("strict_model_config", "1"),
        ("model_config_name", "abc"),
        ("rate_limit", "OFF"),
        ("pinned_memory_pool_byte_size", "0"),
        ("cuda_memory_pool_byte_size{0}", "7"),
        ("cuda_memory_pool_byte_size{1}", "5"),
        ("min_supported_compute_capability", "7.5"),
        ("strict_readiness", "0"),
        ("exit_timeout", "3"),
        ("cache_enabled", "0"),
    ]


def test_resources_that_are_shared_have_a_row_as_triton_writes_it() -> None:
    resources = (("R", 4, None), ("S", 2, 1))
    options = ServerOptions(("/a",), rate_limit="execution_count", rate_limit_resources=resources)

    assert [row for row in rows(options) if row[0].startswith("rate_limit")] == [
        ("rate_limit", "EXEC_COUNT"),
        ("rate_limit_resource[0]", '{"name":"R", "count":4 "device":-1}'),
        ("rate_limit_resource[1]", '{"name":"S", "count":2 "device":1}'),
    ]


def test_gpus_have_a_row_with_the_default_of_their_pool_and_others_have_none() -> None:
    options = ServerOptions(("/a",), cuda_memory_pool_byte_sizes=((1, 5),))

    pools = [row for row in rows(options, [0, 1]) if row[0].startswith("cuda")]

    assert pools == [("cuda_memory_pool_byte_size{0}", "67108864"), ("cuda_memory_pool_byte_size{1}", "5")]
    assert not [row for row in rows(ServerOptions(("/a",))) if row[0].startswith("cuda")]
