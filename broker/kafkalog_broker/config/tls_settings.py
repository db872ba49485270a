"""Settings of Kafka's ssl.* properties for a listener: text to values, and contradictions among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from kafkalog_broker.config.definition import ConfigError, Value

TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"
_OLD = frozenset({"SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"})
"""Named in old files; Java has switched them off since 16, whatever the configuration says."""

_TYPES = ("PEM", "PKCS12", "JKS")


@dataclass(frozen=True, slots=True)
class Store:
    """A keystore or a truststore. `type`: PEM, PKCS12 or JKS, which is Java's word for a PKCS12 file too. `pem`, and of
    a keystore `key`: the content itself, in place of `location`."""

    kind: str
    type: str
    location: str | None
    password: str | None = field(repr=False)
    pem: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """`client_auth`: none, requested or required. `protocols`: those of TLS_1_2 and TLS_1_3 that are allowed.
    `cipher_suites`: as the RFCs name them; empty: OpenSSL's own choice."""

    keystore: Store
    truststore: Store | None
    client_auth: str
    protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    principal_mapping_rules: str
    allow_dn_changes: bool
    allow_san_changes: bool

    @classmethod
    def of(cls, value: Callable[[str], Value], client_auth: str) -> Self:
        """`value`: the parsed value of a property for this listener. Raises ConfigError."""
        keystore = _keystore(value)
        if keystore is None:
            raise ConfigError(
                "a listener with TLS needs a certificate: set ssl.keystore.location and ssl.keystore.password, or with "
                "ssl.keystore.type=PEM the properties ssl.keystore.key and ssl.keystore.certificate.chain",
                name="ssl.keystore.location",
            )
        if value("ssl.engine.factory.class") is not None:
            raise ConfigError(
                "ssl.engine.factory.class: classes of Java cannot be loaded", name="ssl.engine.factory.class"
            )
        return cls(
            keystore,
            _truststore(value),
            client_auth,
            _protocols(value),
            tuple(_words(value("ssl.cipher.suites"))),
            str(value("ssl.principal.mapping.rules")),
            bool(value("ssl.allow.dn.changes")),
            bool(value("ssl.allow.san.changes")),
        )

    @property
    def files(self) -> tuple[str, ...]:
        """The stores that are files."""
        stores = (self.keystore, self.truststore)
        return tuple(store.location for store in stores if store is not None and store.location is not None)


def _keystore(value: Callable[[str], Value]) -> Store | None:
    """Key store settings, checked as by DefaultSslEngineFactory.createKeystore, whose words these are."""
    kind, location = _type("ssl.keystore.type", value), _text(value("ssl.keystore.location"))
    password, key_password = _text(value("ssl.keystore.password")), _text(value("ssl.key.password"))
    key, chain = _text(value("ssl.keystore.key")), _text(value("ssl.keystore.certificate.chain"))
    name = "ssl.keystore.key"
    if key is None and chain is not None:
        raise ConfigError("SSL certificate chain is specified, but private key is not specified", name=name)
    if key is not None:
        if kind != "PEM":
            raise ConfigError(
                f"SSL private key can be specified only for PEM, but key store type is {kind}.", name=name
            )
        if chain is None:
            raise ConfigError("SSL private key is specified, but certificate chain is not specified.", name=name)
        if location is not None:
            raise ConfigError("Both SSL key store location and separate private key are specified.", name=name)
    if kind == "PEM" and password is not None and (key is not None or location is not None):
        raise ConfigError(
            "SSL key store password cannot be specified with PEM format, only key password may be specified",
            name="ssl.keystore.password",
        )
    if key is not None:
        return Store("keystore", kind, None, None, chain, key, key_password)
    if location is None:
        if password is not None:
            raise ConfigError("SSL key store is not specified, but key store password is specified.", name=name)
        return None
    if kind != "PEM" and password is None:
        raise ConfigError(
            "SSL key store is specified, but key store password is not specified.", name="ssl.keystore.password"
        )
    return Store("keystore", kind, location, password, key_password=key_password)


def _truststore(value: Callable[[str], Value]) -> Store | None:
    """Trust store settings, checked as by DefaultSslEngineFactory.createTruststore."""
    kind, location = _type("ssl.truststore.type", value), _text(value("ssl.truststore.location"))
    password, pem = _text(value("ssl.truststore.password")), _text(value("ssl.truststore.certificates"))
    name = "ssl.truststore.certificates"
    if pem is not None and kind != "PEM":
        raise ConfigError(
            f"SSL trust store certs can be specified only for PEM, but trust store type is {kind}.", name=name
        )
    if pem is not None and location is not None:
        raise ConfigError("Both SSL trust store location and separate trust certificates are specified.", name=name)
    if kind == "PEM" and password is not None and (pem is not None or location is not None):
        raise ConfigError("SSL trust store password cannot be specified for PEM format.", name=name)
    if pem is None and location is None:
        if password is not None:
            raise ConfigError("SSL trust store is not specified, but trust store password is specified.", name=name)
        return None
    return Store("truststore", kind, location, password, pem)


def _type(name: str, value: Callable[[str], Value]) -> str:
    kind = str(value(name)).upper()
    if kind not in _TYPES:
        raise ConfigError(f"Invalid value {kind[:200]} for configuration {name}: one of {', '.join(_TYPES)}", name=name)
    return kind


def _protocols(value: Callable[[str], Value]) -> tuple[str, ...]:
    """ssl.enabled.protocols, of which ssl.protocol is the highest, as in Java."""
    name = "ssl.enabled.protocols"
    wanted = _words(value(name)) or [TLS_1_2, TLS_1_3]
    unknown = [word for word in wanted if word not in {TLS_1_2, TLS_1_3, *_OLD}]
    if unknown:
        raise ConfigError(
            f"Invalid value {unknown[0][:200]} for configuration {name}: {TLS_1_2} and {TLS_1_3} are served", name=name
        )
    highest = _text(value("ssl.protocol")) or TLS_1_3
    if highest in _OLD:
        raise ConfigError(
            f"Invalid value {highest} for configuration ssl.protocol: {TLS_1_2} and {TLS_1_3} are served",
            name="ssl.protocol",
        )
    served = tuple(word for word in (TLS_1_2, TLS_1_3) if word in wanted and not (highest == TLS_1_2 < word))
    if not served:
        raise ConfigError(
            f"Invalid value {','.join(wanted)} for configuration {name}: none of them is served, use {TLS_1_2},"
            f"{TLS_1_3} and an ssl.protocol that allows one of them",
            name=name,
        )
    return served


def _words(value: Any) -> list[str]:
    return [word for word in value or () if word]


def _text(value: Value) -> str | None:
    return None if value is None or value == "" else str(value)
