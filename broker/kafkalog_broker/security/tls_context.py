"""A listener's settings made an SSLContext of Python's: protocols, cipher suites, key, whom it trusts."""

from __future__ import annotations

import os
import secrets
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

from kafkalog_broker.config.definition import ConfigError, invalid_value
from kafkalog_broker.config.listener_settings import TLS_1_2, TLS_1_3, Store, TlsSettings
from kafkalog_broker.protocol.request import ANONYMOUS
from kafkalog_broker.security.principal_mapping import distinguished_name, parse_rules, principal_name

SUITES = "ssl.cipher.suites"
_VERSIONS = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_OF_1_3 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")


def tls_context(settings: TlsSettings) -> tuple[ssl.SSLContext, Identity]:
    """For the broker's side of connections. Reads files, so not for the event loop's thread. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    protocols = _set_suites(context, settings)
    context.minimum_version, context.maximum_version = _VERSIONS[protocols[0]], _VERSIONS[protocols[-1]]
    # Each connection proves itself anew: a certificate that has expired or is not trusted any more is not resumed with.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    own = identity(settings.keystore)
    _load(context, own)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    if settings.truststore is not None:
        trusted = authorities(settings.truststore)
        context.load_verify_locations(cadata="".join(one.public_bytes(Encoding.PEM).decode() for one in trusted))
        # As in Java, a certificate in the truststore is trusted itself, whoever signed it.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    elif settings.client_auth != "none":
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)  # as in Java: the authorities that the machine trusts
    return context, own


def _load(context: ssl.SSLContext, own: Identity) -> None:
    """Python takes a key from a file only: one that only this user reads, encrypted, there for the moment."""
    password = secrets.token_bytes(32).hex().encode()
    try:
        key = own.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password))
        with tempfile.NamedTemporaryFile(prefix="kafkalog-tls-") as file:
            file.write(key + b"".join(one.public_bytes(Encoding.PEM) for one in own.chain))
            file.flush()
            context.load_cert_chain(file.name, password=password)
    except (ssl.SSLError, ValueError, TypeError) as error:
        reason = getattr(error, "reason", None) or ""
        why = str(error)
        if reason in _WEAKNESSES:
            level = context.security_level
            why = f"{_WEAKNESSES[reason]}, which OpenSSL refuses at security level {level} ({reason})"
        raise ConfigError(
            f"the certificate of the keystore ({distinguished_name(own.chain[0])}) cannot be used for TLS: {why}",
            hint="issue it anew, signed with SHA-256, and with an RSA key of at least 2048 bits or an elliptic curve",
        ) from None


_WEAKNESSES = {
    "CA_MD_TOO_WEAK": "it or an authority in its chain is signed with SHA-1 or MD5",
    "EE_KEY_TOO_SMALL": "its key is too short",
    "CA_KEY_TOO_SMALL": "the key of an authority in its chain is too short",
}
"""Reasons of OpenSSL's security level, in words. Java, and so Kafka, serves such certificates."""


def _set_suites(context: ssl.SSLContext, settings: TlsSettings) -> tuple[str, ...]:
    """The protocols left: a list of suites of one protocol switches the other off, as in Java. Python cannot choose
    among the suites of TLS 1.3, so a list that has some of them must have all."""
    wanted = settings.cipher_suites
    if not wanted:
        return settings.protocols
    openssl = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    openssl.set_ciphers("ALL:@SECLEVEL=1")
    known = {cipher["name"] for cipher in openssl.get_ciphers()}
    unknown = [suite for suite in wanted if suite not in _OF_1_3 and openssl_name(suite) not in known]
    if unknown:
        raise invalid_value(SUITES, unknown[0], "no such suite")
    newer, older = [suite for suite in wanted if suite in _OF_1_3], [suite for suite in wanted if suite not in _OF_1_3]
    protocols = tuple(one for one in settings.protocols if (newer if one == TLS_1_3 else older))
    shown = ",".join(wanted)
    if not protocols:
        raise invalid_value(SUITES, shown, f"none of them belongs to {' or '.join(settings.protocols)}")
    if TLS_1_3 in protocols and len(set(newer)) != len(_OF_1_3):
        hint = f"name all of them ({','.join(_OF_1_3)}), or none, which leaves {TLS_1_2}"
        raise invalid_value(SUITES, shown, "it is not possible to choose among the suites of TLSv1.3", hint)
    if older:
        context.set_ciphers(":".join(map(openssl_name, older)))
    return protocols


def openssl_name(suite: str) -> str:
    """OpenSSL's name of a suite: `ECDHE-RSA-AES128-GCM-SHA256` for `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`."""
    exchange, separator, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if not separator:
        return suite
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").removesuffix("_POLY1305_SHA256")
    cipher = cipher.replace("_CBC", "") if "CBC" in cipher else cipher
    cipher = f"{cipher}_POLY1305" if cipher == "CHACHA20" else cipher
    return (cipher if exchange == "RSA" else f"{exchange}_{cipher}").replace("_", "-")


FileStates = tuple[tuple[int, int, int] | None, ...]
"""Time of modification in ns, size and inode of each file; None: it is not there."""


class ListenerTls:
    """TLS context of a listener. Made from files, so not in the event loop's thread. Raises ConfigError."""

    def __init__(self, settings: TlsSettings) -> None:
        self.settings = settings
        self.files = self.file_states()  # before they are read: what changes meanwhile is read again
        self.rules = parse_rules(settings.principal_mapping_rules)
        self.context: ssl.SSLContext
        self.identity: Identity
        self.context, self.identity = tls_context(settings)

    def principal(self, certificate: bytes | None) -> str:
        """Principal of a peer's certificate, in DER; ANONYMOUS without one. Raises NotAuthenticated."""
        if certificate is None:
            return ANONYMOUS
        return f"User:{principal_name(self.rules, distinguished_name(x509.load_der_x509_certificate(certificate)))}"

    def check_follows(self, old: ListenerTls) -> None:
        """Raises ConfigError where the certificate's names are others and must not be, so that clients which check
        them do not fail (SslFactory.CertificateEntries)."""
        new, before = self.identity.chain[0], old.identity.chain[0]
        if new.subject != before.subject and not self.settings.allow_dn_changes:
            raise ConfigError(
                f"the distinguished name of the new certificate is {distinguished_name(new)}, it was "
                f"{distinguished_name(before)}",
                hint="set ssl.allow.dn.changes=true at start if that is meant",
            )
        missing = _names(before) - _names(new)
        if missing and not self.settings.allow_san_changes:
            raise ConfigError(
                f"the new certificate lacks subject alternative names of the old one: {', '.join(sorted(missing))}",
                hint="set ssl.allow.san.changes=true at start if that is meant",
            )

    def file_states(self) -> FileStates:
        return tuple(map(_state, self.settings.files))


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _names(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in names}


_JAVA_ONLY = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
"""First bytes of the formats that no library that is looked after reads, but Java's own: an error says how to convert
such a file. Java's *type* JKS takes PKCS12 files too, so the content decides."""

_PEM_KEY = "-----BEGIN "


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key and its certificates, the key's own first, then those that signed it."""

    key: PrivateKeyTypes = field(repr=False)
    chain: Sequence[x509.Certificate]


def identity(store: Store) -> Identity:
    """The key and certificates of a keystore. Raises ConfigError: it cannot be read, or has no key."""
    key, own, others = _loaded(store)
    chain = own + others if store.type == "PEM" else _ordered(own, others)
    if key is None or not (chain or store.type == "PEM"):
        raise ConfigError(
            f"{_where(store)} holds no private key with its certificate", hint="export both into one file"
        )
    if not chain or key.public_key() != chain[0].public_key():
        raise ConfigError(
            f"{_where(store)}: the first certificate is not the private key's own",
            hint="put the certificate of the key first, then those that signed it",
        )
    return Identity(key, chain)


def authorities(store: Store) -> list[x509.Certificate]:
    """The certificates of a truststore. Raises ConfigError: it cannot be read, or is empty."""
    _, own, others = _loaded(store)
    if not own + others:
        raise ConfigError(f"{_where(store)} holds no certificate")
    return own + others


def _loaded(store: Store) -> tuple[PrivateKeyTypes | None, list[x509.Certificate], list[x509.Certificate]]:
    """Key, of a keystore; its own certificate, if it is there; the others. Raises ConfigError."""
    content = _content(store)
    _refuse_javas_own(content, store)
    try:
        if store.type == "PEM":
            text = content if store.key is None else store.key.encode()
            key = _pem_key(text, store.key_password) if store.kind == "keystore" else None
            certificates = x509.load_pem_x509_certificates(content)
            return key, certificates[:1], certificates[1:]
        loaded = load_pkcs12(content, _bytes(store.password))
        own = [] if loaded.cert is None else [loaded.cert.certificate]
        return loaded.key, own, [entry.certificate for entry in loaded.additional_certs]
    except (ValueError, TypeError) as error:
        # The library's words for a wrong password and a damaged file are the same, and may quote what is in the file.
        known = str(error).startswith(("Invalid password", "Password was", "no private key"))
        raise ConfigError(
            f"{_where(store)} cannot be read as {store.type}{f': {error}' if known else ''}",
            hint=f"check the file, its type ({store.type}) and the password",
        ) from None


def _content(store: Store) -> bytes:
    if store.location is None:
        assert store.pem is not None
        return store.pem.encode()
    try:
        return Path(store.location).read_bytes()
    except OSError as error:
        raise ConfigError(f"{_where(store)} cannot be read: {error.strerror or error}") from None


def _pem_key(text: bytes, password: str | None) -> PrivateKeyTypes:
    """The first private key in a PEM text, wherever it stands among the certificates."""
    for part in text.decode("ascii", "replace").split(_PEM_KEY)[1:]:
        label = part.partition("-----")[0]
        if label.endswith("PRIVATE KEY"):
            end = part.find(f"-----END {label}-----")
            if end < 0:
                break
            block = f"{_PEM_KEY}{part[:end]}-----END {label}-----\n"
            return load_pem_private_key(block.encode(), _bytes(password))
    raise ValueError("no private key in it")


def _refuse_javas_own(content: bytes, store: Store) -> None:
    java = _JAVA_ONLY.get(content[:4])
    if java is not None:
        name = store.location or ""
        raise ConfigError(
            f"{_where(store)} is a file of type {java}, which only Java reads",
            hint=f"convert it: keytool -importkeystore -srckeystore {name} -destkeystore {name}.p12 "
            f"-deststoretype PKCS12, then set ssl.{store.kind}.type=PKCS12 and ssl.{store.kind}.location to the new "
            "file",
        )


def _ordered(own: list[x509.Certificate], others: list[x509.Certificate]) -> list[x509.Certificate]:
    """A chain in the order in which TLS sends it: each signed by the next. PKCS12 keeps no order."""
    chain, left = list(own), list(others)
    while chain and (issuer := next((one for one in left if one.subject == chain[-1].issuer), None)) is not None:
        left.remove(issuer)
        chain.append(issuer)
    return chain


def _where(store: Store) -> str:
    return f"the {store.kind} {store.location}" if store.location is not None else f"the {store.kind} of the properties"


def _bytes(password: str | None) -> bytes | None:
    return None if password is None else password.encode()
