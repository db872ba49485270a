"""Security settings of listeners: protocol, TLS and SASL.

`listener.name.external.ssl.keystore.location` applies to the listener EXTERNAL, `ssl.keystore.location` to every
listener without a property of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.oauth_settings import CALLBACK_HANDLER, OAUTH_PROPERTIES
from kafkalog_broker.config.property_list import BROKER_PROPERTIES, first_value
from kafkalog_broker.config.sasl_settings import JAAS, MAX_REAUTH, MECHANISMS_SERVED, SaslSettings
from kafkalog_broker.config.tls_settings import TlsSettings

LISTENER_PREFIX = "listener.name."
TLS_PROTOCOLS = ("SSL", "SASL_SSL")
SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")

LISTENER_PROPERTIES = frozenset(
    {
        "connection.failed.authentication.delay.ms", "connections.max.reauth.ms", "sasl.enabled.mechanisms",
        "sasl.jaas.config", "sasl.server.callback.handler.class", "sasl.server.max.receive.size",
        "ssl.allow.dn.changes", "ssl.allow.san.changes", "ssl.cipher.suites", "ssl.client.auth",
        "ssl.enabled.protocols", "ssl.engine.factory.class", "ssl.key.password", "ssl.keystore.certificate.chain",
        "ssl.keystore.key", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type",
        "ssl.principal.mapping.rules", "ssl.protocol", "ssl.truststore.certificates", "ssl.truststore.location",
        "ssl.truststore.password", "ssl.truststore.type", *OAUTH_PROPERTIES,
    }
)  # fmt: skip
"""Properties from which the settings of a listener are read."""

MECHANISM_PROPERTIES = frozenset({JAAS, CALLBACK_HANDLER, MAX_REAUTH, *OAUTH_PROPERTIES})
"""Properties that may have the name of a mechanism in front: `plain.sasl.jaas.config`."""


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """Security of one listener.

    Attributes:
        protocol: One of listeners.PROTOCOLS.
        tls, sasl: Settings, or None if the protocol does not use TLS or SASL.
    """

    protocol: str
    tls: TlsSettings | None
    sasl: SaslSettings | None

    @classmethod
    def of(cls, listener: str, protocol: str, layers: tuple[Mapping[str, str], ...]) -> Self:
        """Read the settings of a listener.

        Args:
            listener: Name of the listener.
            protocol: Its security protocol.
            layers: Properties as text, the layer of highest precedence first.

        Raises:
            ConfigError: If properties are missing, invalid or not supported; it names the listener.
        """

        def listener_text(name: str) -> str | None:
            key = f"{LISTENER_PREFIX}{listener.lower()}.{name}"
            return next((layer[key] for layer in layers if key in layer), None)

        def listener_value(name: str) -> Any:  # Kafka: AbstractConfig.valuesWithPrefixOverride
            text = listener_text(name)
            return BROKER_PROPERTIES[name].parse(first_value(layers, name) if text is None else text)

        tls = sasl = None
        try:
            if protocol in TLS_PROTOCOLS:
                # As in Kafka, clients with SASL need no certificate unless the listener's own property demands one.
                by_sasl = protocol in SASL_PROTOCOLS and listener_text("ssl.client.auth") is None
                tls = TlsSettings.of(listener_value, "none" if by_sasl else listener_value("ssl.client.auth"))
            if protocol in SASL_PROTOCOLS:
                sasl = SaslSettings.of(listener_value, listener_text)
            return cls(protocol, tls, sasl)
        except ConfigError as error:
            raise ConfigError(f"listener {listener}: {error.what}", name=error.name, hint=error.hint) from None


def listener_property(name: str) -> str | None:
    """Return `ssl.keystore.type` for `listener.name.external.ssl.keystore.type`, None for other kinds of names."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    rest = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
    mechanism, _, of_mechanism = rest.partition(".")
    if of_mechanism in MECHANISM_PROPERTIES:
        return of_mechanism if mechanism.upper() in MECHANISMS_SERVED else None
    return rest if rest in LISTENER_PROPERTIES else None
