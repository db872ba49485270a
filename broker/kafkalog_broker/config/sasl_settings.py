"""What Kafka's sasl.* properties say about one listener: text to values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

from kafkalog_broker.config.definition import ConfigError, Value
from kafkalog_broker.config.jaas import parse_jaas
from kafkalog_broker.config.kafka_properties import BROKER_PROPERTIES
from kafkalog_broker.config.oauth_settings import MODULE as OAUTH_MODULE
from kafkalog_broker.config.oauth_settings import OAuthSettings

MECHANISMS = "sasl.enabled.mechanisms"
JAAS = "sasl.jaas.config"
HANDLER = "sasl.server.callback.handler.class"
MAX_REAUTH = "connections.max.reauth.ms"

PLAIN = "PLAIN"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER = "OAUTHBEARER"
SERVED = (PLAIN, *SCRAM, OAUTHBEARER)

_USER = "user_"
_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """`mechanisms`: those that are enabled, in order. `plain_users`: name to password. `max_reauth_ms`: by mechanism,
    how long a session lasts, 0: for ever. `failed_delay_ms`: how long the answer to a failed attempt waits."""

    mechanisms: tuple[str, ...]
    plain_users: Mapping[str, str] = field(repr=False)
    max_reauth_ms: Mapping[str, int]
    max_receive_bytes: int
    failed_delay_ms: int
    oauth: OAuthSettings | None = None
    """Where OAUTHBEARER is enabled."""

    @classmethod
    def of(cls, value: Callable[[str], Value], own: Callable[[str], str | None]) -> Self:
        """value: the parsed value of a property for this listener. own: the text set for this listener alone, of
        properties of a mechanism under `mechanism.name`. Raises ConfigError."""
        mechanisms = _mechanisms(value(MECHANISMS))
        for mechanism in mechanisms:
            handler = own(f"{mechanism.lower()}.{HANDLER}") or value(HANDLER)
            if handler and mechanism != OAUTHBEARER:
                raise ConfigError(
                    f"Invalid value {str(handler)[:200]} for configuration {HANDLER}: classes of Java cannot be loaded",
                    name=HANDLER,
                )
        users = _plain_users(own(f"{PLAIN.lower()}.{JAAS}")) if PLAIN in mechanisms else {}
        return cls(
            mechanisms,
            users,
            {mechanism: _max_reauth(mechanism, value, own) for mechanism in mechanisms},
            _number(value("sasl.server.max.receive.size")),
            _number(value("connection.failed.authentication.delay.ms")),
            _oauth(value, own) if OAUTHBEARER in mechanisms else None,
        )


def _mechanisms(value: Value) -> tuple[str, ...]:
    assert isinstance(value, tuple)
    names = tuple(dict.fromkeys(name for name in value if name))
    unserved = [name for name in names if name not in SERVED]
    if unserved or not names:
        shown = ",".join(names)[:200]
        raise ConfigError(
            f"Invalid value {shown} for configuration {MECHANISMS}: {', '.join(SERVED)} are served",
            name=MECHANISMS,
            hint="Kafka's default is GSSAPI (Kerberos): name those that the listener is to have",
        )
    return names


def _plain_users(text: str | None) -> dict[str, str]:
    name = f"{PLAIN.lower()}.{JAAS}"
    if text is None:
        raise ConfigError(
            f"the mechanism {PLAIN} needs its users",
            name=name,
            hint=f'set listener.name.LISTENER.{name}={_PLAIN_MODULE} required user_alice="password";',
        )
    module, options = parse_jaas(text, name)
    if module != _PLAIN_MODULE:
        raise ConfigError(f"Invalid value [hidden] for configuration {name}: expected {_PLAIN_MODULE}", name=name)
    return {key.removeprefix(_USER): value for key, value in options.items() if key.startswith(_USER)}


def _oauth(value: Callable[[str], Value], own: Callable[[str], str | None]) -> OAuthSettings:
    def of_mechanism(name: str) -> Value:
        text = own(f"{OAUTHBEARER.lower()}.{name}")
        return value(name) if text is None else BROKER_PROPERTIES[name].parse(text)

    options: dict[str, str] = {}
    name = f"{OAUTHBEARER.lower()}.{JAAS}"
    text = own(name)
    if text is not None:
        module, options = parse_jaas(text, name)
        if module != OAUTH_MODULE:
            raise ConfigError(f"Invalid value [hidden] for configuration {name}: expected {OAUTH_MODULE}", name=name)
    handler = own(f"{OAUTHBEARER.lower()}.{HANDLER}") or value(HANDLER)
    return OAuthSettings.of(of_mechanism, None if handler is None else str(handler), options)


def _max_reauth(mechanism: str, value: Callable[[str], Value], own: Callable[[str], str | None]) -> int:
    text = own(f"{mechanism.lower()}.{MAX_REAUTH}")
    return _number(value(MAX_REAUTH) if text is None else BROKER_PROPERTIES[MAX_REAUTH].parse(text))


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value
