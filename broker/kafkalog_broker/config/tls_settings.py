"""TLS settings of one listener, read from Kafka's ssl.* properties and checked for contradictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from kafkalog_broker.config.definition import NO_JAVA, ConfigError, invalid_value

TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"
_DISABLED_PROTOCOLS = frozenset({"SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"})
"""Protocols that old files may name. They are ignored, because Java 16 and later do not use them either."""

_STORE_TYPES = ("PEM", "PKCS12", "JKS")


@dataclass(frozen=True, slots=True)
class Store:
    """A keystore or a truststore.

    Attributes:
        kind: "keystore" or "truststore".
        type: PEM, PKCS12 or JKS; Java uses JKS for PKCS12 files too.
        location: Path of the file, or None if the content is in `pem` and `key`.
        pem: Certificates as PEM.
        key: Private key of a keystore as PEM.
    """

    kind: str
    type: str
    location: str | None
    password: str | None = field(repr=False)
    pem: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS of one listener.

    Attributes:
        client_auth: "none", "requested" or "required".
        protocols: The allowed ones of TLS_1_2 and TLS_1_3.
        cipher_suites: Names of the RFCs; empty for OpenSSL's default.
    """

    keystore: Store
    truststore: Store | None
    client_auth: str
    protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    principal_mapping_rules: str
    allow_dn_changes: bool
    allow_san_changes: bool

    @classmethod
    def of(cls, value: Callable[[str], Any], client_auth: str) -> Self:
        """Read the settings.

        Args:
            value: Returns the parsed value of a property for this listener.
            client_auth: As in the attribute of the class.

        Raises:
            ConfigError: If properties are invalid or contradict each other.
        """
        keystore = _keystore(value)
        if keystore is None:
            raise ConfigError(
                "a listener with TLS needs a certificate: set ssl.keystore.location and ssl.keystore.password, or with "
                "ssl.keystore.type=PEM the properties ssl.keystore.key and ssl.keystore.certificate.chain",
                name="ssl.keystore.location",
            )
        if value("ssl.engine.factory.class") is not None:
            raise ConfigError(f"ssl.engine.factory.class: {NO_JAVA}", name="ssl.engine.factory.class")
        return cls(
            keystore,
            _truststore(value),
            client_auth,
            _protocols(value),
            tuple(_non_empty(value("ssl.cipher.suites"))),
            value("ssl.principal.mapping.rules"),
            value("ssl.allow.dn.changes"),
            value("ssl.allow.san.changes"),
        )

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of the stores that are files."""
        stores = (self.keystore, self.truststore)
        return tuple(store.location for store in stores if store is not None and store.location is not None)


def _keystore(value: Callable[[str], Any]) -> Store | None:
    """Return the keystore, or None without one, with the checks and messages of Kafka's
    DefaultSslEngineFactory.createKeystore."""
    kind, location = _type("ssl.keystore.type", value), value("ssl.keystore.location") or None
    password, key_password = value("ssl.keystore.password") or None, value("ssl.key.password") or None
    key, chain = value("ssl.keystore.key") or None, value("ssl.keystore.certificate.chain") or None
    has_key, has_chain, has_file, has_password = (value is not None for value in (key, chain, location, password))
    is_pem, name = kind == "PEM", "ssl.keystore.key"
    _refuse(has_chain and not has_key, name, "SSL certificate chain is specified, but private key is not specified")
    wrong_type = f"SSL private key can be specified only for PEM, but key store type is {kind}."
    _refuse(has_key and not is_pem, name, wrong_type)
    _refuse(has_key and not has_chain, name, "SSL private key is specified, but certificate chain is not specified.")
    _refuse(has_key and has_file, name, "Both SSL key store location and separate private key are specified.")
    only_key = "SSL key store password cannot be specified with PEM format, only key password may be specified"
    _refuse(is_pem and has_password and (has_key or has_file), "ssl.keystore.password", only_key)
    if has_key:
        return Store("keystore", kind, None, None, chain, key, key_password)
    no_file = "SSL key store is not specified, but key store password is specified."
    _refuse(has_password and not has_file, name, no_file)
    no_password = "SSL key store is specified, but key store password is not specified."
    _refuse(has_file and not is_pem and not has_password, "ssl.keystore.password", no_password)
    return Store("keystore", kind, location, password, key_password=key_password) if has_file else None


def _truststore(value: Callable[[str], Any]) -> Store | None:
    """Return the truststore, or None without one, with the checks and messages of Kafka's
    DefaultSslEngineFactory.createTruststore."""
    kind, location = _type("ssl.truststore.type", value), value("ssl.truststore.location") or None
    password, pem = value("ssl.truststore.password") or None, value("ssl.truststore.certificates") or None
    has_certificates, has_file, has_password = (value is not None for value in (pem, location, password))
    is_pem, is_given, name = kind == "PEM", has_certificates or has_file, "ssl.truststore.certificates"
    wrong_type = f"SSL trust store certs can be specified only for PEM, but trust store type is {kind}."
    _refuse(has_certificates and not is_pem, name, wrong_type)
    both = "Both SSL trust store location and separate trust certificates are specified."
    _refuse(has_certificates and has_file, name, both)
    _refuse(is_pem and has_password and is_given, name, "SSL trust store password cannot be specified for PEM format.")
    no_file = "SSL trust store is not specified, but trust store password is specified."
    _refuse(has_password and not is_given, name, no_file)
    return Store("truststore", kind, location, password, pem) if is_given else None


def _refuse(is_invalid: bool, name: str, why: str) -> None:
    if is_invalid:
        raise ConfigError(why, name=name)


def _type(name: str, value: Callable[[str], Any]) -> str:
    kind: str = value(name).upper()
    if kind not in _STORE_TYPES:
        raise invalid_value(name, kind, f"one of {', '.join(_STORE_TYPES)}")
    return kind


def _protocols(value: Callable[[str], Any]) -> tuple[str, ...]:
    """Return the protocols of ssl.enabled.protocols up to ssl.protocol, as Java does."""
    name = "ssl.enabled.protocols"
    wanted = _non_empty(value(name)) or [TLS_1_2, TLS_1_3]
    unknown = [word for word in wanted if word not in {TLS_1_2, TLS_1_3, *_DISABLED_PROTOCOLS}]
    if unknown:
        raise invalid_value(name, unknown[0], f"{TLS_1_2} and {TLS_1_3} are served")
    highest = value("ssl.protocol") or TLS_1_3
    if highest in _DISABLED_PROTOCOLS:
        raise invalid_value("ssl.protocol", highest, f"{TLS_1_2} and {TLS_1_3} are served")
    served = tuple(word for word in (TLS_1_2, TLS_1_3) if word in wanted and not (highest == TLS_1_2 < word))
    if not served:
        why = f"none of them is served, use {TLS_1_2},{TLS_1_3} and an ssl.protocol that allows one of them"
        raise invalid_value(name, ",".join(wanted), why)
    return served


def _non_empty(listed: tuple[str, ...] | None) -> list[str]:
    return list(filter(None, listed or ()))
