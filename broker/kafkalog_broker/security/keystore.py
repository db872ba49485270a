"""Loading of keystores and truststores: PEM or PKCS12 files, or PEM text in properties. All functions block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.tls_settings import Store

_JAVA_ONLY = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
"""First bytes of files that only Java's libraries read; the error explains how to convert such a file. With the type
JKS, Java also accepts PKCS12 files, so the content decides."""

_PEM_KEY = "-----BEGIN "


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key and its certificate chain, the key's own certificate first."""

    key: PrivateKeyTypes = field(repr=False)
    chain: Sequence[x509.Certificate]


def load_identity(store: Store) -> Identity:
    """Read the key and certificates of a keystore. Raises ConfigError if it cannot be read or has no key."""
    key, own, others = _load_store(store)
    chain = own + others if store.type == "PEM" else _order_chain(own, others)
    if key is None or not (chain or store.type == "PEM"):
        raise ConfigError(
            f"{_describe(store)} has no private key with its certificate", hint="export both into one file"
        )
    if not chain or key.public_key() != chain[0].public_key():
        raise ConfigError(
            f"{_describe(store)}: the first certificate is not the private key's own",
            hint="put the certificate of the key first, then those that signed it",
        )
    return Identity(key, chain)


def load_authorities(store: Store) -> list[x509.Certificate]:
    """Read the certificates of a truststore. Raises ConfigError if it cannot be read or is empty."""
    _, own, others = _load_store(store)
    if not own + others:
        raise ConfigError(f"{_describe(store)} has no certificate")
    return own + others


def _load_store(store: Store) -> tuple[PrivateKeyTypes | None, list[x509.Certificate], list[x509.Certificate]]:
    """Return the private key (None for a truststore), a list with at most its own certificate, and all others."""
    content = _read_content(store)
    _refuse_java_formats(content, store)
    try:
        if store.type == "PEM":
            text = content if store.key is None else store.key.encode()
            key = _load_pem_key(text, store.key_password) if store.kind == "keystore" else None
            certificates = x509.load_pem_x509_certificates(content)
            return key, certificates[:1], certificates[1:]
        loaded = load_pkcs12(content, _encode_password(store.password))
        own = [] if loaded.cert is None else [loaded.cert.certificate]
        return loaded.key, own, [entry.certificate for entry in loaded.additional_certs]
    except (ValueError, TypeError) as error:
        # The library has the same text for a wrong password and a damaged file, and may quote the content of the file.
        known = str(error).startswith(("Invalid password", "Password was", "no private key was found"))
        raise ConfigError(
            f"{_describe(store)} cannot be read as {store.type}{f': {error}' if known else ''}",
            hint=f"check the file, its type ({store.type}) and the password",
        ) from None


def _read_content(store: Store) -> bytes:
    if store.location is None:
        assert store.pem is not None
        return store.pem.encode()
    try:
        return Path(store.location).read_bytes()
    except OSError as error:
        raise ConfigError(f"{_describe(store)} cannot be read: {error.strerror or error}") from None


def _load_pem_key(text: bytes, password: str | None) -> PrivateKeyTypes:
    """Return the first private key in a PEM text, which may be anywhere among the certificates."""
    for part in text.decode("ascii", "replace").split(_PEM_KEY)[1:]:
        label = part.partition("-----")[0]
        if label.endswith("PRIVATE KEY"):
            end = part.find(f"-----END {label}-----")
            if end < 0:
                break
            block = f"{_PEM_KEY}{part[:end]}-----END {label}-----\n"
            return load_pem_private_key(block.encode(), _encode_password(password))
    raise ValueError("no private key was found")


def _refuse_java_formats(content: bytes, store: Store) -> None:
    java = _JAVA_ONLY.get(content[:4])
    if java is not None:
        name = store.location or ""
        raise ConfigError(
            f"{_describe(store)} is a file of type {java}, which only Java reads",
            hint=f"convert it: keytool -importkeystore -srckeystore {name} -destkeystore {name}.p12 "
            f"-deststoretype PKCS12, then set ssl.{store.kind}.type=PKCS12 and ssl.{store.kind}.location to the new "
            "file",
        )


def _order_chain(own: list[x509.Certificate], others: list[x509.Certificate]) -> list[x509.Certificate]:
    """Return the chain in the order of TLS, each certificate signed by the next. PKCS12 keeps no order."""
    chain, left = list(own), list(others)
    while chain and (issuer := next((other for other in left if other.subject == chain[-1].issuer), None)) is not None:
        left.remove(issuer)
        chain.append(issuer)
    return chain


def _describe(store: Store) -> str:
    return f"the {store.kind} {store.location}" if store.location is not None else f"the {store.kind} of the properties"


def _encode_password(password: str | None) -> bytes | None:
    return None if password is None else password.encode()
