"""Settings that `--frontend-config` gives, and what is wrong with others."""

from __future__ import annotations

import pytest
from tritonpy.plugin import InvalidArg
from tritonpy_frontend_tfserving.settings import Settings, read_settings


class Given:
    """A frontend as far as its settings go."""

    name = "tfserving"

    def __init__(self, **settings):
        self.settings = {key.replace("_", "-"): value for key, value in settings.items()}


def test_port_is_that_of_tensorflow_serving_unless_it_is_said():
    assert read_settings(Given()) == Settings(8501, None, "0.0.0.0", 64 << 20)
    given = Given(port="0", grpc_port="8500", address="::1", max_body_bytes="5")
    assert read_settings(given) == Settings(0, 8500, "::1", 5)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"prot": "1"}, "tfserving,prot: not known, expected port, grpc-port, address, max-body-bytes"),
        ({"port": "x"}, "tfserving,port: got 'x', expected a whole number, 0 or more"),
        ({"grpc_port": "70000"}, "tfserving,grpc-port: got '70000', expected 65535 at most"),
        ({"port": "65536"}, "tfserving,port: got '65536', expected 65535 at most"),
        ({"max_body_bytes": "0"}, "tfserving,max-body-bytes: got '0', expected a whole number, 1 or more"),
    ],
)
def test_a_setting_that_is_wrong_is_named(settings, error):
    with pytest.raises(InvalidArg, match=error):
        read_settings(Given(**settings))
