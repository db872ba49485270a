"""Settings of Kafka's sasl.* properties for a listener: text to values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Self
from urllib.parse import urlsplit

from kafkalog_broker.config.definition import BROKER_PROPERTIES, ConfigError, Value
from kafkalog_spark.spark.librdkafka import parse_jaas

PREFIX = "sasl.oauthbearer."
URL = f"{PREFIX}jwks.endpoint.url"
OAUTH_PROPERTIES = frozenset(
    PREFIX + name
    for name in (
        "clock.skew.seconds", "expected.audience", "expected.issuer", "jwks.endpoint.refresh.ms",
        "jwks.endpoint.retry.backoff.max.ms", "jwks.endpoint.retry.backoff.ms", "jwks.endpoint.url",
        "scope.claim.name", "sub.claim.name",
    )
)  # fmt: skip

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
    def of(cls, value: Callable[[str], Value], handler: str, options: dict[str, str]) -> Self:
        """value: the parsed value of a property for this mechanism and listener. handler: the class that is to check
        tokens. options: of the JAAS entry. Raises ConfigError."""
        if handler == UNSECURED:
            return cls._unsecured(options)
        if handler and handler not in SECURED:
            raise ConfigError(
                f"Invalid value {handler[:200]} for configuration sasl.server.callback.handler.class: classes of Java "
                "cannot be loaded",
                name="sasl.server.callback.handler.class",
                hint=f"for OAUTHBEARER {SECURED[0]} and {UNSECURED} are served",
            )
        url = value(URL)
        if not url:
            raise ConfigError(
                "the mechanism OAUTHBEARER needs keys that tokens are signed with",
                name=URL,
                hint=f"set {URL}, https or file; tokens that nobody has signed, for tests, are taken where "
                f"listener.name.LISTENER.oauthbearer.sasl.server.callback.handler.class={UNSECURED}",
            )
        if urlsplit(str(url)).scheme not in ("http", "https", "file"):
            raise ConfigError(
                f"Invalid value {str(url)[:200]} for configuration {URL}: expected a URL of https, http or file",
                name=URL,
            )
        issuer, audiences = value(f"{PREFIX}expected.issuer"), value(f"{PREFIX}expected.audience")
        assert isinstance(audiences, tuple)
        return cls(
            str(url),
            None if issuer is None else str(issuer),
            frozenset(filter(None, audiences)),
            _number(value(f"{PREFIX}clock.skew.seconds")) * 1000,
            str(value(f"{PREFIX}scope.claim.name")),
            str(value(f"{PREFIX}sub.claim.name")),
            refresh_ms=_number(value(f"{PREFIX}jwks.endpoint.refresh.ms")),
            retry_ms=_number(value(f"{PREFIX}jwks.endpoint.retry.backoff.ms")),
            max_retry_ms=_number(value(f"{PREFIX}jwks.endpoint.retry.backoff.max.ms")),
        )

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
    oauth: OAuthSettings | None = None  # where OAUTHBEARER is enabled

    @classmethod
    def of(cls, value: Callable[[str], Value], own: Callable[[str], str | None]) -> Self:
        """value: parsed, for this listener. own: text set for it alone, of a mechanism's properties under
        `mechanism.name`. Raises ConfigError."""

        def of_mechanism(mechanism: str, name: str) -> Value:
            text = own(f"{mechanism.lower()}.{name}")
            return value(name) if text is None else BROKER_PROPERTIES[name].parse(text)

        mechanisms, users, oauth = _mechanisms(value(MECHANISMS)), None, None
        for mechanism in mechanisms:
            handler = of_mechanism(mechanism, HANDLER) or value(HANDLER)
            if mechanism == OAUTHBEARER:
                options = _jaas_options(own, OAUTHBEARER, MODULE) or {}
                oauth = OAuthSettings.of(partial(of_mechanism, OAUTHBEARER), str(handler or ""), options)
            elif handler:
                raise ConfigError(
                    f"Invalid value {str(handler)[:200]} for configuration {HANDLER}: classes of Java cannot be loaded",
                    name=HANDLER,
                )
            elif mechanism == PLAIN:
                users = _jaas_options(own, PLAIN, _PLAIN_MODULE)
                if users is None:
                    name = f"{PLAIN.lower()}.{JAAS}"
                    raise ConfigError(
                        f"the mechanism {PLAIN} needs its users",
                        name=name,
                        hint=f'set listener.name.LISTENER.{name}={_PLAIN_MODULE} required user_alice="password";',
                    )
        return cls(
            mechanisms,
            {key.removeprefix(_USER): text for key, text in (users or {}).items() if key.startswith(_USER)},
            {mechanism: _number(of_mechanism(mechanism, MAX_REAUTH)) for mechanism in mechanisms},
            _number(value("sasl.server.max.receive.size")),
            _number(value("connection.failed.authentication.delay.ms")),
            oauth,
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


def _jaas_options(own: Callable[[str], str | None], mechanism: str, module: str) -> dict[str, str] | None:
    """Options of the mechanism's JAAS entry; None without one. Raises ConfigError, which shows nothing of the text."""
    name = f"{mechanism.lower()}.{JAAS}"
    text = own(name)
    if text is None:
        return None
    try:
        entry_module, options = parse_jaas(text)
    except ValueError as error:
        raise ConfigError(
            f"Invalid value [hidden] for configuration {name}: {error}",
            name=name,
            hint=f'expected one entry: {_PLAIN_MODULE} required user_NAME="PASSWORD";',
        ) from None
    if entry_module != module:
        raise ConfigError(f"Invalid value [hidden] for configuration {name}: expected {module}", name=name)
    return options


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value
