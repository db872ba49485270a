"""Certificates of the authority for tests, as a strict TLS client checks them."""

from __future__ import annotations

import ssl
from pathlib import Path

from kafkalog_broker.testing_support.certificate_authority import Authority


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    """Complete a handshake in memory. Raises ssl.SSLError if a side refuses the other's certificate."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for side in tuple(sides):
            try:
                side.do_handshake()
                sides.remove(side)
            except ssl.SSLWantReadError:
                pass
        if not sides:
            return
    raise AssertionError("the handshake does not end")


def test_certificates_suit_clients_and_servers_with_x509_strict(tmp_path: Path) -> None:
    """VERIFY_X509_STRICT is the default of ssl.create_default_context since Python 3.13."""
    authority = Authority()
    contexts = []
    for protocol, hosts in ((ssl.PROTOCOL_TLS_SERVER, ["localhost"]), (ssl.PROTOCOL_TLS_CLIENT, [])):
        issued = authority.issue("localhost" if hosts else "alice", hosts)
        path = tmp_path / "certificate.pem"
        path.write_text(issued.key + issued.chain)
        context = ssl.SSLContext(protocol)
        context.load_cert_chain(path)
        context.load_verify_locations(cadata=authority.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        contexts.append(context)
    server, client = contexts
    handshake(server, client, "localhost")
