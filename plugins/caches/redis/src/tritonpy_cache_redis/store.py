"""Entries in Redis, over a few connections of one event loop."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, RedisError, ResponseError, TimeoutError
from tritonpy.plugin import Unavailable

from tritonpy_cache_redis.settings import RedisSettings

_log = logging.getLogger("tritonpy.cache")


class _NamedConnection(SSLConnection):
    """TLS with a server whose certificate has another name than its address."""

    def __init__(self, *, sni: str, **settings: Any) -> None:  # Any: keywords of the client
        super().__init__(**settings)
        self._sni = sni

    def _connection_arguments(self) -> Mapping[str, Any]:  # Any: as in the client
        return {**super()._connection_arguments(), "server_hostname": self._sni}


class RedisStore:
    """A client of one Redis server; on the loop only.

    A call that is cancelled closes its connection: an answer that comes late is never taken for that to
    another question.

    Args:
        settings: how to reach it.
    """

    def __init__(self, settings: RedisSettings) -> None:
        self._settings = settings
        self._prefix = settings.key_prefix
        options: dict[str, Any] = {}  # Any: keywords of the client
        if settings.uses_tls:
            options["connection_class"] = _NamedConnection if settings.sni else SSLConnection
            if settings.sni:
                options["sni"] = settings.sni
            options["ssl_certfile"] = settings.cert or None
            options["ssl_keyfile"] = settings.key or None
            options["ssl_ca_certs"] = settings.cacert or None
            options["ssl_ca_path"] = settings.cacert_dir or None
            options["ssl_check_hostname"] = True
        pool = BlockingConnectionPool(
            host=settings.host,
            port=settings.port,
            username=settings.user or None,
            password=settings.password or None,
            db=settings.db,
            socket_connect_timeout=settings.connect_timeout_s,
            socket_timeout=settings.socket_timeout_s,
            max_connections=settings.pool_size,
            timeout=settings.wait_timeout_s,
            # Once, at once: a connection that Redis has closed meanwhile is no reason for a miss.
            retry=Retry(NoBackoff(), 1),
            retry_on_error=[ConnectionError],
            **options,
        )
        self._redis: Redis = Redis.from_pool(pool)

    async def connect(self) -> None:
        """See whether Redis answers.

        Raises:
            Unavailable: it does not, and is required.
        """
        settings = self._settings
        where = f"{settings.host}:{settings.port}"
        try:
            await self._redis.ping()
        except (RedisError, OSError) as exc:
            text = f"cannot reach Redis at {where}: {type(exc).__name__}: {exc}"
            if settings.is_required:
                await self.close()
                raise Unavailable(
                    f"Failed to initialize RedisCache: {text}; --cache-config redis,required=false starts "
                    f"without it"
                ) from exc
            _log.warning("%s; requests go on without it", text)
        else:
            _log.info("connected to Redis at %s, keys begin with '%s'", where, self._prefix)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    async def get(self, key: str) -> bytes | None:
        """The entry, or None."""
        entry = await self._redis.get(self._prefix + key)
        assert not isinstance(entry, str)  # the client was not told to decode
        return entry

    async def set(self, key: str, entry: bytes) -> None:
        """Keep an entry in place of what is there: it may be damaged, or its time nearly over.

        Raises:
            Unavailable: Redis works, but does not take it, because its memory is full for example.
        """
        try:
            await self._redis.set(self._prefix + key, entry, px=self._settings.ttl_ms)
        except TimeoutError:
            raise
        except ResponseError as exc:
            raise Unavailable(f"Redis refuses it: {exc}") from exc
