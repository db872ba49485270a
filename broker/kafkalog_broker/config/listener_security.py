"""How the peers of each listener prove who they are: Kafka's properties, those of one listener before those of all.

listener.name.external.ssl.keystore.location     of the listener EXTERNAL
ssl.keystore.location                            of every listener that has no own one
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from kafkalog_broker.config.definition import ConfigError, Value
from kafkalog_broker.config.kafka_properties import BROKER_PROPERTIES
from kafkalog_broker.config.listeners import Listener
from kafkalog_broker.config.oauth_settings import OAUTH_PROPERTIES
from kafkalog_broker.config.sasl_settings import HANDLER, JAAS, MAX_REAUTH, SaslSettings
from kafkalog_broker.config.sasl_settings import SERVED as MECHANISMS_SERVED
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
"""What a listener's settings are made of."""

MECHANISM_PROPERTIES = frozenset({JAAS, HANDLER, MAX_REAUTH, *OAUTH_PROPERTIES})
"""Those that have the name of a mechanism in front: `plain.sasl.jaas.config`."""


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """`protocol`: one of listeners.PROTOCOLS. `tls`, `sasl`: where that has it."""

    protocol: str
    tls: TlsSettings | None
    sasl: SaslSettings | None

    @classmethod
    def of(cls, listener: str, protocol: str, layers: Iterable[Mapping[str, str]]) -> Self:
        """layers: properties as text, the one that counts first. Raises ConfigError, which names the listener."""
        properties = ListenerProperties(listener, tuple(layers))
        try:
            return cls(
                protocol,
                _tls(properties, protocol) if protocol in TLS_PROTOCOLS else None,
                SaslSettings.of(properties.value, properties.own) if protocol in SASL_PROTOCOLS else None,
            )
        except ConfigError as error:
            raise ConfigError(f"listener {listener}: {error.what}", name=error.name, hint=error.hint) from None


@dataclass(frozen=True, slots=True)
class ListenerProperties:
    """The properties of one listener, as AbstractConfig.valuesWithPrefixOverride gives them."""

    listener: str
    layers: tuple[Mapping[str, str], ...]

    def own(self, name: str) -> str | None:
        """What was set for this listener alone, as text."""
        key = f"{LISTENER_PREFIX}{self.listener.lower()}.{name}"
        return next((layer[key] for layer in self.layers if key in layer), None)

    def value(self, name: str) -> Value:
        """The listener's own value, that of all, or the default. Raises ConfigError."""
        text = self.own(name)
        if text is None:
            text = next((layer[name] for layer in self.layers if name in layer), BROKER_PROPERTIES[name].default)
        return BROKER_PROPERTIES[name].parse(text)


def listener_security(
    listeners: Iterable[Listener], protocols: Mapping[str, str], layers: Iterable[Mapping[str, str]]
) -> dict[str, ListenerSecurity]:
    """By listener name. Raises ConfigError."""
    all_layers = tuple(layers)
    return {
        listener.name: ListenerSecurity.of(listener.name, protocols[listener.name], all_layers)
        for listener in listeners
    }


def listener_property(name: str) -> str | None:
    """`ssl.keystore.type` of `listener.name.external.ssl.keystore.type`; None for a name of another form, and for what
    listeners do not have."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    rest = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
    mechanism, _, of_mechanism = rest.partition(".")
    if of_mechanism in MECHANISM_PROPERTIES:
        return of_mechanism if mechanism.upper() in MECHANISMS_SERVED else None
    return rest if rest in LISTENER_PROPERTIES else None


def _tls(properties: ListenerProperties, protocol: str) -> TlsSettings:
    name = "ssl.client.auth"
    client_auth = properties.value(name)
    if protocol == "SASL_SSL" and properties.own(name) is None:
        client_auth = "none"  # as in Kafka, where SASL authenticates unless a listener says otherwise
    return TlsSettings.of(properties.value, str(client_auth))
