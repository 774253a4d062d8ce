from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from tritonpy.cache.finder import find_cache, make_cache
from tritonpy.errors import Internal, InvalidArg, Unsupported
from tritonpy.options import ServerOptions
from tritonpy.plugin import hookimpl
from tritonpy.plugin_files import Binder, PluginOpener
from tritonpy.plugin_manager import PluginManager

MODULE = """
from tritonpy.plugin import hookimpl

@hookimpl
def cache_lookup(cache, key):
    return key.encode()

@hookimpl
def cache_insert(cache, key, entry):
    pass
"""


def find(name: str, directory: Path, *loaders: object, discover: bool = True) -> Binder:
    managers = {kind: PluginManager(kind, discover=discover) for kind in ("caches", "loaders")}
    for number, loader in enumerate(loaders):
        managers["loaders"].register(f"loader{number}", loader)
    opener = PluginOpener(managers["caches"], managers["loaders"], "response cache")
    return find_cache(opener, str(directory), name)


def place(directory: Path, filename: str, content: str = "") -> Path:
    path = directory / "mine" / filename
    path.parent.mkdir()
    path.write_text(content)
    return path


def test_the_local_cache_enters_by_the_door_of_all_plugins(tmp_path: Path) -> None:
    bind = find("local", tmp_path)

    assert bind("cache_lookup") is not None
    assert bind("cache_usage") is not None


def test_an_unknown_cache_is_refused_in_tritons_words_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(InvalidArg) as error:
        find("remote", tmp_path)

    assert error.value.message.startswith(
        f"unable to find 'libtritoncache_remote.so' for cache. Searched: {tmp_path}; installed caches: "
    )
    assert "local" in error.value.message


def test_a_cache_of_ours_that_is_not_installed_is_told_how_to_get(tmp_path: Path) -> None:
    with pytest.raises(InvalidArg, match="caches: none; to install it: pip install tritonpy-cache-redis"):
        find("redis", tmp_path, discover=False)


def test_a_python_file_in_the_cache_directory_is_a_cache(tmp_path: Path) -> None:
    place(tmp_path, "cache.py", MODULE)
    lookup = find("mine", tmp_path)("cache_lookup")

    assert lookup is not None
    assert lookup(None, "k") == b"k"


def test_a_file_that_is_broken_is_named(tmp_path: Path) -> None:
    path = place(tmp_path, "cache.py", "import nothing_of_this_name")

    with pytest.raises(Internal, match=f"response cache {path} failed to import"):
        find("mine", tmp_path)


def test_a_shared_object_is_opened_by_an_installed_loader(tmp_path: Path) -> None:
    library = place(tmp_path, "libtritoncache_mine.so")
    opened: list[tuple[str, str]] = []

    def load_shared_object(kind: str, path: str) -> object:
        opened.append((kind, path))
        return SimpleNamespace(cache_lookup=hookimpl(lambda key: b"from C"))

    loader = SimpleNamespace(load_shared_object=hookimpl(load_shared_object))
    bind = find("mine", tmp_path, loader, discover=False)
    lookup = bind("cache_lookup")

    assert opened == [("caches", str(library))]
    assert lookup is not None
    assert lookup(None, "k") == b"from C"


def test_a_shared_object_that_nothing_opens_is_refused(tmp_path: Path) -> None:
    place(tmp_path, "libtritoncache_mine.so")

    with pytest.raises(Unsupported, match="nothing is installed that opens it: pip install tritonpy-abi"):
        find("mine", tmp_path, discover=False)


@pytest.mark.parametrize("name", ["../mine", "..", "a/b", ""])
def test_a_name_does_not_lead_out_of_the_directory(tmp_path: Path, name: str) -> None:
    place(tmp_path, "cache.py", MODULE)

    with pytest.raises(InvalidArg, match="unable to find"):
        find(name, tmp_path / "other")


def test_two_caches_are_refused_in_tritons_words() -> None:
    options = ServerOptions(("m",), cache_config=(("redis", "host", "h"), ("local", "size", "1")))
    managers = [PluginManager(kind) for kind in ("caches", "loaders")]

    with pytest.raises(InvalidArg) as error:
        make_cache(options, *managers)

    assert error.value.message == (
        "found multiple cache configurations, but only a single cache is currently supported; "
        "got local, redis"
    )


def test_of_a_setting_that_is_given_twice_the_last_one_counts() -> None:
    options = ServerOptions(("m",), cache_config=(("local", "size", "1"), ("local", "size", "2")))
    cache = make_cache(options, PluginManager("caches"), PluginManager("loaders"))

    assert cache is not None
    assert cache.handle.settings == {"size": "2"}
