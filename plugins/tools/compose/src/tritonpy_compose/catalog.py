"""Which distribution offers which plugin: those installed here, those given as files, this project's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from tritonpy.config.complete import advice_on
from tritonpy.errors import InvalidArg, NotFound
from tritonpy.plugin_manager import KINDS, PluginManager, own_plugins

from tritonpy_compose.offers import Offer

CORE = "tritonpy"
"""The distribution of the server, which is in every image; the plugins it brings need no other."""

ABI = "tritonpy-abi"
"""The distribution whose loader opens libraries compiled for Triton."""

_WORDS = {
    "backends": "backend",
    "batching": "batching strategy",
    "caches": "response cache",
    "repo_agents": "repository agent",
    "stores": "store",
}


class Catalog:
    """The plugins that can be composed.

    Args:
        offers: distributions that were given as files or folders; theirs win over those installed here.
        discover: look for those installed here; tests pass False.
    """

    def __init__(self, offers: Iterable[Offer] = (), *, discover: bool = True) -> None:
        self._plugins = {kind: dict(own_plugins(kind)) for kind in KINDS}
        self._plugins["loaders"]["abi"] = ABI
        if discover:
            for kind in KINDS:
                for info in PluginManager(kind).info():
                    if ", " not in info.distribution:  # a name that two offer is nobody's
                        self._plugins[kind][info.name] = info.distribution
        for offer in offers:
            for kind, names in offer.plugins.items():
                self._plugins.setdefault(kind, {}).update(dict.fromkeys(names, offer.name))

    def names(self, kind: str) -> list[str]:
        """The names of plugins of a kind, sorted."""
        return sorted(self._plugins[kind])

    def distribution(self, kind: str, name: str) -> str:
        """The distribution that offers a plugin.

        Raises:
            NotFound: none does; names the nearest.
            InvalidArg: there is no such kind.
        """
        found = self.of_kind(kind).get(name)
        if found is not None:
            return found
        word = _WORDS.get(kind, f"plugin of kind '{kind}'")
        close = get_close_matches(name, self.names(kind), 1)
        meant = f"; did you mean '{close[0]}'?" if close else ""
        advice = f" {advice_on(name)}." if advice_on(name) else ""
        raise NotFound(
            f"no {word} is called '{name}'{meant}{advice} Known are {', '.join(self.names(kind)) or 'none'}; "
            f"others have to be installed here, or given with --find-links"
        )

    def of_kind(self, kind: str) -> Mapping[str, str]:
        """The distributions of a kind, by the names of their plugins.

        Raises:
            InvalidArg: there is no such kind.
        """
        if kind not in self._plugins:
            raise InvalidArg(f"'{kind}' is no kind of plugin; expected one of {', '.join(KINDS)}")
        return self._plugins[kind]
