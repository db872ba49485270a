"""Keystores of a test authority, in the forms that Kafka's properties take."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.tls_settings import TlsSettings
from kafkalog_broker.testing_support.certificate_authority import Authority, IssuedCertificate

PASSWORD = "store-password"


@cache
def authority() -> Authority:
    return Authority()


@cache
def server() -> IssuedCertificate:
    return authority().issue("localhost", ("localhost", "127.0.0.1"))


def inline(issued: IssuedCertificate | None = None) -> dict[str, str]:
    """Properties with everything in them."""
    own = issued or server()
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": own.key,
        "ssl.keystore.certificate.chain": own.chain,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority().certificate,
    }


def pem_file(path: Path, issued: IssuedCertificate | None = None) -> dict[str, str]:
    own = issued or server()
    path.write_text(own.key + own.chain)
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}


def pkcs12_file(path: Path, issued: IssuedCertificate | None = None, password: str = PASSWORD) -> dict[str, str]:
    own = issued or server()
    first, *others = x509.load_pem_x509_certificates(own.chain.encode())
    key = load_pem_private_key(own.key.encode(), None)
    path.write_bytes(
        serialize_key_and_certificates(b"server", key, first, others, BestAvailableEncryption(password.encode()))  # type: ignore[arg-type]
    )
    return {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(path), "ssl.keystore.password": PASSWORD}


def encrypted_key(issued: IssuedCertificate) -> str:
    key = load_pem_private_key(issued.key.encode(), None)
    encryption = BestAvailableEncryption(PASSWORD.encode())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()


def config(properties: dict[str, str]) -> BrokerConfig:
    return BrokerConfig.from_properties({"log.dirs": "/x", "listeners": "SSL://127.0.0.1:0", **properties})


def settings(properties: dict[str, str]) -> TlsSettings:
    found = config(properties).listener_security["SSL"].tls
    assert found is not None
    return found


def der(issued: IssuedCertificate) -> bytes:
    """The certificate without those that signed it, as a peer has it."""
    return x509.load_pem_x509_certificates(issued.chain.encode())[0].public_bytes(Encoding.DER)
