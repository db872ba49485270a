"""An SSLContext from the settings of a listener: protocols, cipher suites, key and trusted certificates."""

from __future__ import annotations

import secrets
import ssl
import tempfile

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from kafkalog_broker.config.definition import ConfigError, invalid_value
from kafkalog_broker.config.tls_settings import TLS_1_2, TLS_1_3, TlsSettings
from kafkalog_broker.security.keystore import Identity, load_authorities, load_identity
from kafkalog_broker.security.principal_mapping import distinguished_name

SUITES = "ssl.cipher.suites"
_VERSIONS = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_TLS_1_3_SUITES = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")

_WEAKNESSES = {
    "CA_MD_TOO_WEAK": "it or an authority in its chain is signed with SHA-1 or MD5",
    "EE_KEY_TOO_SMALL": "its key is too short",
    "CA_KEY_TOO_SMALL": "the key of an authority in its chain is too short",
}
"""OpenSSL's reasons for refusing a certificate at its security level. Java, and so Kafka, accepts such certificates."""


def tls_context(settings: TlsSettings) -> tuple[ssl.SSLContext, Identity]:
    """Make the context of the broker's side of connections. Blocks, because it reads files. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    protocols = _set_suites(context, settings)
    context.minimum_version, context.maximum_version = _VERSIONS[protocols[0]], _VERSIONS[protocols[-1]]
    # No session is resumed, so that each connection presents a certificate that has not expired and is trusted now.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    identity = load_identity(settings.keystore)
    _load_key(context, identity)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    if settings.truststore is not None:
        trusted = load_authorities(settings.truststore)
        context.load_verify_locations(
            cadata="".join(certificate.public_bytes(Encoding.PEM).decode() for certificate in trusted)
        )
        # As in Java, a certificate in the truststore is trusted itself, whoever signed it.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    elif settings.client_auth != "none":
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)  # as in Java: the authorities that the machine trusts
    return context, identity


def _load_key(context: ssl.SSLContext, identity: Identity) -> None:
    """Load the key by way of an encrypted temporary file, because Python loads keys from files only."""
    password = secrets.token_bytes(32).hex().encode()
    try:
        key = identity.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password))
        with tempfile.NamedTemporaryFile(prefix="kafkalog-tls-") as file:
            file.write(key + b"".join(certificate.public_bytes(Encoding.PEM) for certificate in identity.chain))
            file.flush()
            context.load_cert_chain(file.name, password=password)
    except (ssl.SSLError, ValueError, TypeError) as error:
        reason = getattr(error, "reason", None) or ""
        explanation = str(error)
        if reason in _WEAKNESSES:
            level = context.security_level
            explanation = f"{_WEAKNESSES[reason]}, which OpenSSL refuses at security level {level} ({reason})"
        raise ConfigError(
            f"the certificate of the keystore ({distinguished_name(identity.chain[0])}) "
            f"cannot be used for TLS: {explanation}",
            hint="issue a new one, signed with SHA-256, with an RSA key of at least 2048 bits or an elliptic curve",
        ) from None


def _set_suites(context: ssl.SSLContext, settings: TlsSettings) -> tuple[str, ...]:
    """Set the cipher suites and return the protocols that have one; as in Java, the other protocols are disabled.

    Python cannot select suites of TLS 1.3, so a list must have all of them or none.
    """
    wanted = settings.cipher_suites
    if not wanted:
        return settings.protocols
    openssl = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    openssl.set_ciphers("ALL:@SECLEVEL=1")
    known = {cipher["name"] for cipher in openssl.get_ciphers()}
    unknown = [suite for suite in wanted if suite not in _TLS_1_3_SUITES and openssl_name(suite) not in known]
    if unknown:
        raise invalid_value(SUITES, unknown[0], "unknown cipher suite")
    suites_1_3 = [suite for suite in wanted if suite in _TLS_1_3_SUITES]
    suites_1_2 = [suite for suite in wanted if suite not in _TLS_1_3_SUITES]
    protocols = tuple(
        protocol for protocol in settings.protocols if (suites_1_3 if protocol == TLS_1_3 else suites_1_2)
    )
    shown = ",".join(wanted)
    if not protocols:
        raise invalid_value(SUITES, shown, f"none of these suites belongs to {' or '.join(settings.protocols)}")
    if TLS_1_3 in protocols and len(set(suites_1_3)) != len(_TLS_1_3_SUITES):
        hint = f"name all of them ({','.join(_TLS_1_3_SUITES)}), or none, which disables TLSv1.3"
        raise invalid_value(SUITES, shown, "a list must name all suites of TLSv1.3 or none", hint)
    if suites_1_2:
        context.set_ciphers(":".join(map(openssl_name, suites_1_2)))
    return protocols


def openssl_name(suite: str) -> str:
    """Return `ECDHE-RSA-AES128-GCM-SHA256`, OpenSSL's name, for `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`."""
    exchange, separator, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if not separator:
        return suite
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").removesuffix("_POLY1305_SHA256")
    cipher = cipher.replace("_CBC", "") if "CBC" in cipher else cipher
    cipher = f"{cipher}_POLY1305" if cipher == "CHACHA20" else cipher
    return (cipher if exchange == "RSA" else f"{exchange}_{cipher}").replace("_", "-")
