"""How a router speaks TLS with its replicas."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from tritonpy.errors import InvalidArg

from tritonpy_router.options import RouterOptions


class ReplicaContext(ssl.SSLContext):
    """A context of clients that may expect one name, whichever address they connect to.

    Attributes:
        expected_name: that certificates have to be for; "" for the host that is connected to.
    """

    expected_name = ""

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """See `ssl.SSLContext`; every event loop makes its connections by this."""
        name = self.expected_name or server_hostname
        return super().wrap_bio(incoming, outgoing, server_side, name, session)


def replica_context(options: RouterOptions, protocols: Sequence[str]) -> ssl.SSLContext | None:
    """How the ports of replicas are encrypted; None for not.

    Args:
        options: name the files.
        protocols: to agree on, above TLS; none to say nothing of that.

    Raises:
        InvalidArg: a file cannot be used.
    """
    if not options.replica_tls:
        return None
    context = ReplicaContext(ssl.PROTOCOL_TLS_CLIENT)
    context.expected_name = options.replica_tls_name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if options.replica_ca:
            context.load_verify_locations(options.replica_ca)
        else:
            context.load_default_certs()
        if options.replica_certificate:
            context.load_cert_chain(options.replica_certificate, options.replica_key or None)
    except (OSError, ssl.SSLError) as exc:
        raise InvalidArg(
            f"--replica-ca '{options.replica_ca}', --replica-cert '{options.replica_certificate}' and "
            f"--replica-key '{options.replica_key}' cannot be used: {exc}"
        ) from None
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context
