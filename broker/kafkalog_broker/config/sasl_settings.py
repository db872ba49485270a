"""SASL settings of one listener, read from Kafka's sasl.* properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from kafkalog_broker.config.definition import NO_JAVA, ConfigError, invalid_value
from kafkalog_broker.config.oauth_settings import CALLBACK_HANDLER, OAUTH_MODULE, OAuthSettings
from kafkalog_broker.config.property_list import BROKER_PROPERTIES
from kafkalog_spark.jaas import parse_jaas

MECHANISMS = "sasl.enabled.mechanisms"
JAAS = "sasl.jaas.config"
MAX_REAUTH = "connections.max.reauth.ms"

PLAIN = "PLAIN"
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS_SERVED = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)

_USER_OPTION = "user_"  # prefix of the JAAS options that are users of PLAIN
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """SASL of one listener.

    Attributes:
        mechanisms: Enabled mechanisms, in order.
        plain_users: Passwords by user name.
        max_reauth_ms: Longest session by mechanism; 0 for no limit.
        max_receive_bytes: Largest request before authentication.
        failed_delay_ms: Delay of the response to a failed authentication.
        oauth: Settings of OAUTHBEARER if it is enabled.
    """

    mechanisms: tuple[str, ...]
    plain_users: Mapping[str, str] = field(repr=False)
    max_reauth_ms: Mapping[str, int]
    max_receive_bytes: int
    failed_delay_ms: int
    oauth: OAuthSettings | None = None

    @classmethod
    def of(cls, value: Callable[[str], Any], own: Callable[[str], str | None]) -> Self:
        """Read the settings.

        Args:
            value: Returns the parsed value of a property for this listener.
            own: Returns the text that is set for this listener alone, or None; properties of a mechanism have the
                names `mechanism.property`.

        Raises:
            ConfigError: If properties are missing, invalid or not supported.
        """

        def of_mechanism(mechanism: str, name: str) -> Any:
            text = own(f"{mechanism.lower()}.{name}")
            return value(name) if text is None else BROKER_PROPERTIES[name].parse(text)

        mechanisms, users, oauth = _check_mechanisms(value(MECHANISMS)), None, None
        for mechanism in mechanisms:
            handler = of_mechanism(mechanism, CALLBACK_HANDLER) or value(CALLBACK_HANDLER)
            if mechanism == OAUTHBEARER:
                options = _jaas_options(own, OAUTHBEARER, OAUTH_MODULE) or {}
                oauth = OAuthSettings.from_properties(partial(of_mechanism, OAUTHBEARER), handler or "", options)
            elif handler:
                raise invalid_value(CALLBACK_HANDLER, handler, NO_JAVA)
            elif mechanism == PLAIN:
                users = _jaas_options(own, PLAIN, PLAIN_MODULE)
                if users is None:
                    name = f"{PLAIN.lower()}.{JAAS}"
                    hint = f'set listener.name.LISTENER.{name}={PLAIN_MODULE} required user_alice="password";'
                    raise ConfigError(f"the mechanism {PLAIN} needs its users", name=name, hint=hint)
        return cls(
            mechanisms,
            {
                key.removeprefix(_USER_OPTION): text
                for key, text in (users or {}).items()
                if key.startswith(_USER_OPTION)
            },
            {mechanism: of_mechanism(mechanism, MAX_REAUTH) for mechanism in mechanisms},
            value("sasl.server.max.receive.size"),
            value("connection.failed.authentication.delay.ms"),
            oauth,
        )


def _check_mechanisms(listed: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(filter(None, listed)))
    unserved = [name for name in names if name not in MECHANISMS_SERVED]
    if unserved or not names:
        hint = "Kafka's default is GSSAPI (Kerberos); list the mechanisms of this listener"
        raise invalid_value(MECHANISMS, ",".join(names), f"{', '.join(MECHANISMS_SERVED)} are served", hint)
    return names


def _jaas_options(own: Callable[[str], str | None], mechanism: str, module: str) -> dict[str, str] | None:
    """Return the options of a mechanism's JAAS entry, or None without one.

    Raises:
        ConfigError: If the entry is malformed. The error does not quote it, because it has passwords.
    """
    name = f"{mechanism.lower()}.{JAAS}"
    text = own(name)
    if text is None:
        return None
    try:
        entry = parse_jaas(text)
    except ValueError as error:
        option = f'{_USER_OPTION}NAME="PASSWORD"' if mechanism == PLAIN else 'NAME="VALUE"'
        hint = f"expected one entry: {module} required {option};"
        raise invalid_value(name, "[hidden]", str(error), hint) from None
    if entry.module != module:
        raise invalid_value(name, "[hidden]", f"expected {module}")
    return dict(entry.options)
