"""Keystores and truststores: PEM and PKCS12 to a private key and certificates. Bytes to values, but for `read_store`.

JKS is a format of Java's own, which no library that is looked after reads; who has such a file reads how to convert
it. Java's *type* JKS takes PKCS12 files too, so the content decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.tls_settings import Store

_JAVA_ONLY = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
"""The first bytes of the formats that only Java reads."""

_PEM_KEY = "-----BEGIN "


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key and its certificates, the key's own first, then those that signed it."""

    key: PrivateKeyTypes = field(repr=False)
    chain: Sequence[x509.Certificate]


def identity(store: Store) -> Identity:
    """The key and certificates of a keystore. Raises ConfigError: it cannot be read, or has no key."""
    content = _content(store)
    _refuse_javas_own(content, store)
    try:
        if store.type == "PEM":
            key: PrivateKeyTypes | None = _pem_key(
                content if store.key is None else store.key.encode(), store.key_password
            )
            chain = x509.load_pem_x509_certificates(content)
        else:
            loaded = load_pkcs12(content, _bytes(store.password))
            key, others = loaded.key, [entry.certificate for entry in loaded.additional_certs]
            chain = [] if loaded.cert is None else _ordered(loaded.cert.certificate, others)
    except (ValueError, TypeError) as error:
        raise _unreadable(store, error) from None
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
    content = _content(store)
    _refuse_javas_own(content, store)
    try:
        if store.type == "PEM":
            found = x509.load_pem_x509_certificates(content)
        else:
            loaded = load_pkcs12(content, _bytes(store.password))
            found = [entry.certificate for entry in loaded.additional_certs]
            if loaded.cert is not None:
                found.append(loaded.cert.certificate)
    except (ValueError, TypeError) as error:
        raise _unreadable(store, error) from None
    if not found:
        raise ConfigError(f"{_where(store)} holds no certificate")
    return found


def _content(store: Store) -> bytes:
    if store.location is None:
        assert store.pem is not None
        return store.pem.encode()
    try:
        with open(store.location, "rb") as file:
            return file.read()
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


def _ordered(own: x509.Certificate, others: list[x509.Certificate]) -> list[x509.Certificate]:
    """A chain in the order in which TLS sends it: each signed by the next. PKCS12 keeps no order."""
    chain, left = [own], list(others)
    while True:
        issuer = next((one for one in left if one.subject == chain[-1].issuer), None)
        if issuer is None:
            return chain
        left.remove(issuer)
        chain.append(issuer)


def _unreadable(store: Store, error: Exception) -> ConfigError:
    # The library's words for a wrong password and for a damaged file are the same, and may quote what is in the file.
    reason = str(error) if str(error).startswith(("Invalid password", "Password was", "no private key")) else ""
    hint = f"check the file, its type ({store.type}) and the password"
    return ConfigError(f"{_where(store)} cannot be read as {store.type}{': ' if reason else ''}{reason}", hint=hint)


def _where(store: Store) -> str:
    return f"the {store.kind} {store.location}" if store.location is not None else f"the {store.kind} of the properties"


def _bytes(password: str | None) -> bytes | None:
    return None if password is None else password.encode()
