from __future__ import annotations

from tritonpy.builtin import identity
from tritonpy.lifecycle.start_table import backends_table, models_table
from tritonpy.options import ServerOptions
from tritonpy.plugin_manager import source_file


def test_backends_are_shown_with_their_file_and_settings_as_in_tritons_table() -> None:
    table = backends_table([("identity", "/i.py", {}), ("python", "/p.py", {"a": "1", "b": 'x"y'})])

    assert table.splitlines() == [
        "+----------+-------+----------------------------------+",
        "| Backend  | Path  | Config                           |",
        "+----------+-------+----------------------------------+",
        '| identity | /i.py | {"cmdline":{}}                   |',
        r'| python   | /p.py | {"cmdline":{"a":"1","b":"x\"y"}} |',
        "+----------+-------+----------------------------------+",
    ]


def test_what_every_backend_is_told_is_shown_unless_the_command_line_says_otherwise() -> None:
    options = ServerOptions(("/models",), backend_directory="/b", auto_complete_config=False)

    table = backends_table([("python", "/p.py", {}), ("x", "", {"default-max-batch-size": "7"})], options)

    assert (
        '{"cmdline":{"auto-complete-config":"false","backend-directory":"/b","default-max-batch-size":"4",'
        '"min-compute-capability":"6.000000"}}' in table
    )
    assert '"default-max-batch-size":"7","min-compute-capability"' in table


def test_a_table_without_rows_is_its_heading() -> None:
    assert backends_table([]).splitlines() == [
        "+---------+------+--------+",
        "| Backend | Path | Config |",
        "+---------+------+--------+",
        "+---------+------+--------+",
    ]


def test_a_reason_of_several_lines_stays_in_its_cell() -> None:
    index = [
        {"name": "m", "version": "1", "state": "UNAVAILABLE", "reason": "first\nsecond"},
        {"name": "n", "state": "UNAVAILABLE", "reason": "refused"},
    ]

    assert models_table(index).splitlines()[3:6] == [
        "| m     | 1       | UNAVAILABLE: first   |",
        "|       |         | second               |",
        "| n     | -       | UNAVAILABLE: refused |",
    ]


def test_the_file_of_a_plugin_is_that_of_its_module_or_of_its_class() -> None:
    class Plugin:
        pass

    assert source_file(identity) == identity.__file__
    assert source_file(Plugin()) == __file__
    assert source_file(object()) == ""
