from __future__ import annotations

from pathlib import Path

import pytest
from tritonpy.plugin import InvalidArg
from tritonpy_cache_redis.settings import RedisSettings, read_settings

ADDRESS = {"host": "h", "port": "6379"}


def test_an_address_is_enough() -> None:
    assert read_settings(ADDRESS, {}) == RedisSettings("h", 6379)


def test_each_setting_reaches_its_field() -> None:
    settings = read_settings(
        ADDRESS
        | {
            "user": "me",
            "password": "secret",
            "db": "3",
            "connect_timeout": "250",
            "socket_timeout": "0",
            "wait_timeout": "20",
            "pool_size": "4",
            "tls_enabled": "true",
            "cert": "c.pem",
            "key": "k.pem",
            "cacert": "ca.pem",
            "cacert_dir": "cas",
            "sni": "name",
            "key_prefix": "",
            "ttl": "60",
            "required": "false",
        },
        {},
    )

    assert settings == RedisSettings(
        "h",
        6379,
        user="me",
        password="secret",
        db=3,
        connect_timeout_s=0.25,
        socket_timeout_s=None,
        wait_timeout_s=0.02,
        pool_size=4,
        uses_tls=True,
        cert="c.pem",
        key="k.pem",
        cacert="ca.pem",
        cacert_dir="cas",
        sni="name",
        key_prefix="",
        ttl_ms=60_000,
        is_required=False,
    )


def test_credentials_may_be_in_the_environment_and_settings_win() -> None:
    environ = {"TRITONREDIS_USERNAME": "me", "TRITONREDIS_PASSWORD": "secret"}

    from_environment = read_settings(ADDRESS, environ)
    mixed = read_settings(ADDRESS | {"password": "other"}, environ)

    assert (from_environment.user, from_environment.password) == ("me", "secret")
    assert (mixed.user, mixed.password) == ("me", "other")


def test_a_password_may_be_in_a_file_and_is_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret\nnot a part of it\n")

    read = read_settings(ADDRESS | {"password_file": str(file)}, {"TRITONREDIS_PASSWORD": "other"})

    assert read.password == "secret"
    with pytest.raises(
        InvalidArg, match=r"'password_file' is '.*/missing', which cannot be read: No such file"
    ):
        read_settings(ADDRESS | {"password_file": str(tmp_path / "missing")}, {})
    with pytest.raises(InvalidArg, match="'password' and 'password_file' are both given") as refused:
        read_settings(ADDRESS | {"password_file": str(file), "password": "other"}, {})
    assert "other" not in str(refused.value)


@pytest.mark.parametrize("settings", [{}, {"host": "h"}, {"port": "1"}])
def test_without_an_address_it_says_what_it_needs(settings: dict[str, str]) -> None:
    with pytest.raises(InvalidArg, match="Failed to initialize RedisCache, didn't specify address"):
        read_settings(settings, {})


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("port", "http", "'port' is 'http', expected a number from 1 to 65535"),
        ("port", "0", "'port' is '0'"),
        ("port", "70000", "'port' is '70000'"),
        ("db", "-1", "'db' is '-1'"),
        ("pool_size", "0", "'pool_size' is '0'"),
        ("socket_timeout", "1s", "'socket_timeout' is '1s'"),
        ("ttl", "0", "'ttl' is '0'"),
        ("ttl", "9" * 40, "expected a number"),
        ("tls_enabled", "yes", "'tls_enabled' is 'yes', expected true or false"),
        ("hots", "h", "unknown settings hots; there are "),
        ("cert", "c.pem", "'cert' and 'key' must be given together"),
        ("sni", "name", "need 'tls_enabled=true'"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(key: str, text: str, expected: str) -> None:
    with pytest.raises(InvalidArg, match="Failed to initialize RedisCache: ") as error:
        read_settings(ADDRESS | {key: text}, {})

    assert expected in error.value.message
