"""TLS settings of one listener, read from Kafka's ssl.* properties and checked for contradictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from kafkalog_broker.config.definition import NO_JAVA, ConfigError, invalid_value

TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"
_DISABLED_PROTOCOLS = frozenset({"SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"})
"""Protocols that old files may name. They are ignored, because Java 16 and later do not use them either."""
_HIGHEST_VERSIONS = {"TLSV1.2": TLS_1_2, "TLSV1.3": TLS_1_3, "TLS": TLS_1_3, "SSL": TLS_1_3}
"""Highest version by ssl.protocol in upper case. Java ignores the case, and SSL is its alias of TLS."""

PEM = "PEM"
_STORE_TYPES = (PEM, "PKCS12", "JKS")

PropertyValue = Callable[[str], Any]
"""Function that returns the parsed value of a property for one listener."""


@dataclass(frozen=True, slots=True)
class Store:
    """A keystore or a truststore.

    Attributes:
        kind: "keystore" or "truststore".
        type: PEM, PKCS12 or JKS. A file of type JKS may contain PKCS12, as in Java.
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
        protocols: The enabled versions: TLS_1_2, TLS_1_3, or both.
        cipher_suites: IANA names; empty for OpenSSL's default.
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
    def of(cls, property_value: PropertyValue, client_auth: str) -> Self:
        """Read the settings.

        Args:
            property_value: Returns the parsed value of a property for this listener.
            client_auth: See `client_auth` above.

        Raises:
            ConfigError: If properties are invalid or contradict each other.
        """
        keystore = _keystore(property_value)
        if keystore is None:
            raise ConfigError(
                "a listener with TLS needs a certificate: set ssl.keystore.location and ssl.keystore.password, or with "
                "ssl.keystore.type=PEM the properties ssl.keystore.key and ssl.keystore.certificate.chain",
                name="ssl.keystore.location",
            )
        if property_value("ssl.engine.factory.class") is not None:
            raise ConfigError(f"ssl.engine.factory.class: {NO_JAVA}", name="ssl.engine.factory.class")
        return cls(
            keystore=keystore,
            truststore=_truststore(property_value),
            client_auth=client_auth,
            protocols=_protocols(property_value),
            cipher_suites=tuple(_non_empty(property_value("ssl.cipher.suites"))),
            principal_mapping_rules=property_value("ssl.principal.mapping.rules"),
            allow_dn_changes=property_value("ssl.allow.dn.changes"),
            allow_san_changes=property_value("ssl.allow.san.changes"),
        )

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of the stores that are files."""
        stores = (self.keystore, self.truststore)
        return tuple(store.location for store in stores if store is not None and store.location is not None)


def _keystore(property_value: PropertyValue) -> Store | None:
    """Return the keystore, or None without one.

    Raises ConfigError with the checks and messages of Kafka's `DefaultSslEngineFactory.createKeystore`.
    """
    store_type = _store_type("ssl.keystore.type", property_value)
    location = property_value("ssl.keystore.location") or None
    password = property_value("ssl.keystore.password") or None
    key = property_value("ssl.keystore.key") or None
    certificates = property_value("ssl.keystore.certificate.chain") or None
    key_password = property_value("ssl.key.password") or None
    pem_password_error = ConfigError(
        "SSL key store password cannot be specified with PEM format, only key password may be specified",
        name="ssl.keystore.password",
    )
    if key is not None:
        if store_type != PEM:
            raise ConfigError(
                f"SSL private key can be specified only for PEM, but key store type is {store_type}.",
                name="ssl.keystore.key",
            )
        if certificates is None:
            raise ConfigError(
                "SSL private key is specified, but certificate chain is not specified.",
                name="ssl.keystore.certificate.chain",
            )
        if location is not None:
            raise ConfigError(
                "Both SSL key store location and separate private key are specified.", name="ssl.keystore.key"
            )
        if password is not None:
            raise pem_password_error
        return Store("keystore", store_type, None, None, certificates, key, key_password)
    if certificates is not None:
        raise ConfigError(
            "SSL certificate chain is specified, but private key is not specified", name="ssl.keystore.key"
        )
    if location is None:
        if password is not None:
            raise ConfigError(
                "SSL key store is not specified, but key store password is specified.", name="ssl.keystore.password"
            )
        return None
    if store_type == PEM and password is not None:
        raise pem_password_error
    if store_type != PEM and password is None:
        raise ConfigError(
            "SSL key store is specified, but key store password is not specified.", name="ssl.keystore.password"
        )
    return Store("keystore", store_type, location, password, key_password=key_password)


def _truststore(property_value: PropertyValue) -> Store | None:
    """Return the truststore, or None without one.

    Raises ConfigError with the checks and messages of Kafka's `DefaultSslEngineFactory.createTruststore`.
    """
    store_type = _store_type("ssl.truststore.type", property_value)
    location = property_value("ssl.truststore.location") or None
    password = property_value("ssl.truststore.password") or None
    certificates = property_value("ssl.truststore.certificates") or None
    if certificates is not None:
        if store_type != PEM:
            raise ConfigError(
                f"SSL trust store certs can be specified only for PEM, but trust store type is {store_type}.",
                name="ssl.truststore.certificates",
            )
        if location is not None:
            raise ConfigError(
                "Both SSL trust store location and separate trust certificates are specified.",
                name="ssl.truststore.certificates",
            )
    elif location is None:
        if password is not None:
            raise ConfigError(
                "SSL trust store is not specified, but trust store password is specified.",
                name="ssl.truststore.password",
            )
        return None
    if store_type == PEM and password is not None:
        raise ConfigError(
            "SSL trust store password cannot be specified for PEM format.", name="ssl.truststore.password"
        )
    return Store("truststore", store_type, location, password, certificates)


def _store_type(name: str, property_value: PropertyValue) -> str:
    store_type: str = property_value(name).upper()
    if store_type not in _STORE_TYPES:
        raise invalid_value(name, store_type, f"one of {', '.join(_STORE_TYPES)}")
    return store_type


def _protocols(property_value: PropertyValue) -> tuple[str, ...]:
    """Return the protocols of ssl.enabled.protocols up to ssl.protocol, as Kafka documents them.

    Raises ConfigError for an unknown protocol, for which Kafka does not start either.
    """
    name = "ssl.enabled.protocols"
    wanted = _non_empty(property_value(name)) or [TLS_1_2, TLS_1_3]
    unknown = [version for version in wanted if version not in {TLS_1_2, TLS_1_3, *_DISABLED_PROTOCOLS}]
    if unknown:
        raise invalid_value(name, unknown[0], f"{TLS_1_2} and {TLS_1_3} are supported")
    protocol = property_value("ssl.protocol") or TLS_1_3
    highest = _HIGHEST_VERSIONS.get(protocol.upper())
    if highest is None:
        raise invalid_value("ssl.protocol", protocol, f"{TLS_1_2}, {TLS_1_3} and TLS are supported")
    allowed = (TLS_1_2,) if highest == TLS_1_2 else (TLS_1_2, TLS_1_3)
    supported = tuple(version for version in allowed if version in wanted)
    if not supported:
        why = f"none of them is supported; use {TLS_1_2},{TLS_1_3} and an ssl.protocol that allows one of them"
        raise invalid_value(name, ",".join(wanted), why)
    return supported


def _non_empty(listed: tuple[str, ...] | None) -> list[str]:
    return list(filter(None, listed or ()))
