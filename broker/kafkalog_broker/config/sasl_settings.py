"""Settings of Kafka's sasl.* properties for a listener: text to values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self
from urllib.parse import urlsplit

from kafkalog_broker.config.definition import BROKER_PROPERTIES, NO_JAVA, ConfigError, invalid_value
from kafkalog_spark.spark.librdkafka import parse_jaas

PREFIX = "sasl.oauthbearer."
URL = f"{PREFIX}jwks.endpoint.url"
_OF_TOKENS = {
    "issuer": "expected.issuer", "audiences": "expected.audience", "clock_skew_ms": "clock.skew.seconds",
    "scope_claim": "scope.claim.name", "subject_claim": "sub.claim.name", "refresh_ms": "jwks.endpoint.refresh.ms",
    "retry_ms": "jwks.endpoint.retry.backoff.ms", "max_retry_ms": "jwks.endpoint.retry.backoff.max.ms",
}  # fmt: skip
"""Field of OAuthSettings -> its property, without PREFIX."""
OAUTH_PROPERTIES = frozenset({URL, *(PREFIX + name for name in _OF_TOKENS.values())})

_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
MODULE = f"{_PACKAGE}OAuthBearerLoginModule"
SECURED = (
    f"{_PACKAGE}OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}secured.OAuthBearerValidatorCallbackHandler",  # its name before Kafka 4
)
UNSECURED = f"{_PACKAGE}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"

_OPTION = "unsecuredValidator"


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """Settings of tokens that are signed with a key of `jwks_url` (http, https or file); None: of unsecured ones.
    audiences: one of them must be in the token, none: the token must name none. Claims are named as in the token.
    scopes: all must be in an unsecured token. refresh_ms: how often the keys are read again."""

    jwks_url: str | None
    issuer: str | None = None
    audiences: frozenset[str] = frozenset()
    clock_skew_ms: int = 30_000
    scope_claim: str = "scope"
    subject_claim: str = "sub"
    scopes: tuple[str, ...] = ()
    refresh_ms: int = 3_600_000
    retry_ms: int = 100
    max_retry_ms: int = 10_000

    @classmethod
    def of(cls, value: Callable[[str], Any], handler: str, options: dict[str, str]) -> Self:
        """value: the parsed value of a property for this mechanism and listener. handler: the class that is to check
        tokens. options: of the JAAS entry. Raises ConfigError."""
        if handler == UNSECURED:
            return cls._unsecured(options)
        if handler and handler not in SECURED:
            raise invalid_value(HANDLER, handler, NO_JAVA, f"for OAUTHBEARER {SECURED[0]} and {UNSECURED} are served")
        url = value(URL)
        if not url:
            raise ConfigError(
                "the mechanism OAUTHBEARER needs keys that tokens are signed with",
                name=URL,
                hint=f"set {URL}, https or file; tokens that nobody has signed, for tests, are taken where "
                f"listener.name.LISTENER.oauthbearer.{HANDLER}={UNSECURED}",
            )
        if urlsplit(url).scheme not in ("http", "https", "file"):
            raise invalid_value(URL, url, "expected a URL of https, http or file")
        found = {field: value(PREFIX + name) for field, name in _OF_TOKENS.items()}
        found["audiences"] = frozenset(filter(None, found["audiences"]))
        found["clock_skew_ms"] *= 1000
        return cls(url, **found)

    @classmethod
    def _unsecured(cls, options: dict[str, str]) -> Self:
        skew = options.get(f"{_OPTION}AllowableClockSkewMs", "").strip() or "0"
        if not skew.isdecimal():
            raise ConfigError(f"Allowable clock skew millis must not be negative: {skew[:20]}", name="sasl.jaas.config")
        return cls(
            None,
            clock_skew_ms=int(skew),
            scope_claim=options.get(f"{_OPTION}ScopeClaimName", "").strip() or "scope",
            subject_claim=options.get(f"{_OPTION}PrincipalClaimName", "").strip() or "sub",
            scopes=tuple(options.get(f"{_OPTION}RequiredScope", "").split()),
        )


MECHANISMS = "sasl.enabled.mechanisms"
JAAS = "sasl.jaas.config"
HANDLER = "sasl.server.callback.handler.class"
MAX_REAUTH = "connections.max.reauth.ms"

PLAIN = "PLAIN"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER = "OAUTHBEARER"
SERVED = (PLAIN, *SCRAM, OAUTHBEARER)

_USER = "user_"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """`mechanisms`: those that are enabled, in order. `plain_users`: name to password. `max_reauth_ms`: by mechanism,
    how long a session lasts, 0: for ever. `failed_delay_ms`: how long the answer to a failed attempt waits."""

    mechanisms: tuple[str, ...]
    plain_users: Mapping[str, str] = field(repr=False)
    max_reauth_ms: Mapping[str, int]
    max_receive_bytes: int
    failed_delay_ms: int
    oauth: OAuthSettings | None = None  # where OAUTHBEARER is enabled

    @classmethod
    def of(cls, value: Callable[[str], Any], own: Callable[[str], str | None]) -> Self:
        """value: parsed, for this listener. own: text set for it alone, of a mechanism's properties under
        `mechanism.name`. Raises ConfigError."""

        def of_mechanism(mechanism: str, name: str) -> Any:
            text = own(f"{mechanism.lower()}.{name}")
            return value(name) if text is None else BROKER_PROPERTIES[name].parse(text)

        mechanisms, users, oauth = _mechanisms(value(MECHANISMS)), None, None
        for mechanism in mechanisms:
            handler = of_mechanism(mechanism, HANDLER) or value(HANDLER)
            if mechanism == OAUTHBEARER:
                options = _jaas_options(own, OAUTHBEARER, MODULE) or {}
                oauth = OAuthSettings.of(partial(of_mechanism, OAUTHBEARER), handler or "", options)
            elif handler:
                raise invalid_value(HANDLER, handler, NO_JAVA)
            elif mechanism == PLAIN:
                users = _jaas_options(own, PLAIN, PLAIN_MODULE)
                if users is None:
                    name = f"{PLAIN.lower()}.{JAAS}"
                    hint = f'set listener.name.LISTENER.{name}={PLAIN_MODULE} required user_alice="password";'
                    raise ConfigError(f"the mechanism {PLAIN} needs its users", name=name, hint=hint)
        return cls(
            mechanisms,
            {key.removeprefix(_USER): text for key, text in (users or {}).items() if key.startswith(_USER)},
            {mechanism: of_mechanism(mechanism, MAX_REAUTH) for mechanism in mechanisms},
            value("sasl.server.max.receive.size"),
            value("connection.failed.authentication.delay.ms"),
            oauth,
        )


def _mechanisms(listed: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(filter(None, listed)))
    unserved = [name for name in names if name not in SERVED]
    if unserved or not names:
        hint = "Kafka's default is GSSAPI (Kerberos): name those that the listener is to have"
        raise invalid_value(MECHANISMS, ",".join(names), f"{', '.join(SERVED)} are served", hint)
    return names


def _jaas_options(own: Callable[[str], str | None], mechanism: str, module: str) -> dict[str, str] | None:
    """Options of the mechanism's JAAS entry; None without one. Raises ConfigError, which shows nothing of the text."""
    name = f"{mechanism.lower()}.{JAAS}"
    text = own(name)
    if text is None:
        return None
    try:
        entry_module, options = parse_jaas(text)
    except ValueError as error:
        hint = f'expected one entry: {PLAIN_MODULE} required user_NAME="PASSWORD";'
        raise invalid_value(name, "[hidden]", str(error), hint) from None
    if entry_module != module:
        raise invalid_value(name, "[hidden]", f"expected {module}")
    return options
